"""Fill a store from a transfer log: the same keys and rules as the worker's, many rows at a time.

Used for the first fill, for a refresh into a fresh space, and to prove that online and offline
agree: the log's packed vectors go in unchanged, so what the ranker reads is what a vertical model
was trained on.

What could not survive in the store anyway is left out before writing (older entries than a memory
holds, older pairs of an item); the outcome is the same, for it depends only on the set of rows.

Errors: those of the vector store, and DataError for a log of another space, dim or dtype.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from features.arrays import IntArray
from features.errors import DataError
from features.transferlog import RowKind, TransferLog
from features.vectorstore import VectorStore
from precompute.scoring import ScoredRows

# Owners written together: a few thousand entries, well under a second on a server that is not ours
# alone, and few enough round trips to fill 100,000 rows in seconds.
_OWNERS_PER_WRITE = 500


@dataclass(frozen=True, kw_only=True)
class FillReport:
    """What a fill wrote.

    Attributes:
        num_engagements, num_impressions: rows of the log inside the window.
        num_users, num_items: owners with at least one key.
    """

    num_engagements: int
    num_impressions: int
    num_users: int
    num_items: int


def load_transfer_log_into_store(
    log: TransferLog, vector_store: VectorStore, *, until_ms: int, from_ms: int | None = None
) -> FillReport:
    """Put a transfer log's vectors into the store as a request at until_ms would find them.

    Engagements become memories; impressions become pairs and vectors of their items. A row counts
    if from_ms <= at_ms < until_ms. Loading again, or in pieces, changes nothing. A transfer log
    says when things happened and not when they became known: where events arrive late, the worker
    brings a memory's newest entries later than this does.

    Raises:
        DataError: space, dim or dtype of the log and the store differ.
        StoreError: the store failed; load again.

    Cost: O(n log n), and a handful of round trips per 500 owners.
    """
    _require_same_space(log, vector_store)
    engagements = _select(log, RowKind.ENGAGEMENT, from_ms=from_ms, until_ms=until_ms)
    impressions = _select(log, RowKind.IMPRESSION, from_ms=from_ms, until_ms=until_ms)
    memories = _newest(
        engagements,
        engagements.user_keys,
        engagements.item_keys,
        vector_store.memory_length,
    )
    for part in _by_owner(memories, memories.user_keys):
        vector_store.add_memory(part.user_keys, part.at_ms, item_keys=part.item_keys, z=part.z)
    pairs = _newest_of_each_pair(impressions)
    pairs = _newest(pairs, pairs.user_keys, pairs.item_keys, vector_store.max_pairs)
    for part in _by_owner(pairs, pairs.user_keys):
        vector_store.add_pairs(part.user_keys, part.item_keys, at_ms=part.at_ms, z=part.z)
    of_items = _newest(
        impressions,
        impressions.item_keys,
        impressions.user_keys,
        vector_store.item_memory_length,
    )
    for part in _by_owner(of_items, of_items.item_keys):
        vector_store.add_item_vectors(
            part.item_keys, part.at_ms, user_keys=part.user_keys, z=part.z
        )
    users = np.concatenate([engagements.user_keys, impressions.user_keys])
    return FillReport(
        num_engagements=len(engagements),
        num_impressions=len(impressions),
        num_users=len(np.unique(users)),
        num_items=len(np.unique(impressions.item_keys)),
    )


def _require_same_space(log: TransferLog, vector_store: VectorStore) -> None:
    for name in ("space_id", "dim", "dtype"):
        expected, got = getattr(vector_store, name), getattr(log.meta, name)
        if expected != got:
            raise DataError(f"transfer log, {name}: expected the store's {expected}, got {got}")


def _select(log: TransferLog, kind: RowKind, *, from_ms: int | None, until_ms: int) -> ScoredRows:
    rows = log.rows
    is_inside = (rows.kinds == kind) & (rows.at_ms < until_ms)
    if from_ms is not None:
        is_inside &= rows.at_ms >= from_ms
    rows = rows.take(np.flatnonzero(is_inside))
    return ScoredRows(
        user_keys=rows.user_keys, item_keys=rows.item_keys, at_ms=rows.at_ms, z=rows.z()
    )


def _newest(rows: ScoredRows, owners: IntArray, keys: IntArray, max_entries: int) -> ScoredRows:
    """Keep the newest entries of each owner, and all that share the oldest one's moment.

    Rows of one owner, key and moment are one entry, as they are in a memory.
    """
    order = np.lexsort((keys, -rows.at_ms, owners))
    columns = (owners[order], rows.at_ms[order], keys[order])
    is_entry = np.ones(len(order), dtype=bool)
    is_entry[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    _, starts, owner_index = np.unique(columns[0], return_index=True, return_inverse=True)
    counted = np.cumsum(is_entry)
    place = counted - counted[starts][owner_index]
    # The entry at the limit decides: which of its moment stay is the store's rule to know.
    oldest_ms = np.full(len(starts), np.iinfo(np.int64).min)
    is_last = place == max_entries - 1
    oldest_ms[owner_index[is_last]] = columns[1][is_last]
    return rows.take(order[columns[1] >= oldest_ms[owner_index]])


def _newest_of_each_pair(rows: ScoredRows) -> ScoredRows:
    """Keep the newest row of each (user, item); among equal moments the last of the log."""
    order = np.lexsort((rows.at_ms, rows.item_keys, rows.user_keys))
    users, items = rows.user_keys[order], rows.item_keys[order]
    is_last = np.ones(len(order), dtype=bool)
    is_last[:-1] = (users[1:] != users[:-1]) | (items[1:] != items[:-1])
    return rows.take(order[is_last])


def _by_owner(rows: ScoredRows, owners: IntArray) -> Iterator[ScoredRows]:
    """Cut rows into parts of some hundred owners, each owner in one part."""
    order = np.argsort(owners, kind="stable")
    starts = np.flatnonzero(np.diff(owners[order], prepend=owners[order][:1] - 1))
    for index in np.split(order, starts[_OWNERS_PER_WRITE::_OWNERS_PER_WRITE]):
        if len(index):
            yield rows.take(index)
