"""Ids: exact, and the same 64-bit key for an id everywhere.

An int64 id is its own key. A string id's key is the first eight bytes of its BLAKE2b digest, read
as a signed little-endian integer, so it is the same in every process and on every machine.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.arrays import IntArray
from features.errors import BadRows, DataError

IdDtype = Literal["int64", "string"]

_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
# Python's own int() would also take "1_000", " 7" and digits of other scripts.
_DECIMAL = re.compile(r"-?[0-9]{1,20}")


def to_key(value: int | str, dtype: IdDtype) -> int:
    """Give the key of one id.

    Args:
        value: an int64 id may also come as its decimal text (JSON cannot hold every int64).
        dtype: what the schema says of the id.

    Raises:
        DataError: an empty or wrong-typed id, or one outside int64.
    """
    if dtype == "string":
        return _hash(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise DataError(f"id: expected an int64, got {value!r}")
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        raise DataError(f"id: expected an int64, got {value[:40]!r}")
    number = int(value)
    if not _MIN_INT64 <= number <= _MAX_INT64:
        raise DataError("id: expected an int64, got a number that does not fit 64 bits")
    return number


def _hash(value: object) -> int:
    if not isinstance(value, str) or not value:
        raise DataError(f"id: expected a non-empty string, got {value!r}")
    try:
        text = value.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"id: expected valid Unicode, got {value!r}") from error
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def to_keys(
    values: pa.Array | pa.ChunkedArray | Sequence[Any], dtype: IdDtype, *, where: str = "ids"
) -> IntArray:
    """Give the keys of a column of ids.

    Raises:
        BadRows: null or empty ids.
        DataError: a column of another type.
    """
    column = _as_column(values, where)
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    if column.null_count:
        raise _missing(pc.is_null(column), where)
    if not len(column):
        return np.zeros(0, dtype=np.int64)
    if dtype == "int64":
        if not pa.types.is_integer(column.type):
            raise DataError(f"{where}: expected int64 ids, got a column of {column.type}")
        try:
            keys: IntArray = np.asarray(pc.cast(column, pa.int64()), dtype=np.int64)
        except pa.ArrowInvalid as error:
            raise DataError(f"{where}: {error}") from error
        return keys
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise DataError(f"{where}: expected string ids, got a column of {column.type}")
    is_empty = pc.equal(column, "")
    if pc.any(is_empty).as_py():
        raise _missing(is_empty, where)
    unique = pc.unique(column)
    hashed = np.fromiter(map(_hash, unique.to_pylist()), dtype=np.int64, count=len(unique))
    places = np.asarray(pc.index_in(column, value_set=unique), dtype=np.int64)
    return hashed[places]


def _as_column(
    values: pa.Array | pa.ChunkedArray | Sequence[Any], where: str
) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    try:
        return pa.array(values)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise DataError(f"{where}: {error}") from error


def _missing(mask: pa.Array | pa.ChunkedArray, where: str) -> BadRows:
    return BadRows(where, "ids are missing", np.flatnonzero(np.asarray(mask, dtype=bool)).tolist())
