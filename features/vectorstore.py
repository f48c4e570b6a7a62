"""Vectors of one space in a store: the one reader and the one writer of `features.keys`.

The precompute worker writes and the ranker reads through this class, so they cannot disagree about
keys, layouts or rules. Reading is one round trip a request. Writing is by rows, many users or items
in one batch, and safe to repeat and to do from several processes at once:

    memories     read, merge, swap by content; who loses the race reads again and merges again
    pairs        put each unless a newer one of that item is held, trim to the newest
    aggregates   recomputed from what is held and swapped by content, so that the last writer has
                 seen everything that the others wrote

Outcomes depend on the set of events only, not on their order, batching or repetition.

Errors: those of the store; CodecError for vectors that cannot be packed; StoreError if other
writers win every race.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from features import keys
from features.arrays import FloatArray, IntArray
from features.errors import CodecError, StoreError
from features.memory import mean_vector, merge_memory, newest_first, snap
from features.packed import BlobKind, Missing, MissingReason, VectorBlob, VectorDtype
from features.store.protocol import Newest, Store, Swap
from features.vectorcodec import PairVectors, Refusals, VectorCodec

BLOCKS = frozenset({"memory", "pairs"})
MAX_ATTEMPTS = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredRequest:
    """What the store holds for one request.

    Shapes:
        user_aggregate: vector (d,), float32, and its newest time; None where there is none.
        item_aggregates: vectors (N, d), float32, and newest times (N,), int64, -1 where none.

    Attributes:
        profile: the user's own features, for `features.profiles`.
        num_refused: values that were there and could not be used, by reason.
    """

    memory: VectorBlob | Missing
    pairs: PairVectors
    user_aggregate: tuple[FloatArray, int] | None
    item_aggregates: tuple[FloatArray, IntArray]
    profile: bytes | None
    num_refused: dict[MissingReason, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class Written:
    """What became of rows that were to be written.

    Shapes:
        is_held: (n,), bool; False where the row came too late: something newer has its place.

    Attributes:
        num_refused: values in the way that could not be read, by reason; they were replaced.
    """

    is_held: npt.NDArray[np.bool_]
    num_refused: dict[MissingReason, int]


@dataclass(frozen=True)
class VectorStore:
    """Vectors of one space.

    Args:
        space_id: 16 hex digits; vectors of other spaces are missing.
        dtype: how vectors are packed.
        memory_length: entries of a user's memory.
        max_pairs: pairs of a user; the newest stay.
        item_memory_length: vectors of an item that its aggregate is made of.
        hard_ttl_ms: life of a key after its last write, and of a vector inside an aggregate after
            the newest one there. The reader's own rule (`features.lookup`) is by event time.
        ttl_jitter_frac: keys live longer by up to this part, each by its own, so that what was
            written together does not expire together.
        blocks: what `read_request` reads, of "memory" and "pairs".
    """

    store: Store
    space_id: str = field(kw_only=True)
    dim: int = field(kw_only=True)
    dtype: VectorDtype = field(kw_only=True)
    memory_length: int = field(kw_only=True)
    hard_ttl_ms: int = field(kw_only=True)
    ttl_jitter_frac: float = field(kw_only=True, default=0.1)
    max_pairs: int = field(kw_only=True, default=200)
    item_memory_length: int = field(kw_only=True, default=8)
    blocks: frozenset[str] = field(kw_only=True, default=BLOCKS)

    codec: VectorCodec = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.blocks <= BLOCKS:
            raise ValueError(
                f"blocks: expected some of {sorted(BLOCKS)}, got {sorted(self.blocks)}"
            )
        codec = VectorCodec(space_id=self.space_id, dim=self.dim, dtype=self.dtype)
        object.__setattr__(self, "codec", codec)

    def read_request(
        self, user_key: int, item_keys: IntArray, *, timeout_ms: float | None = None
    ) -> StoredRequest:
        """Read all that one request needs, in one round trip.

        Shapes:
            item_keys: (N,), int64; the candidates.

        Raises:
            StoreTimeout, StoreUnavailable: as the store; answer with `unread` then.
        """
        has_pairs, space = "pairs" in self.blocks, self.space_id
        names = [keys.user_features_key(user_key), keys.memory_key(user_key, space)]
        if has_pairs:
            names.append(keys.user_aggregate_key(user_key, space))
            names += [keys.item_aggregate_key(item, space) for item in item_keys.tolist()]
        hashes = [keys.pairs_key(user_key, space)] if has_pairs else []
        reply = self.store.read(names, hashes, timeout_ms=timeout_ms)
        profile, memory_bytes, *mean_bytes = reply.values
        found, refused = self.unread(len(item_keys)), Refusals()
        if "memory" in self.blocks:
            memory = self.codec.memory(memory_bytes, user_key, refused)
            found = replace(found, memory=memory)
        if has_pairs:
            owners = np.concatenate([[user_key], item_keys]).astype(np.int64)
            means = self.codec.aggregates(mean_bytes, owners, refused)
            has_mean = means.reasons[0] is None
            found = replace(
                found,
                pairs=self.codec.pairs([user_key], reply.hashes, refused),
                user_aggregate=(means.z[0], int(means.at_ms[0])) if has_mean else None,
                item_aggregates=(means.z[1:], means.at_ms[1:]),
            )
        return replace(found, profile=profile, num_refused=dict(refused))

    def unread(self, num_items: int) -> StoredRequest:
        """Give the answer of an empty store, for a request that could not read it."""
        none = np.zeros(0, dtype=np.int64)
        z = np.zeros((num_items, self.dim), dtype=np.float32)
        return StoredRequest(
            memory=Missing(MissingReason.ABSENT),
            pairs=PairVectors(user_keys=none, item_keys=none, at_ms=none, z=z[:0]),
            user_aggregate=None,
            item_aggregates=(z, np.full(num_items, -1, dtype=np.int64)),
            profile=None,
            num_refused={},
        )

    def add_memory(
        self, user_keys: IntArray | int, at_ms: IntArray, *, item_keys: IntArray, z: FloatArray
    ) -> Written:
        """Merge vectors into the memories of their users.

        Shapes:
            user_keys: (n,), int64, or one for all.
            at_ms, item_keys: (n,), int64; Unix ms UTC.
            z: (n, d), float32 in [-1, 1].
        """
        rows = self._rows(user_keys, at_ms, item_keys, z)
        return self._merge(rows, keys.memory_key, self.memory_length)

    def add_pairs(
        self,
        user_keys: IntArray | int,
        item_keys: IntArray,
        *,
        at_ms: IntArray | int,
        z: FloatArray,
    ) -> Written:
        """Put pair vectors and bring the aggregates of their users up to date.

        Shapes:
            user_keys, at_ms: (n,), int64, or one for all; Unix ms UTC.
            item_keys: (n,), int64.
            z: (n, d), float32 in [-1, 1].
        """
        rows = self._rows(user_keys, at_ms, item_keys, z)
        values = self.codec.pair_bytes(
            user_keys=rows.owners, item_keys=rows.keys, at_ms=rows.at_ms, z=rows.z
        )
        writes = []
        for owner, item, value in zip(
            rows.owners.tolist(), rows.keys.tolist(), values, strict=True
        ):
            key = keys.pairs_key(owner, self.space_id)
            writes.append(
                Newest(key=key, field=keys.pair_field(item), value=value, ttl_ms=self._ttl_ms(key))
            )
        is_held = self.store.put_newest(writes)
        users = sorted(set(rows.owners.tolist()))
        self.store.trim_newest(
            [keys.pairs_key(user, self.space_id) for user in users], max_fields=self.max_pairs
        )
        refused = Refusals()
        self._converge(users, lambda pending: self._user_means(pending, refused))
        return Written(is_held=np.array(is_held, dtype=np.bool_), num_refused=dict(refused))

    def add_item_vectors(
        self, item_keys: IntArray | int, at_ms: IntArray, *, user_keys: IntArray, z: FloatArray
    ) -> Written:
        """Merge vectors into the memories of their items and bring those aggregates up to date.

        Shapes:
            item_keys: (n,), int64, or one for all.
            at_ms, user_keys: (n,), int64; Unix ms UTC, and whom the item was shown to.
            z: (n, d), float32 in [-1, 1].
        """
        rows = self._rows(item_keys, at_ms, user_keys, z)
        written = self._merge(rows, keys.item_memory_key, self.item_memory_length)
        # What these reads refuse was counted by the merge.
        self._converge(sorted(set(rows.owners.tolist())), self._item_means)
        return written

    def _rows(
        self, owners: IntArray | int, at_ms: IntArray | int, entry_keys: IntArray, z: FloatArray
    ) -> _Rows:
        n = len(entry_keys)
        if z.shape != (n, self.dim):
            raise CodecError(f"vectors to store: expected z ({n}, {self.dim}), got {z.shape}")
        return _Rows(
            owners=np.broadcast_to(np.asarray(owners, dtype=np.int64), n),
            at_ms=np.broadcast_to(np.asarray(at_ms, dtype=np.int64), n),
            keys=entry_keys,
            z=snap(z, self.dtype),
        )

    def _merge(self, rows: _Rows, name_key: Callable[[int, str], str], max_entries: int) -> Written:
        added = {blob.owner: blob for blob in rows.by_owner(self.space_id)}
        merged: dict[int, VectorBlob] = {}
        refused = Refusals()

        def propose(pending: list[int]) -> list[Swap | None]:
            names = [name_key(owner, self.space_id) for owner in pending]
            seen = self.store.read(names).values
            swaps = []
            for owner, key, data in zip(pending, names, seen, strict=True):
                held = self.codec.memory(data, owner, refused)
                old = None if isinstance(held, Missing) else held
                merged[owner] = merge_memory(old, added[owner], max_entries=max_entries)
                swaps.append(self._swap(key, data, merged[owner]))
            return swaps

        self._converge(sorted(added), propose)
        return Written(is_held=rows.is_within(merged), num_refused=dict(refused))

    def _user_means(self, users: list[int], refused: Refusals) -> list[Swap | None]:
        names = [keys.user_aggregate_key(user, self.space_id) for user in users]
        hashes = [keys.pairs_key(user, self.space_id) for user in users]
        # The aggregate is read before the pairs it is made of: if it is still the same at the swap,
        # whoever put a pair after our reading has its own swap ahead.
        seen = self.store.read(names, hashes)
        pairs = self.codec.pairs(users, seen.hashes, refused)
        rows = _Rows(owners=pairs.user_keys, at_ms=pairs.at_ms, keys=pairs.item_keys, z=pairs.z)
        by_user = {blob.owner: blob for blob in rows.by_owner(self.space_id)}
        return [
            self._mean_swap(name, data, by_user.get(user))
            for user, name, data in zip(users, names, seen.values, strict=True)
        ]

    def _item_means(self, items: list[int]) -> list[Swap | None]:
        names = [keys.item_aggregate_key(item, self.space_id) for item in items]
        memories = [keys.item_memory_key(item, self.space_id) for item in items]
        seen = self.store.read([*names, *memories]).values
        swaps = []
        for i, (item, name) in enumerate(zip(items, names, strict=True)):
            held = self.codec.memory(seen[len(items) + i], item, Refusals())
            blob = None if isinstance(held, Missing) else held
            swaps.append(self._mean_swap(name, seen[i], blob))
        return swaps

    def _mean_swap(self, key: str, seen: bytes | None, blob: VectorBlob | None) -> Swap | None:
        if blob is None:
            return None
        return self._swap(key, seen, mean_vector(blob, hard_ttl_ms=self.hard_ttl_ms))

    def _swap(self, key: str, seen: bytes | None, blob: VectorBlob) -> Swap | None:
        value = self.codec.pack(blob)
        if value == seen:
            return None
        return Swap(key=key, expected=seen, value=value, ttl_ms=self._ttl_ms(key))

    def _ttl_ms(self, key: str) -> int:
        # By the key and not by chance, so that a replay is a repeat.
        part = zlib.crc32(key.encode()) / 2**32
        return round(self.hard_ttl_ms * (1 + self.ttl_jitter_frac * part))

    def _converge(
        self, owners: list[int], propose: Callable[[list[int]], list[Swap | None]]
    ) -> None:
        """Propose writes and swap them in until none loses to another writer."""
        for _ in range(MAX_ATTEMPTS):
            swaps = {
                owner: swap
                for owner, swap in zip(owners, propose(owners), strict=True)
                if swap is not None
            }
            is_done = self.store.swap(list(swaps.values()))
            owners = [owner for owner, done in zip(swaps, is_done, strict=True) if not done]
            if not owners:
                return
        raise StoreError(
            f"space {self.space_id}: other writers won {MAX_ATTEMPTS} races for the keys of "
            f"{owners[:3]}; expected a few at most"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rows:
    """Vectors of many owners; shapes (n,) and (n, d)."""

    owners: IntArray
    at_ms: IntArray
    keys: IntArray
    z: FloatArray

    def by_owner(self, space_id: str) -> Iterator[VectorBlob]:
        """Give one memory an owner, entries newest first and each once."""
        order = np.argsort(self.owners, kind="stable")
        owners, starts = np.unique(self.owners[order], return_index=True)
        if not len(owners):
            return
        for owner, rows in zip(owners.tolist(), np.split(order, starts[1:]), strict=True):
            at_ms, entry_keys, z = self.at_ms[rows], self.keys[rows], self.z[rows]
            newest = newest_first(at_ms, entry_keys, z)
            yield VectorBlob(
                kind=BlobKind.MEMORY,
                space_id=space_id,
                owner=owner,
                at_ms=at_ms[newest],
                keys=entry_keys[newest],
                z=z[newest],
            )

    def is_within(self, memories: Mapping[int, VectorBlob]) -> npt.NDArray[np.bool_]:
        """Tell which rows were not cut from the memories they were merged into."""
        oldest = {owner: (int(m.at_ms[-1]), -int(m.keys[-1])) for owner, m in memories.items()}
        rows = zip(self.owners.tolist(), self.at_ms.tolist(), self.keys.tolist(), strict=True)
        return np.array([(at, -key) >= oldest[owner] for owner, at, key in rows], dtype=np.bool_)
