"""Blobs of one vector each, packed and unpacked many at a time.

The same bytes as `features.packed` describes, for pairs and aggregates, of which a request reads
hundreds: fields are compared as columns, and only bytes that do not fit are looked at one by one,
for their reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray, IntArray
from features.errors import CodecError
from features.packed import (
    DTYPE_CODES,
    LAYOUT_VERSION,
    MAGIC,
    BlobKind,
    Missing,
    MissingReason,
    VectorBlob,
    VectorDtype,
    checksum,
    dequantise,
    pack_blob,
    quantise,
    space_bytes,
    unpack_blob,
    vector_bytes,
)


@dataclass(frozen=True, kw_only=True)
class RowFormat:
    """What one-vector blobs of one kind look like."""

    kind: BlobKind
    space_id: str
    dim: int
    dtype: VectorDtype


@dataclass(frozen=True, kw_only=True, eq=False)
class VectorRows:
    """One row for each value that was unpacked.

    Shapes:
        at_ms, keys: (n,), int64; -1 and 0 where missing.
        z: (n, d), float32; zeros where missing.
        reasons: n entries; None where there is a vector.
    """

    at_ms: IntArray
    keys: IntArray
    z: FloatArray
    reasons: list[MissingReason | None]

    @property
    def is_present(self) -> npt.NDArray[np.bool_]:
        """(n,), bool; which rows have a vector."""
        return np.array([reason is None for reason in self.reasons], dtype=np.bool_)


def pack_rows(
    form: RowFormat, *, owners: IntArray, at_ms: IntArray, keys: IntArray, z: FloatArray
) -> list[bytes]:
    """Pack n vectors into n blobs.

    Shapes:
        owners, at_ms, keys: (n,), int64.
        z: (n, d), float32.

    Raises:
        CodecError: the shape of z does not fit, and as `pack_blob`.
    """
    if z.shape != (len(at_ms), form.dim):
        raise CodecError(f"rows to pack: expected z ({len(at_ms)}, {form.dim}), got {z.shape}")
    if not len(at_ms):
        return []
    # One of them by the definition, which makes the header, and the rest in its image.
    first = VectorBlob(
        kind=form.kind,
        space_id=form.space_id,
        owner=int(owners[0]),
        at_ms=at_ms[:1],
        keys=keys[:1],
        z=z[:1],
    )
    rows = np.frombuffer(pack_blob(first, form.dtype) * len(at_ms), _row_dtype(form)).copy()
    rows["owner"], rows["newest"], rows["at_ms"], rows["key"] = owners, at_ms, at_ms, keys
    rows["z"] = quantise(z, form.dtype)
    rows["crc"] = [checksum(row) for row in _cut(rows)]
    return _cut(rows)


def unpack_rows(values: Sequence[bytes | None], form: RowFormat, *, owners: IntArray) -> VectorRows:
    """Give the vectors in n stored values, or why there are none. Never raises on stored bytes.

    Shapes:
        owners: (n,), int64; expected owner of each.
    """
    row_dtype = _row_dtype(form)
    size = row_dtype.itemsize
    candidates = [i for i, value in enumerate(values) if value is not None and len(value) == size]
    packed = [values[i] or b"" for i in candidates]
    rows = np.frombuffer(b"".join(packed), row_dtype)
    at = np.array(candidates, dtype=np.int64)
    is_good = _is_as_expected(rows, form, owners[at])
    is_good &= rows["crc"] == np.array([checksum(value) for value in packed], dtype=np.uint32)
    z = dequantise(np.ascontiguousarray(rows["z"]), form.dtype, dim=form.dim)
    is_good &= (np.abs(z) <= 1).all(axis=1)
    good = at[is_good]
    found = VectorRows(
        at_ms=np.full(len(values), -1, dtype=np.int64),
        keys=np.zeros(len(values), dtype=np.int64),
        z=np.zeros((len(values), form.dim), dtype=np.float32),
        reasons=[None] * len(values),
    )
    found.at_ms[good], found.keys[good] = rows["at_ms"][is_good], rows["key"][is_good]
    found.z[good] = z[is_good]
    for i in set(range(len(values))).difference(good.tolist()):
        found.reasons[i] = _why_missing(values[i], form, int(owners[i]))
    return found


def _row_dtype(form: RowFormat) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("magic", "S4"),
            ("layout", "u1"),
            ("kind", "u1"),
            ("dtype", "u1"),
            ("zero", "u1"),
            ("dim", "<u2"),
            ("count", "<u2"),
            ("crc", "<u4"),
            ("newest", "<i8"),
            ("owner", "<i8"),
            ("space", "<u8"),
            ("at_ms", "<i8"),
            ("key", "<i8"),
            ("z", "u1", (vector_bytes(form.dim, form.dtype),)),
        ]
    )


def _is_as_expected(
    rows: npt.NDArray[np.void], form: RowFormat, owners: IntArray
) -> npt.NDArray[np.bool_]:
    space = int.from_bytes(space_bytes(form.space_id), "little")
    expected = {
        "magic": MAGIC,
        "layout": LAYOUT_VERSION,
        "kind": int(form.kind),
        "dtype": DTYPE_CODES[form.dtype],
        "zero": 0,
        "dim": form.dim,
        "count": 1,
        "owner": owners,
        "space": np.uint64(space),
    }
    is_good: npt.NDArray[np.bool_] = rows["newest"] == rows["at_ms"]
    for name, value in expected.items():
        is_good = is_good & (rows[name] == value)
    return is_good


def _why_missing(value: bytes | None, form: RowFormat, owner: int) -> MissingReason:
    found = unpack_blob(
        value,
        kind=form.kind,
        space_id=form.space_id,
        owner=owner,
        dim=form.dim,
        dtype=form.dtype,
    )
    assert isinstance(found, Missing), "columns and blob disagree on what is valid"
    return found.reason


def _cut(rows: npt.NDArray[np.void]) -> list[bytes]:
    size, whole = rows.dtype.itemsize, rows.tobytes()
    return [whole[start : start + size] for start in range(0, len(whole), size)]
