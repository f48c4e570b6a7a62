"""The vector each candidate gets from what the store holds: one rule, online and in training.

For every candidate the first tier that has something visible answers, in the order of `Tier`. An
entry is visible to a request if its time is strictly before the request and not more than the hard
time to live before it. The tier, the age and the similarity go to the model as inputs and to the
caller in the answer, because a similar item's vector is worth something else than the pair's own.

Must not know: where the entries came from, or what a code stands for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray, IntArray
from features.encoding import FIRST


class Tier(IntEnum):
    """Where a candidate's vector came from, best first; the numbers are on the wire."""

    EXACT_PAIR = 1
    """This user with this item."""
    SAME_USER_SIMILAR_ITEM = 2
    """This user with the newest other item of the same similarity code."""
    SIMILAR_USER_SAME_ITEM = 3
    """Not produced yet; the number is kept for it."""
    USER_AGGREGATE = 4
    """Mean of this user's pairs."""
    ITEM_AGGREGATE = 5
    """Mean of this item's newest vectors."""
    DEFAULT = 6
    """Nothing visible: zeros here, and the model puts its learned default in their place."""


ALL_TIERS = frozenset(Tier)
EXACT_SIMILARITY = 1.0
SIMILAR_ITEM_SIMILARITY = 0.5


@dataclass(frozen=True, kw_only=True)
class LookupRule:
    """What an entry must be to be used.

    Units:
        soft_ttl_ms: older entries are used and flagged stale.
        hard_ttl_ms: older entries are invisible.

    Attributes:
        allowed_tiers: tiers that may answer; `Tier.DEFAULT` always may. Training demotes candidates
            by leaving tiers out.
    """

    soft_ttl_ms: int
    hard_ttl_ms: int
    allowed_tiers: frozenset[Tier] = ALL_TIERS


