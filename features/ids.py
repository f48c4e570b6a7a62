"""Ids: exact, and the same 64-bit key for an id everywhere.

An int64 id is its own key. A string id's key is the first eight bytes of its BLAKE2b digest, read
as a signed little-endian integer, so it is the same in every process and on every machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.arrays import IntArray
from features.errors import DataError

IdDtype = Literal["int64", "string"]

_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1


def to_key(value: int | str, dtype: IdDtype) -> int:
    """Give the key of one id.

    Args:
        value: an int64 id may also come as its decimal text (JSON cannot hold every int64).
        dtype: what the schema says of the id.

    Raises:
        DataError: an empty or wrong-typed id, or one outside int64.
    """
    if dtype == "string":
        if not isinstance(value, str) or not value:
            raise DataError(f"id: expected a non-empty string, got {value!r}")
        digest = hashlib.blake2b(value.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little", signed=True)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise DataError(f"id: expected an int64, got {value!r}")
    try:
        number = int(value)
    except ValueError:
        raise DataError(f"id: expected an int64, got {value!r}") from None
    if not _MIN_INT64 <= number <= _MAX_INT64:
        raise DataError(f"id: expected an int64, got {value!r}, which does not fit")
    return number


def to_keys(
    values: pa.Array | pa.ChunkedArray | Sequence[Any], dtype: IdDtype, *, where: str = "ids"
) -> IntArray:
    """Give the keys of a column of ids.

    Raises:
        DataError: null or empty ids, or a column of another type, with the first row numbers.
    """
    column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    if column.null_count:
        rows = np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False))
        raise DataError(
            f"{where}: {column.null_count} ids are missing; first rows {rows[:5].tolist()}"
        )
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
    unique = pc.unique(column)
    hashed = np.fromiter(
        (to_key(text, "string") for text in unique.to_pylist()), dtype=np.int64, count=len(unique)
    )
    places = np.asarray(pc.index_in(column, value_set=unique), dtype=np.int64)
    return hashed[places]
