"""What the store would have held at a moment, rebuilt from a transfer log.

Time only goes forward: rows become visible in the order of their time, and a request sees exactly
what `features.vectorstore` would answer if every visible row had been written to it. Vectors are
the packed ones of the log, and means are rounded as the store rounds them, so a model trains on the
numbers it will be served.

Must not know: labels, probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from features.arrays import FloatArray, IntArray
from features.assembly import AssemblySpec, RequestState
from features.entities import EntityTable
from features.lookup import PairState
from features.memory import mean_vector, newest_first, snap
from features.packed import BlobKind, Missing, MissingReason, VectorBlob
from features.transferlog import RowKind, TransferLog


@dataclass(frozen=True, kw_only=True)
class ReplayRule:
    """How rows become visible and how many stay.

    Attributes:
        logging_delay_ms: from a row's time until the store has it; 0 still means strictly before.
        max_pairs, item_memory_length: as of `features.vectorstore.VectorStore`.
    """

    logging_delay_ms: int = 0
    max_pairs: int = 200
    item_memory_length: int = 8

    def visible_until_ms(self, at_ms: int) -> int:
        """Give the moment that rows must be before, to be visible to a request."""
        return min(at_ms, at_ms - self.logging_delay_ms + 1)


class Replay:
    """The state of the store as time goes on.

    Args:
        log: whose rows are replayed; those of one kind and owner in any order.
        items: for the similarity codes of pairs.
        spec: memory length, time to live, similarity feature.
        rule: visibility and limits.
    """

    def __init__(
        self, log: TransferLog, items: EntityTable, spec: AssemblySpec, rule: ReplayRule
    ) -> None:
        self._spec, self._rule, self._log = spec, rule, log
        rows = log.rows
        self._z = snap(rows.z(), log.meta.dtype)
        self._users, self._items, self._at_ms = rows.user_keys, rows.item_keys, rows.at_ms
        similarity = items.column(spec.similarity_feature)
        self._similarity = similarity[items.rows(rows.item_keys)]
        self._memories = {
            user: self._blob(user, rows)
            for user, rows in _rows_by_user(log, RowKind.ENGAGEMENT).items()
        }
        shown = np.flatnonzero(rows.kinds == RowKind.IMPRESSION)
        self._shown = shown[np.argsort(rows.at_ms[shown], kind="stable")]
        self._shown_ms = rows.at_ms[self._shown]
        self._num_replayed = 0
        self._pairs: dict[int, dict[int, int]] = {}
        self._of_item: dict[int, list[int]] = {}
        self._user_means: dict[int, tuple[FloatArray, int]] = {}
        self._item_means: dict[int, tuple[FloatArray, int]] = {}

    def state(self, user_key: int, item_keys: IntArray, *, at_ms: int) -> RequestState:
        """Give what a request would find; calls must come in the order of time."""
        until_ms = self._rule.visible_until_ms(at_ms)
        self._advance(until_ms)
        pair_rows = np.array(list(self._pairs.get(user_key, {}).values()), dtype=np.int64)
        means = [self._item_mean(item) for item in item_keys.tolist()]
        nothing = np.zeros(self._spec.dim, dtype=np.float32), -1
        found = [nothing if mean is None else mean for mean in means]
        return RequestState(
            memory=self._memory(user_key, until_ms),
            pairs=PairState(
                item_keys=self._items[pair_rows],
                similarity_codes=self._similarity[pair_rows],
                at_ms=self._at_ms[pair_rows],
                z=self._z[pair_rows],
            ),
            user_aggregate=self._user_mean(user_key),
            item_aggregates=(
                np.stack([z for z, _ in found]),
                np.array([newest_ms for _, newest_ms in found], dtype=np.int64),
            ),
        )

    def _memory(self, user_key: int, until_ms: int) -> VectorBlob | Missing:
        every = self._memories.get(user_key)
        if every is None or every.at_ms[-1] >= until_ms:
            return Missing(MissingReason.ABSENT)
        first = int(np.searchsorted(-every.at_ms, -until_ms, side="right"))
        return _slice(every, first, first + self._spec.memory_length)

    def _blob(self, owner: int, rows: IntArray, keys: IntArray | None = None) -> VectorBlob:
        """Give rows as one memory, newest first and each entry once."""
        at_ms, z = self._at_ms[rows], self._z[rows]
        keys = self._items[rows] if keys is None else keys
        order = newest_first(at_ms, keys, z)
        return VectorBlob(
            kind=BlobKind.MEMORY,
            space_id=self._log.meta.space_id,
            owner=owner,
            at_ms=at_ms[order],
            keys=keys[order],
            z=z[order],
        )

    def _advance(self, until_ms: int) -> None:
        end = int(np.searchsorted(self._shown_ms, until_ms, side="left"))
        assert end >= self._num_replayed, "requests must come in the order of time"
        touched = set()
        for row in self._shown[self._num_replayed : end].tolist():
            user, item = int(self._users[row]), int(self._items[row])
            self._pairs.setdefault(user, {})[item] = row
            self._of_item.setdefault(item, []).append(row)
            self._item_means.pop(item, None)
            touched.add(user)
        self._num_replayed = end
        for user in touched:
            self._user_means.pop(user, None)
            self._trim(user)

    def _trim(self, user: int) -> None:
        """Keep a user's newest pairs, and of equal times those that the store keeps."""
        pairs = self._pairs[user]
        excess = len(pairs) - self._rule.max_pairs
        if excess > 0:
            oldest = sorted(pairs, key=lambda item: (int(self._at_ms[pairs[item]]), str(item)))
            for item in oldest[:excess]:
                del pairs[item]

    def _user_mean(self, user: int) -> tuple[FloatArray, int] | None:
        pairs = self._pairs.get(user)
        if not pairs:
            return None
        if user not in self._user_means:
            rows = np.array(list(pairs.values()), dtype=np.int64)
            self._user_means[user] = self._mean(self._blob(user, rows))
        return self._user_means[user]

    def _item_mean(self, item: int) -> tuple[FloatArray, int] | None:
        shown = self._of_item.get(item)
        if shown is None:
            return None
        if item not in self._item_means:
            limit = self._rule.item_memory_length
            rows = np.array(shown, dtype=np.int64)
            blob = _slice(self._blob(item, rows, self._users[rows]), 0, limit)
            # Rows older than the oldest entry kept can never come back.
            self._of_item[item] = [r for r in shown if self._at_ms[r] >= blob.at_ms[-1]]
            self._item_means[item] = self._mean(blob)
        return self._item_means[item]

    def _mean(self, blob: VectorBlob) -> tuple[FloatArray, int]:
        mean = mean_vector(blob, hard_ttl_ms=self._spec.hard_ttl_ms)
        return snap(mean.z, self._log.meta.dtype)[0], int(mean.at_ms[0])


def _slice(blob: VectorBlob, first: int, end: int) -> VectorBlob:
    return VectorBlob(
        kind=blob.kind,
        space_id=blob.space_id,
        owner=blob.owner,
        at_ms=blob.at_ms[first:end],
        keys=blob.keys[first:end],
        z=blob.z[first:end],
    )


def _rows_by_user(log: TransferLog, kind: RowKind) -> dict[int, IntArray]:
    """Give each user's rows of a kind."""
    rows = log.rows
    chosen = np.flatnonzero(rows.kinds == kind)
    order = chosen[np.argsort(rows.user_keys[chosen], kind="stable")]
    users, starts = np.unique(rows.user_keys[order], return_index=True)
    parts = np.split(order, starts[1:]) if len(users) else []
    return dict(zip(users.tolist(), parts, strict=True))
