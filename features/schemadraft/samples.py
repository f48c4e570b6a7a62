"""Files as tables: which belong together, how their text is written, and a sample of their rows."""

from __future__ import annotations

import gzip
import itertools
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from features.errors import DataError
from features.reading.tables import SUFFIXES, column_names, read_batches
from features.schema import EntitySpec
from features.schemadraft.columns import ColumnSample, sample_of
from features.schemadraft.words import slug

_HEAD_BYTES = 1 << 20
_HEAD_ROWS, _LATER_ROWS, _MAX_BATCHES = 20_000, 2_000, 24
_DELIMITERS = ",;\t|"
# Beside UTF-8; every byte is some character in it, so nothing can be told from an error.
_OTHER_ENCODING = "latin-1"


@dataclass(frozen=True, kw_only=True)
class TableSample:
    """Some rows of a table.

    Attributes:
        name: made of the file's.
        files: path from the folder, encoding and delimiter, as a schema declares them.
        is_encoding_guessed: the text is not UTF-8.
        columns: by name, in the order of the file.
        num_rows: in the sample: the head, and some rows from further down.
        is_whole: the sample is the table.
    """

    name: str
    files: EntitySpec
    is_encoding_guessed: bool
    columns: dict[str, ColumnSample]
    num_rows: int
    is_whole: bool


def sample_tables(paths: Iterable[Path], folder: Path) -> list[TableSample]:
    """Read a sample of each table.

    Args:
        paths: files, or folders with the files of one table each. Files in one folder whose names
            differ in digits only, and which have the same columns, are one table.
        folder: that the schema will be in; exists.

    Raises:
        DataError: a file is missing or cannot be read.

    Cost: at most 24 parts of a table, 8 MB of text or 262,144 rows each.
    """
    described = [_describe(path, folder) for path in sorted(set(paths))]
    groups: dict[tuple[str, ...], list[tuple[EntitySpec, bool]]] = {}
    for files, is_guessed in described:
        stem = re.sub(r"[0-9]+", "#", files.path)
        key = (stem, *column_names(folder, files))
        groups.setdefault(key, []).append((files, is_guessed))
    found, names = [], set[str]()
    for group in groups.values():
        for files, is_guessed in _joined(group, folder):
            name = _unused(slug(re.sub(r"[*0-9_.-]+$", "", _stem(files.path))), names)
            found.append(_sample(name, files, folder, is_guessed=is_guessed))
    return found


def _describe(path: Path, folder: Path) -> tuple[EntitySpec, bool]:
    if not path.exists():
        raise DataError(f"{path}: expected a file or a folder; there is none")
    first = path
    if path.is_dir():
        files = sorted(
            p for p in path.rglob("*") if p.is_file() and not p.name.startswith((".", "_"))
        )
        if not files:
            raise DataError(f"{path}: expected files in this folder, found none")
        first = files[0]
    if not first.name.endswith(SUFFIXES):
        raise DataError(f"{first}: expected a file that ends in one of {', '.join(SUFFIXES)}")
    place = _place(path, folder)
    if not first.name.endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz")):
        return EntitySpec(path=place), False
    encoding, delimiter = _written(first)
    files_spec = EntitySpec(path=place, encoding=encoding, delimiter=delimiter)
    return files_spec, encoding != "utf-8"


def _place(path: Path, folder: Path) -> str:
    """Give a path from the folder; one that is a link inside it stays so."""
    inside, at = Path(os.path.abspath(path)), Path(os.path.abspath(folder))
    if inside.is_relative_to(at):
        return str(inside.relative_to(at))
    return os.path.relpath(path.resolve(), folder.resolve())


def _written(path: Path) -> tuple[str, str]:
    """Guess encoding and delimiter of text."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError as error:
        raise DataError(f"{path}: {error}") from error
    if len(head) == _HEAD_BYTES:
        head = head[: head.rfind(b"\n") + 1]
    try:
        text, encoding = head.decode("utf-8-sig"), "utf-8"
    except UnicodeDecodeError:
        text, encoding = head.decode(_OTHER_ENCODING), _OTHER_ENCODING
    header = re.sub(r'"[^"]*"', "", text.split("\n", 1)[0])
    return encoding, max(_DELIMITERS, key=lambda mark: (header.count(mark), mark == ","))


def _joined(group: list[tuple[EntitySpec, bool]], folder: Path) -> list[tuple[EntitySpec, bool]]:
    """Give one pattern for the files of a group, if it matches them and nothing else."""
    if len(group) == 1:
        return group
    paths = [files.path for files, _ in group]
    first, is_guessed = group[0]
    place, _, name = first.path.rpartition("/")
    pattern = f"{place}/" * bool(place) + re.sub(r"[0-9]+([-_.]?[0-9]+)*", "*", name)
    is_alike = all(files.encoding == first.encoding for files, _ in group)
    if ".." in pattern:  # a pattern starts from the folder
        return group
    matched = sorted(str(path.relative_to(folder)) for path in folder.glob(pattern))
    if matched != sorted(paths) or not is_alike:
        return group
    joined = EntitySpec(path=pattern, encoding=first.encoding, delimiter=first.delimiter)
    return [(joined, is_guessed)]


def _sample(name: str, files: EntitySpec, folder: Path, *, is_guessed: bool) -> TableSample:
    parts, is_whole = list[pa.Table](), True
    batches = read_batches(folder, files, list(column_names(folder, files)))
    for number, batch in enumerate(itertools.islice(batches, _MAX_BATCHES + 1)):
        room = _HEAD_ROWS - sum(part.num_rows for part in parts)
        wanted = max(room, _LATER_ROWS)
        if number == _MAX_BATCHES or len(batch) > wanted:
            is_whole = False
        if number < _MAX_BATCHES:
            # Taken, not sliced: a slice would hold on to its whole batch.
            parts.append(batch.raw.take(pa.array(range(min(wanted, len(batch))), pa.int64())))
    try:
        table = pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(f"{folder / files.path}: files do not fit one another: {error}") from error
    return TableSample(
        name=name,
        files=files,
        is_encoding_guessed=is_guessed,
        columns={column: sample_of(column, table[column]) for column in table.column_names},
        num_rows=table.num_rows,
        is_whole=is_whole,
    )


def _stem(path: str) -> str:
    parts = [part for part in Path(path).parts if part not in {"..", "."}]
    name = parts[-1] if parts else "table"
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    # `sends/*.csv` is named for its folder.
    return name if name.strip("*") or len(parts) < 2 else parts[-2]


def _unused(name: str, names: set[str]) -> str:
    found, number = name, 2
    while found in names:
        found, number = f"{name}_{number}", number + 1
    names.add(found)
    return found