@dataclass(frozen=True, kw_only=True, eq=False)
class PairState:
    """Pair vectors of one user, in any order.

    Shapes:
        item_keys, at_ms: (P,), int64; Unix ms UTC.
        similarity_codes: (P,), int64; codes below FIRST are similar to nothing.
        z: (P, d), float32.
    """

    item_keys: IntArray
    similarity_codes: IntArray
    at_ms: IntArray
    z: FloatArray

    @classmethod
    def empty(cls, dim: int) -> PairState:
        """Give the state of a user without pairs."""
        none = np.zeros(0, dtype=np.int64)
        z = np.zeros((0, dim), dtype=np.float32)
        return cls(item_keys=none, similarity_codes=none, at_ms=none, z=z)

    def take(self, index: IntArray | npt.NDArray[np.bool_]) -> PairState:
        """Give the pairs at these places."""
        return PairState(
            item_keys=self.item_keys[index],
            similarity_codes=self.similarity_codes[index],
            at_ms=self.at_ms[index],
            z=self.z[index],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class PairLookup:
    """What every candidate got.

    Shapes:
        z: (N, d), float32; zeros where the tier is `Tier.DEFAULT`.
        tier: (N,), int64, of `Tier`.
        age_ms: (N,), int64; request time less entry time, above 0; -1 where there is no entry.
        similarity: (N,), float32; 1 for the pair itself, 0.5 for a similar item, else 0.
        is_stale: (N,), bool; older than the soft time to live.
    """

    z: FloatArray
    tier: IntArray
    age_ms: IntArray
    similarity: FloatArray
    is_stale: npt.NDArray[np.bool_]


def resolve_pairs(
    item_keys: IntArray,
    similarity_codes: IntArray,
    *,
    at_ms: int,
    pairs: PairState,
    user_aggregate: tuple[FloatArray, int] | None,
    item_aggregates: tuple[FloatArray, IntArray],
    rule: LookupRule,
) -> PairLookup:
    """Give each candidate the vector of the best tier that has one visible at a moment.

    Shapes:
        item_keys, similarity_codes: (N,), int64.
        user_aggregate: vector (d,), float32, and its newest time.
        item_aggregates: vectors (N, d), float32, and newest times (N,), int64, -1 where none.

    Units:
        at_ms: the request's time, Unix ms UTC.

    Cost: O((N + P) log P).
    """
    n = len(item_keys)
    found = _Found.nothing(n, pairs.z.shape[1])
    floor_ms = at_ms - rule.hard_ttl_ms
    allowed = rule.allowed_tiers
    if Tier.ITEM_AGGREGATE in allowed:
        z, newest_ms = item_aggregates
        is_visible = (newest_ms >= max(floor_ms, 0)) & (newest_ms < at_ms)
        found.fill(Tier.ITEM_AGGREGATE, np.flatnonzero(is_visible), z[is_visible], newest_ms)
    if Tier.USER_AGGREGATE in allowed and user_aggregate is not None:
        user_z, user_ms = user_aggregate
        if floor_ms <= user_ms < at_ms:
            every = np.arange(n)
            found.fill(Tier.USER_AGGREGATE, every, user_z, np.full(n, user_ms, dtype=np.int64))
    seen = _newest_per_item(pairs.take((pairs.at_ms >= floor_ms) & (pairs.at_ms < at_ms)))
    if Tier.SAME_USER_SIMILAR_ITEM in allowed:
        found.fill_pairs(
            Tier.SAME_USER_SIMILAR_ITEM, seen, _similar_pair(item_keys, similarity_codes, seen)
        )
    if Tier.EXACT_PAIR in allowed:
        found.fill_pairs(Tier.EXACT_PAIR, seen, _place(item_keys, seen.item_keys))
    return found.finish(at_ms, rule.soft_ttl_ms)


@dataclass(frozen=True, eq=False)
class _Found:
    """The answer while it is filled, worst tier first."""

    z: FloatArray
    tier: IntArray
    entry_ms: IntArray

    @classmethod
    def nothing(cls, n: int, dim: int) -> _Found:
        return cls(
            z=np.zeros((n, dim), dtype=np.float32),
            tier=np.full(n, Tier.DEFAULT, dtype=np.int64),
            entry_ms=np.full(n, -1, dtype=np.int64),
        )

    def fill(self, tier: Tier, rows: IntArray, z: FloatArray, entry_ms: IntArray) -> None:
        """Overwrite rows; z is theirs, entry_ms is of all candidates."""
        self.z[rows] = z
        self.tier[rows] = tier
        self.entry_ms[rows] = entry_ms[rows]

    def fill_pairs(self, tier: Tier, pairs: PairState, place: IntArray) -> None:
        """Overwrite the rows that have a place in the pairs; -1 has none."""
        rows = np.flatnonzero(place >= 0)
        self.z[rows] = pairs.z[place[rows]]
        self.tier[rows] = tier
        self.entry_ms[rows] = pairs.at_ms[place[rows]]

    def finish(self, at_ms: int, soft_ttl_ms: int) -> PairLookup:
        has_entry = self.tier != Tier.DEFAULT
        age_ms = np.where(has_entry, at_ms - self.entry_ms, -1)
        similarity = np.zeros(len(age_ms), dtype=np.float32)
        similarity[self.tier == Tier.SAME_USER_SIMILAR_ITEM] = SIMILAR_ITEM_SIMILARITY
        similarity[self.tier == Tier.EXACT_PAIR] = EXACT_SIMILARITY
        return PairLookup(
            z=self.z,
            tier=self.tier,
            age_ms=age_ms,
            similarity=similarity,
            is_stale=age_ms > soft_ttl_ms,
        )


def _newest_per_item(pairs: PairState) -> PairState:
    """Give one pair an item, the newest, sorted by item."""
    order = np.lexsort((-pairs.at_ms, pairs.item_keys))
    _, first = np.unique(pairs.item_keys[order], return_index=True)
    return pairs.take(order[first])


def _similar_pair(item_keys: IntArray, codes: IntArray, pairs: PairState) -> IntArray:
    """Give the place of the newest pair with the same code and another item, or -1.

    Equal times go to the smaller item key. The pairs hold an item once, so if the newest of a code
    is the candidate itself, the next one of that code is another item.
    """
    known = np.flatnonzero(pairs.similarity_codes >= FIRST)
    order = known[
        np.lexsort((pairs.item_keys[known], -pairs.at_ms[known], pairs.similarity_codes[known]))
    ]
    groups, starts = np.unique(pairs.similarity_codes[order], return_index=True)
    group = _place(codes, groups)
    place = np.full(len(item_keys), -1, dtype=np.int64)
    rows = np.flatnonzero(group >= 0)
    if not len(rows):
        return place
    nth = starts[group[rows]]
    nth = nth + (pairs.item_keys[order[nth]] == item_keys[rows])
    has_one = nth < np.append(starts[1:], len(order))[group[rows]]
    place[rows[has_one]] = order[nth[has_one]]
    return place


def _place(wanted: IntArray, sorted_values: IntArray) -> IntArray:
    """Give where each value lies in sorted distinct values, or -1."""
    if not len(sorted_values):
        return np.full(len(wanted), -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(sorted_values, wanted), len(sorted_values) - 1)
    return np.where(sorted_values[place] == wanted, place, -1)
