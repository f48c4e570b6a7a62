"""Packed vectors: the bytes that carry what the foundation model knows, defined in NumPy.

A blob is a header and `count` entries laid out by column, everything little-endian:

    offset  size  field
         0     4  magic, b"GEMV"
         4     1  layout version, 1
         5     1  kind: 1 memory, 2 pair, 3 aggregate
         6     1  dtype: 1 int4, 2 int8, 3 fp16
         7     1  zero
         8     2  dim, unsigned
        10     2  count, unsigned, at least 1
        12     4  CRC-32 of all bytes but these four
        16     8  newest event time, signed Unix ms (a store's script reads it here)
        24     8  owner, signed: the canonical key of the user or item the blob belongs to
        32     8  space_id, its 16 hex digits as bytes
        40   8*n  event times, signed Unix ms, newest first
         .   8*n  keys, signed
         .   b*n  vectors, b = vector_bytes(dim, dtype)

Values of a vector:

    int4  q = clamp(round_half_even(8 z), -8, 7), value q / 8; stored as q + 8, two per byte, even
          positions in the low nibble; an odd dim leaves the last high nibble 0
    int8  q = clamp(round_half_even(127 z), -127, 127), value q / 127; two's complement
    fp16  IEEE half precision, clamped to [-1, 1]

Bytes that do not match what the reader expects are `Missing`, with a reason to count. They are
never an exception and never a guess, because bytes in a store outlive the program that wrote them.

Errors: CodecError, for values that a caller wants to pack and cannot be.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Literal

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray, IntArray
from features.errors import CodecError

VectorDtype = Literal["int4", "int8", "fp16"]
ByteArray = npt.NDArray[np.uint8]

MAGIC = b"GEMV"
LAYOUT_VERSION = 1
NEWEST_AT_OFFSET = 16
HEADER_BYTES = 40
MAX_COUNT = MAX_DIM = 2**16 - 1

_HEADER = struct.Struct("<4sBBBBHHIqq8s")
_CRC_OFFSET, _CRC_END = 12, 16
_ENTRY_BYTES = 16
DTYPE_CODES: dict[VectorDtype, int] = {"int4": 1, "int8": 2, "fp16": 3}
_DTYPE_NAMES = {code: name for name, code in DTYPE_CODES.items()}
_SPACE_ID = re.compile("[0-9a-f]{16}")


class BlobKind(IntEnum):
    """What the entries of a blob are."""

    MEMORY = 1
    """Newest vectors of one owner; keys are items (of a user) or users (of an item)."""
    PAIR = 2
    """Exactly one vector, of a user and the item in its key."""
    AGGREGATE = 3
    """Exactly one vector, a mean; its key is the number of vectors in it."""


class MissingReason(Enum):
    """Why there is no vector to use."""

    ABSENT = "absent"
    BAD_MAGIC = "bad_magic"
    LAYOUT = "layout"
    KIND = "kind"
    SPACE = "space"
    OWNER = "owner"
    DTYPE = "dtype"
    DIM = "dim"
    TRUNCATED = "truncated"
    CHECKSUM = "checksum"
    CONTENT = "content"
    """Intact and addressed rightly, but with values that no writer of this layout writes."""


@dataclass(frozen=True)
class Missing:
    """Nothing usable, and why."""

    reason: MissingReason


@dataclass(frozen=True, kw_only=True, eq=False)
class VectorBlob:
    """Vectors of one owner in one space, newest first.

    Shapes:
        at_ms, keys: (n,), int64; Unix ms UTC, and see `BlobKind` for the meaning of keys.
        z: (n, d), float32 in [-1, 1].
    """

    kind: BlobKind
    space_id: str
    owner: int
    at_ms: IntArray
    keys: IntArray
    z: FloatArray

    def __len__(self) -> int:
        return len(self.at_ms)


def vector_bytes(dim: int, dtype: VectorDtype) -> int:
    """Size of one packed vector without its time and key."""
    if dtype == "int4":
        return (dim + 1) // 2
    return dim if dtype == "int8" else 2 * dim


def blob_bytes(dim: int, dtype: VectorDtype, count: int) -> int:
    """Size of a blob."""
    return HEADER_BYTES + count * (_ENTRY_BYTES + vector_bytes(dim, dtype))


def quantise(z: FloatArray, dtype: VectorDtype) -> ByteArray:
    """Pack the values of vectors.

    Shapes:
        z: (n, d), float32; clamped to [-1, 1].
        returns: (n, vector_bytes(d, dtype)), uint8.

    Raises:
        CodecError: a value is not finite, or the dtype is unknown.
    """
    _require_dtype(dtype)
    z = np.ascontiguousarray(z, dtype=np.float32)
    if not np.isfinite(z).all():
        row = int(np.flatnonzero(~np.isfinite(z).all(axis=1))[0])
        raise CodecError(f"vector {row} of {len(z)}: expected finite values, got {z[row].tolist()}")
    packed: ByteArray
    if dtype == "fp16":
        packed = np.clip(z, -1, 1).astype("<f2").view(np.uint8)
    elif dtype == "int8":
        packed = np.clip(np.rint(z * np.float32(127)), -127, 127).astype(np.int8).view(np.uint8)
    else:
        levels = (np.clip(np.rint(z * np.float32(8)), -8, 7) + 8).astype(np.uint8)
        if z.shape[1] % 2:
            levels = np.pad(levels, ((0, 0), (0, 1)))
        packed = levels[:, 0::2] | (levels[:, 1::2] << 4)
    return packed


def dequantise(packed: ByteArray, dtype: VectorDtype, *, dim: int) -> FloatArray:
    """Give the values of packed vectors; quantising them again gives the same bytes.

    Shapes:
        packed: (n, vector_bytes(dim, dtype)), uint8.
        returns: (n, dim), float32.

    Raises:
        CodecError: the width does not fit the dim and dtype.
    """
    _require_dtype(dtype)
    if packed.ndim != 2 or packed.shape[1] != vector_bytes(dim, dtype):
        raise CodecError(
            f"packed {dtype} vectors of dim {dim}: expected (n, {vector_bytes(dim, dtype)}) bytes, "
            f"got {packed.shape}"
        )
    if dtype == "fp16":
        return np.ascontiguousarray(packed).view("<f2").astype(np.float32)
    if dtype == "int8":
        return packed.view(np.int8).astype(np.float32) / np.float32(127)
    levels = np.empty((len(packed), 2 * packed.shape[1]), dtype=np.float32)
    levels[:, 0::2] = packed & 15
    levels[:, 1::2] = packed >> 4
    return (levels[:, :dim] - np.float32(8)) / np.float32(8)


def pack_blob(blob: VectorBlob, dtype: VectorDtype) -> bytes:
    """Pack a blob into the bytes described at the top of this module.

    Raises:
        CodecError: no entries or too many, shapes that differ, entries not newest first, more than
            one entry in a pair or aggregate, a space_id that is not 16 hex digits, or a value that
            is not finite.
    """
    _require_packable(blob)
    body = b"".join(
        (
            blob.at_ms.astype("<i8", copy=False).tobytes(),
            blob.keys.astype("<i8", copy=False).tobytes(),
            quantise(blob.z, dtype).tobytes(),
        )
    )
    fields = (DTYPE_CODES[dtype], 0, blob.z.shape[1], len(blob))
    names = (int(blob.at_ms[0]), blob.owner, space_bytes(blob.space_id))
    header = _HEADER.pack(MAGIC, LAYOUT_VERSION, blob.kind, *fields, 0, *names)
    crc = checksum(header + body)
    return b"".join((header[:_CRC_OFFSET], crc.to_bytes(4, "little"), header[_CRC_END:], body))


def unpack_blob(
    data: bytes | None,
    *,
    kind: BlobKind,
    space_id: str,
    owner: int,
    dim: int,
    dtype: VectorDtype,
) -> VectorBlob | Missing:
    """Give the vectors in stored bytes, or why there are none. Never raises on stored bytes.

    Raises:
        CodecError: the expected space_id or dtype is not one.
    """
    _require_dtype(dtype)
    space = space_bytes(space_id)
    if data is None:
        return Missing(MissingReason.ABSENT)
    reason = _find_damage(data)
    if reason is not None:
        return Missing(reason)
    _, _, got_kind, code, _, got_dim, count, _, newest, got_owner, got_space = _HEADER.unpack_from(
        data
    )
    for is_wrong, why in (
        (got_kind != kind, MissingReason.KIND),
        (got_space != space, MissingReason.SPACE),
        (got_owner != owner, MissingReason.OWNER),
        (code != DTYPE_CODES[dtype], MissingReason.DTYPE),
        (got_dim != dim, MissingReason.DIM),
    ):
        if is_wrong:
            return Missing(why)
    at_ms, keys, packed = _split_body(data, count)
    z = dequantise(packed, dtype, dim=dim)
    if count > 1 and kind is not BlobKind.MEMORY:
        return Missing(MissingReason.CONTENT)
    if at_ms[0] != newest or (at_ms[1:] > at_ms[:-1]).any() or not _has_valid_values(z):
        return Missing(MissingReason.CONTENT)
    return VectorBlob(kind=kind, space_id=space_id, owner=owner, at_ms=at_ms, keys=keys, z=z)


def newest_at(data: bytes) -> int:
    """Read the newest event time of a packed blob as a store's script does, unchecked."""
    return int.from_bytes(data[NEWEST_AT_OFFSET : NEWEST_AT_OFFSET + 8], "little", signed=True)


