"""Stored bytes of one space to vectors and back, with the refusals counted.

Must not know: stores. `features.vectorstore` says which bytes to get.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from features.arrays import FloatArray, IntArray
from features.keys import pair_field
from features.packed import (
    BlobKind,
    Missing,
    MissingReason,
    VectorBlob,
    VectorDtype,
    pack_blob,
    unpack_blob,
)
from features.packedrows import RowFormat, VectorRows, pack_rows, unpack_rows

Refusals = Counter[MissingReason]


@dataclass(frozen=True, kw_only=True, eq=False)
class PairVectors:
    """Pair vectors, newest first for each user and by item key among equal times.

    Shapes:
        user_keys, item_keys, at_ms: (P,), int64; Unix ms UTC.
        z: (P, d), float32.
    """

    user_keys: IntArray
    item_keys: IntArray
    at_ms: IntArray
    z: FloatArray


@dataclass(frozen=True, kw_only=True)
class VectorCodec:
    """What bytes of one space look like.

    Every method that reads adds to `refused` what was there and could not be used.
    """

    space_id: str
    dim: int
    dtype: VectorDtype

    def pack(self, blob: VectorBlob) -> bytes:
        """Pack a blob of this space."""
        return pack_blob(blob, self.dtype)

    def memory(self, data: bytes | None, owner: int, refused: Refusals) -> VectorBlob | Missing:
        """Unpack a memory."""
        found = unpack_blob(
            data,
            kind=BlobKind.MEMORY,
            space_id=self.space_id,
            owner=owner,
            dim=self.dim,
            dtype=self.dtype,
        )
        if isinstance(found, Missing):
            _count([found.reason], refused)
        return found

    def aggregates(
        self, values: Sequence[bytes | None], owners: IntArray, refused: Refusals
    ) -> VectorRows:
        """Unpack aggregates, one for each owner."""
        rows = unpack_rows(values, self._form(BlobKind.AGGREGATE), owners=owners)
        _count(rows.reasons, refused)
        return rows

    def pair_bytes(
        self, *, user_keys: IntArray, item_keys: IntArray, at_ms: IntArray, z: FloatArray
    ) -> list[bytes]:
        """Pack pairs, one value for each."""
        form = self._form(BlobKind.PAIR)
        return pack_rows(form, owners=user_keys, at_ms=at_ms, keys=item_keys, z=z)

    def pairs(
        self, users: Sequence[int], hashes: Sequence[Mapping[bytes, bytes]], refused: Refusals
    ) -> PairVectors:
        """Unpack hashes of pairs, one for each user, laid end to end."""
        user_keys = np.repeat(np.array(users, dtype=np.int64), [len(fields) for fields in hashes])
        names = [name for fields in hashes for name in fields]
        values = [value for fields in hashes for value in fields.values()]
        rows = unpack_rows(values, self._form(BlobKind.PAIR), owners=user_keys)
        for i, (name, key) in enumerate(zip(names, rows.keys.tolist(), strict=True)):
            if rows.reasons[i] is None and name != pair_field(key).encode():
                rows.reasons[i] = MissingReason.OWNER
        _count(rows.reasons, refused)
        present = np.flatnonzero(rows.is_present)
        order = present[np.lexsort((rows.keys[present], -rows.at_ms[present], user_keys[present]))]
        return PairVectors(
            user_keys=user_keys[order],
            item_keys=rows.keys[order],
            at_ms=rows.at_ms[order],
            z=rows.z[order],
        )

    def _form(self, kind: BlobKind) -> RowFormat:
        return RowFormat(kind=kind, space_id=self.space_id, dim=self.dim, dtype=self.dtype)


def _count(reasons: Iterable[MissingReason | None], refused: Refusals) -> None:
    refused.update(reason for reason in reasons if reason not in (None, MissingReason.ABSENT))
