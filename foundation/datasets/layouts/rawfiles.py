"""The files of a public data set as a user has them: found, checked, and read a batch at a time.

Everything is checked before anything is read: which files are there, and the header of each. One
error then tells what is expected and what was found, instead of one mistake an hour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from features.errors import BadRows, DataError
from features.reading.tables import TableBatch, column_names, read_batches
from features.specs import EntitySpec

_MOST_SHOWN = 20
_BLOCK_BYTES = 1 << 23


@dataclass(frozen=True, kw_only=True)
class RawTable:
    """A table of a public data set.

    Attributes:
        pattern: of its file names, such as `train.csv` or `log_*.csv`.
        columns: that are read; a file may have more.
        has_many: whether several files may make up the table.
        has_header: whether the first line names the columns; without one they are these, all.
        delimiter: of fields.
    """

    pattern: str
    columns: tuple[str, ...]
    has_many: bool = False
    has_header: bool = True
    delimiter: str = ","


class RawFiles:
    """The files of each table, in one folder or the folders inside it.

    Args:
        folder: where the user unpacked the data set.
        tables: what it is made of.
        layout: name, for errors.

    Raises:
        DataError: files or columns are missing, or more than one file fits a table of one.
    """

    def __init__(self, folder: Path, tables: Sequence[RawTable], *, layout: str) -> None:
        self._paths = {table.pattern: _matching(folder, table.pattern) for table in tables}
        wrong = [t for t in tables if not _is_count_right(t, len(self._paths[t.pattern]))]
        if wrong:
            raise DataError(_explain_files(folder, tables, wrong, layout))
        problems = [p for t in tables for p in self._column_problems(t)]
        if problems:
            raise DataError("\n".join(f"layout {layout}: {problem}" for problem in problems))

    def batches(self, table: RawTable) -> Iterator[TableBatch]:
        """Give the table's rows in the order of its files, all values as text; empty is null."""
        for path in self._paths[table.pattern]:
            if table.has_header:
                yield from _with_header(path, table)
            else:
                yield from _without_header(path, table)

    def _column_problems(self, table: RawTable) -> Iterator[str]:
        for path in self._paths[table.pattern]:
            found = _header(path, table)
            if not table.has_header:
                if len(found) != len(table.columns):
                    yield (
                        f"{path}: expected {len(table.columns)} fields a line and no header, "
                        f"got {len(found)} in the first"
                    )
                continue
            missing = [name for name in table.columns if name not in found]
            if missing:
                yield (
                    f"{path}: columns {missing} are missing; expected {list(table.columns)}, "
                    f"it has {list(found)}"
                )


def integers(batch: TableBatch, name: str) -> pa.ChunkedArray:
    """Give a column of whole numbers, int64.

    Raises:
        BadRows: values that are none; counted from the first row of the file.
    """
    return _typed(batch, name, pa.int64())


def numbers(batch: TableBatch, name: str) -> pa.ChunkedArray:
    """Give a column of numbers, float64.

    Raises:
        BadRows: values that are none; counted from the first row of the file.
    """
    return _typed(batch, name, pa.float64())


def text(batch: TableBatch, name: str) -> pa.ChunkedArray:
    """Give a column as it is written; an empty field is null."""
    return _typed(batch, name, pa.string())


def _typed(batch: TableBatch, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    try:
        return batch.column(name, kind)
    except BadRows as bad:
        raise bad.moved(batch.first_row) from bad


def _matching(folder: Path, pattern: str) -> tuple[Path, ...]:
    """Files of this name or pattern, plain or compressed, here or further down."""
    if not folder.is_dir():
        raise DataError(f"{folder}: expected the folder with the raw files; there is none")
    found = {p for suffix in ("", ".gz") for p in folder.rglob(pattern + suffix) if p.is_file()}
    return tuple(sorted(found))


def _is_count_right(table: RawTable, num_files: int) -> bool:
    return num_files >= 1 if table.has_many else num_files == 1


def _explain_files(
    folder: Path, tables: Sequence[RawTable], wrong: Sequence[RawTable], layout: str
) -> str:
    names = [str(p.relative_to(folder)) for p in sorted(folder.rglob("*")) if p.is_file()]
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    lines = [f"{folder}: these are not the files of layout {layout}"]
    for table in tables:
        count = "one or more" if table.has_many else "one"
        mark = "wrong" if table in wrong else "found"
        num_found = len(_matching(folder, table.pattern))
        lines.append(f"  {mark}: expected {count} {table.pattern}, found {num_found}")
    lines.append(f"  the folder has: {', '.join(names[:_MOST_SHOWN]) or 'no files'}{more}")
    return "\n".join(lines)


def _header(path: Path, table: RawTable) -> tuple[str, ...]:
    if table.has_header:
        names = column_names(path.parent, _spec(path, table))
        # The public user_profile.csv of TaobaoAd has a blank after its last name.
        return tuple(name.strip() for name in names)
    try:
        with pyarrow.csv.open_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(autogenerate_column_names=True),
            parse_options=pyarrow.csv.ParseOptions(delimiter=table.delimiter, quote_char=False),
        ) as reader:
            return tuple(reader.schema.names)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: {error}") from error


def _spec(path: Path, table: RawTable) -> EntitySpec:
    return EntitySpec(path=path.name, delimiter=table.delimiter)


def _with_header(path: Path, table: RawTable) -> Iterator[TableBatch]:
    spec = _spec(path, table)
    written = {name.strip(): name for name in column_names(path.parent, spec)}
    wanted = [written[name] for name in table.columns]
    for batch in read_batches(path.parent, spec, wanted):
        raw = batch.raw.select(wanted).rename_columns(list(table.columns))
        yield TableBatch(batch.where, batch.first_row, raw)


def _without_header(path: Path, table: RawTable) -> Iterator[TableBatch]:
    names = list(table.columns)
    first_row = 0
    try:
        with pyarrow.csv.open_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES),
            parse_options=pyarrow.csv.ParseOptions(delimiter=table.delimiter, quote_char=False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        ) as reader:
            for part in reader:
                yield TableBatch(str(path), first_row, pa.Table.from_batches([part]))
                first_row += part.num_rows
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: {error}") from error
