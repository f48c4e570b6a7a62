"""Tables from CSV and Parquet, with the types that the schema says and no others.

What a column means never depends on what it holds or how long it is. In a CSV only an empty field
is null (`NA`, `nan` and `null` are text), text is UTF-8 with or without a byte-order mark, and a
value that does not fit its type is an error with its row. Rows in errors are counted from 0, a
CSV header not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from features.errors import DataError
from features.schema import FeatureSpec, IdSpec
from features.times import TimeSpec

ColumnTypes = Mapping[str, pa.DataType | None]

_PARSE = pyarrow.csv.ParseOptions(newlines_in_values=True)


def id_type(spec: IdSpec) -> pa.DataType:
    """The Arrow type of an id column."""
    return pa.int64() if spec.dtype == "int64" else pa.string()


def feature_type(feature: FeatureSpec) -> pa.DataType:
    """The Arrow type of a feature's column: categories are text, so 007 and 7 stay apart."""
    return pa.string() if feature.kind == "categorical" else pa.float64()


def time_type(spec: TimeSpec) -> pa.DataType | None:
    """The Arrow type of a time column: None, as it is; `to_ms` knows what the unit allows."""
    return None


def read_table(path: Path, types: ColumnTypes) -> pa.Table:
    """Read the named columns of a CSV or Parquet file.

    Args:
        path: ends in .csv or .parquet.
        types: column name to type; a None type takes the column as it is (text in a CSV).

    Raises:
        DataError: the file cannot be read, lacks a column, or holds a value of another type.
    """
    return read_columns(path, {name: (name, kind) for name, kind in types.items()})


def read_columns(path: Path, wanted: Mapping[str, tuple[str, pa.DataType | None]]) -> pa.Table:
    """Read columns of a file under names of your own; one column may be read in several types.

    Args:
        path: ends in .csv or .parquet.
        wanted: name in the result to the column's name in the file and its type.

    Raises:
        DataError: as :func:`read_table`.
    """
    names = list(dict.fromkeys(name for name, _ in wanted.values()))
    try:
        if path.suffix == ".csv":
            table = _read_csv(path, names, wanted.values())
        elif path.suffix == ".parquet":
            _require_columns(path, pq.read_schema(path).names, names)
            table = pq.read_table(path, columns=names)
        else:
            raise DataError(f"{path}: expected a .csv or .parquet file")
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: {error}") from error
    return pa.table(
        {
            key: _cast(table[name], kind, f"{path}, column {name!r}")
            for key, (name, kind) in wanted.items()
        }
    )


def _read_csv(
    path: Path, names: list[str], wanted: Iterable[tuple[str, pa.DataType | None]]
) -> pa.Table:
    with pyarrow.csv.open_csv(path, parse_options=_PARSE) as reader:
        _require_columns(path, reader.schema.names, names)
    kinds: dict[str, set[pa.DataType]] = {name: set() for name in names}
    for name, kind in wanted:
        kinds[name].add(kind or pa.string())
    types = {name: next(iter(k)) if len(k) == 1 else pa.string() for name, k in kinds.items()}
    try:
        return _parse_csv(path, types)
    except pa.ArrowInvalid:
        _require_utf8(path)
        texts = _parse_csv(path, dict.fromkeys(types, pa.string()))
        for name, kind in types.items():
            _cast(texts[name], kind, f"{path}, column {name!r}")
        raise


def _parse_csv(path: Path, types: Mapping[str, pa.DataType]) -> pa.Table:
    convert = pyarrow.csv.ConvertOptions(
        include_columns=list(types),
        column_types=dict(types),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return pyarrow.csv.read_csv(path, parse_options=_PARSE, convert_options=convert)


def _require_utf8(path: Path) -> None:
    content = path.read_bytes()
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        start = content.rfind(b"\n", 0, error.start) + 1
        end = content.find(b"\n", error.start)
        line = content[start : end if end >= 0 else len(content)].decode("latin-1")
        number = content[: error.start].count(b"\n") + 1
        raise DataError(
            f"{path}, line {number} (from 1), byte offset "
            f"{error.start}, column {_column_at(content, start, error.start)!r}: byte "
            f"0x{content[error.start]:02X} is not UTF-8, in {line.strip()[:80]!r} (read as "
            "latin-1); save the file as UTF-8 (iconv -f latin1 -t utf-8) or as Parquet"
        ) from error


def _column_at(content: bytes, line_start: int, offset: int) -> str:
    header = content.split(b"\n", 1)[0].decode("utf-8-sig", errors="backslashreplace").strip()
    names = [name.strip('"') for name in header.split(",")]
    before = content[line_start:offset].decode("latin-1")
    place = sum(1 for part in before.split('"')[::2] for mark in part if mark == ",")
    return names[min(place, len(names) - 1)]


def _require_columns(path: Path, found: list[str], wanted: list[str]) -> None:
    missing = [name for name in wanted if name not in found]
    if missing:
        raise DataError(f"{path}: columns {missing} are missing; it has {found}")
    repeated = [name for name in wanted if found.count(name) > 1]
    if repeated:
        raise DataError(f"{path}: columns {repeated} are there more than once; it has {found}")


def _cast(column: pa.ChunkedArray, kind: pa.DataType | None, where: str) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kind is None or column.type == kind:
        return column
    if pa.types.is_string(kind) and pa.types.is_floating(column.type):
        raise DataError(
            f"{where}: a categorical or string column holds {column.type}; floating-point numbers "
            "have no exact text, store integers or text"
        )
    if pa.types.is_integer(kind) and pa.types.is_floating(column.type):
        raise DataError(f"{where}: expected {kind}, got {column.type}, which mangles large values")
    if pa.types.is_temporal(column.type) and not pa.types.is_string(kind):
        raise DataError(f"{where}: expected {kind}, got {column.type}; store numbers or text")
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        row = _first_bad(column, kind)
        if row is None:
            raise DataError(f"{where}: {error}") from error
        hint = "; for a missing value leave the field empty" if _is_mark(column[row]) else ""
        raise DataError(
            f"{where}, row {row}: expected {kind}, got {column[row].as_py()!r}{hint}"
        ) from error


def _first_bad(column: pa.ChunkedArray, kind: pa.DataType) -> int | None:
    """The first row that cannot be cast, by halves; None if it is not about one row."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        if _can_cast(column.slice(low, middle - low), kind):
            low = middle
        else:
            high = middle
    is_found = high > low and not _can_cast(column.slice(low, 1), kind)
    return low if is_found else None


def _can_cast(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        column.cast(kind)
    except pa.ArrowException:
        return False
    return True


def _is_mark(value: pa.Scalar) -> bool:
    return str(value).strip().lower() in {"", "na", "n/a", "null", "none", "nan", "-"}