def checksum(data: bytes) -> int:
    """CRC-32 of a blob's bytes without the four that hold the CRC."""
    return zlib.crc32(memoryview(data)[_CRC_END:], zlib.crc32(data[:_CRC_OFFSET]))


def space_bytes(space_id: str) -> bytes:
    """Give the 8 bytes of a space_id.

    Raises:
        CodecError: it is not 16 lower-case hex digits.
    """
    if not _SPACE_ID.fullmatch(space_id):
        raise CodecError(f"space_id: expected 16 lower-case hex digits, got {space_id!r}")
    return bytes.fromhex(space_id)


def _find_damage(data: bytes) -> MissingReason | None:
    """Check all that can be checked without knowing what to expect."""
    if len(data) < HEADER_BYTES:
        has_magic = data[:4] == MAGIC[: len(data)]
        return MissingReason.TRUNCATED if has_magic else MissingReason.BAD_MAGIC
    magic, layout, _, code, zero, dim, count, crc, _, _, _ = _HEADER.unpack_from(data)
    if magic != MAGIC:
        return MissingReason.BAD_MAGIC
    if layout != LAYOUT_VERSION:
        return MissingReason.LAYOUT
    if code not in _DTYPE_NAMES:
        return MissingReason.DTYPE
    num_lacking = blob_bytes(dim, _DTYPE_NAMES[code], count) - len(data)
    if num_lacking <= 0 and crc == checksum(data):
        is_laid_out = zero == 0 and count > 0 and num_lacking == 0
        return None if is_laid_out else MissingReason.LAYOUT
    return MissingReason.TRUNCATED if num_lacking > 0 else MissingReason.CHECKSUM


