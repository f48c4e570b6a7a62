"""From a file's column to the type that the schema says: exact, or an error with its rows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from features.errors import BadRows, DataError

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_INT64 = range(-(2**63), 2**63)


def cast_column(column: pa.ChunkedArray, kind: pa.DataType | None, where: str) -> pa.ChunkedArray:
    """Give a column in another type without changing what its values mean.

    Args:
        column: as the file has it.
        kind: the type; None leaves it as it is, dictionaries apart.
        where: file and column, for errors.

    Raises:
        BadRows: some values do not fit the type.
        DataError: no value of the column's type does without being mangled.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kind is None or column.type == kind or pa.types.is_null(column.type):
        return column if kind is None else column.cast(kind)
    _require_castable(column.type, kind, where)
    if pa.types.is_list(kind):
        return _lists(column, kind, where)
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        if not _is_text(column.type):
            raise DataError(f"{where}: {error}") from error
        return _from_untidy_text(column, kind, where)


def _require_castable(found: pa.DataType, kind: pa.DataType, where: str) -> None:
    if pa.types.is_string(kind) and pa.types.is_floating(found):
        raise DataError(
            f"{where}: a categorical or string column holds {found}; floating-point numbers "
            "have no exact text, store integers or text"
        )
    if pa.types.is_integer(kind) and pa.types.is_floating(found):
        raise DataError(f"{where}: expected {kind}, got {found}, which mangles large values")
    if pa.types.is_temporal(found) and not pa.types.is_string(kind):
        raise DataError(f"{where}: expected {kind}, got {found}; store numbers or text")


def _from_untidy_text(column: pa.ChunkedArray, kind: pa.DataType, where: str) -> pa.ChunkedArray:
    """Take numbers with blanks around them, and a quoted nothing as missing."""
    trimmed = pc.utf8_trim_whitespace(column)
    trimmed = pc.if_else(pc.equal(trimmed, ""), None, trimmed)
    try:
        return trimmed.cast(kind)
    except pa.ArrowException as error:
        rows = [row for row, text in enumerate(trimmed.to_pylist()) if not _fits(text, kind)]
        if not rows:
            raise DataError(f"{where}: {error}") from error
        example = column[rows[0]].as_py()
        hint = _hint(example)
        raise BadRows(
            where, f"values are not {kind}", rows, example=repr(example), hint=hint
        ) from error


def _fits(text: str | None, kind: pa.DataType) -> bool:
    if text is None:
        return True
    if pa.types.is_integer(kind):
        return bool(_INTEGER.fullmatch(text)) and int(text) in _INT64
    try:
        pa.scalar(text).cast(kind)
    except pa.ArrowException:
        return False
    return True


def _lists(column: pa.ChunkedArray, kind: pa.DataType, where: str) -> pa.ChunkedArray:
    """Dense vectors: lists of numbers, or text such as `0.5;-1;2`."""
    if _is_text(column.type):
        column = pc.split_pattern(pc.utf8_trim_whitespace(column), ";")
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        rows = list(_rows_without_numbers(column))
        if not rows:
            raise DataError(f"{where}: expected lists of numbers, got {column.type}") from error
        example = repr(column[rows[0]].as_py())
        raise BadRows(where, "values are not lists of numbers", rows, example=example) from error


def _rows_without_numbers(column: pa.ChunkedArray) -> Iterator[int]:
    for row, values in enumerate(column.to_pylist()):
        if not all(_fits(str(value), pa.float64()) for value in values or ()):
            yield row


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _hint(example: object) -> str:
    if _is_mark(example):
        return "for a missing value leave the field empty"
    if str(example).strip().lower() in {"true", "false", "yes", "no"}:
        return "write yes and no as 1 and 0"
    return ""


def _is_mark(value: object) -> bool:
    return str(value).strip().lower() in {"", "na", "n/a", "null", "none", "nan", "-"}
