"""Tables from CSV and Parquet, with the types that the schema says and no others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from features.errors import DataError
from features.schema import FeatureSpec, IdSpec
from features.times import TimeSpec

ColumnTypes = Mapping[str, pa.DataType | None]


def id_type(spec: IdSpec) -> pa.DataType:
    """The Arrow type of an id column."""
    return pa.int64() if spec.dtype == "int64" else pa.string()


def feature_type(feature: FeatureSpec) -> pa.DataType:
    """The Arrow type of a feature's column: categories are text, so 007 and 7 stay apart."""
    return pa.string() if feature.kind == "categorical" else pa.float64()


def time_type(spec: TimeSpec) -> pa.DataType | None:
    """The Arrow type of a time column; None leaves text and timestamps as they are."""
    return None if spec.unit == "text" else pa.int64()


def read_table(path: Path, types: ColumnTypes) -> pa.Table:
    """Read the named columns of a CSV or Parquet file.

    Args:
        path: ends in .csv or .parquet.
        types: column name to type; a None type takes the column as it is (text in a CSV).

    Raises:
        DataError: the file cannot be read, lacks a column, or holds a value of another type.
    """
    try:
        if path.suffix == ".csv":
            table = _read_csv(path, types)
        elif path.suffix == ".parquet":
            table = pq.read_table(path, columns=_present(path, types))
        else:
            raise DataError(f"{path}: expected a .csv or .parquet file")
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: {error}") from error
    columns = {
        name: _cast(table[name], kind, f"{path}, column {name!r}") for name, kind in types.items()
    }
    return pa.table(columns)


def _present(path: Path, types: ColumnTypes) -> list[str]:
    _require_columns(path, pq.read_schema(path).names, types)
    return list(types)


def _read_csv(path: Path, types: ColumnTypes) -> pa.Table:
    with pyarrow.csv.open_csv(path) as reader:
        _require_columns(path, reader.schema.names, types)
    convert = pyarrow.csv.ConvertOptions(
        include_columns=list(types),
        column_types={name: kind or pa.string() for name, kind in types.items()},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return pyarrow.csv.read_csv(path, convert_options=convert)


def _require_columns(path: Path, found: list[str], types: ColumnTypes) -> None:
    missing = [name for name in types if name not in found]
    if missing:
        raise DataError(f"{path}: columns {missing} are missing; it has {found}")


def _cast(column: pa.ChunkedArray, kind: pa.DataType | None, where: str) -> pa.ChunkedArray:
    if kind is None or column.type == kind:
        return column
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(kind) and pa.types.is_floating(column.type):
        raise DataError(
            f"{where}: a categorical or string column holds {column.type}; floating-point numbers "
            "have no exact text, store integers or text"
        )
    if pa.types.is_integer(kind) and pa.types.is_floating(column.type):
        raise DataError(f"{where}: expected {kind}, got {column.type}, which mangles large values")
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        raise DataError(f"{where}: {error}") from error