def _split_body(data: bytes, count: int) -> tuple[IntArray, IntArray, ByteArray]:
    at_ms = np.frombuffer(data, "<i8", count, HEADER_BYTES).astype(np.int64)
    keys = np.frombuffer(data, "<i8", count, HEADER_BYTES + 8 * count).astype(np.int64)
    packed = np.frombuffer(data, np.uint8, offset=HEADER_BYTES + _ENTRY_BYTES * count)
    return at_ms, keys, packed.reshape(count, -1)


def _has_valid_values(z: FloatArray) -> bool:
    # Written so that not-a-number fails it too.
    return bool((np.abs(z) <= 1).all())


def _require_dtype(dtype: str) -> None:
    if dtype not in DTYPE_CODES:
        raise CodecError(f"vector dtype: expected one of {sorted(DTYPE_CODES)}, got {dtype!r}")


def _require_packable(blob: VectorBlob) -> None:
    where = f"{blob.kind.name.lower()} blob of owner {blob.owner}"
    n = len(blob.at_ms)
    if blob.keys.shape != (n,) or blob.z.ndim != 2 or blob.z.shape[0] != n:
        raise CodecError(
            f"{where}: expected keys ({n},) and z ({n}, d) like at_ms ({n},), "
            f"got {blob.keys.shape} and {blob.z.shape}"
        )
    most = MAX_COUNT if blob.kind is BlobKind.MEMORY else 1
    if not 1 <= n <= most:
        raise CodecError(f"{where}: expected 1 to {most} entries, got {n}")
    if not 1 <= blob.z.shape[1] <= MAX_DIM:
        raise CodecError(f"{where}: expected a dim of 1 to {MAX_DIM}, got {blob.z.shape[1]}")
    if (blob.at_ms[1:] > blob.at_ms[:-1]).any():
        raise CodecError(f"{where}: expected entries newest first, got times {blob.at_ms.tolist()}")
