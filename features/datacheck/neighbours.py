"""Events of an impression's own item close to its moment: before, at, and after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from features.arrays import IntArray
from features.datacheck.parts import parts
from features.dataset import LogDataset
from features.log import Events, Impressions
from features.segments import first_not_before

DISTANCES_MS = (60_000, 3_600_000)

_MAX_PAIRS = 1 << 21  # of an impression and an event, held at once
_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class OwnItemCounts:
    """Whether impressions have an event of their own user and item near by.

    Shapes:
        every array: (N,), bool. is_before, is_after: by distance in ms.

    Attributes:
        is_before: one that the impression may see. is_same, is_after: one that is hidden from it.
    """

    is_before: dict[int, _Bools]
    is_same: _Bools
    is_after: dict[int, _Bools]

    def by_distance(self) -> Iterator[tuple[str, int, _Bools]]:
        """Give all of it as (when, within_ms, is_near), from long before to long after."""
        for within_ms in reversed(DISTANCES_MS):
            yield "before", within_ms, self.is_before[within_ms]
        yield "same moment", 0, self.is_same
        for within_ms in DISTANCES_MS:
            yield "after", within_ms, self.is_after[within_ms]


def own_item_counts(dataset: LogDataset, shown: Impressions) -> dict[str, OwnItemCounts]:
    """Look around each impression in every source that names items.

    Cost: O(N log E) and the events within the longest distance; memory for two million of them,
    or those around one impression.
    """
    return {
        name: _around(events, shown)
        for name, events in dataset.events.items()
        if events.item_keys is not None
    }


def _around(events: Events, shown: Impressions) -> OwnItemCounts:
    found = OwnItemCounts(
        is_before={ms: np.zeros(len(shown), dtype=bool) for ms in DISTANCES_MS},
        is_same=np.zeros(len(shown), dtype=bool),
        is_after={ms: np.zeros(len(shown), dtype=bool) for ms in DISTANCES_MS},
    )
    for part in parts(len(shown), rows_per_part=65_536):
        users, at_ms = shown.user_keys[part], shown.at_ms[part]
        low = np.searchsorted(events.user_keys, users, side="left")
        high = np.searchsorted(events.user_keys, users, side="right")
        longest_ms = max(DISTANCES_MS)
        first = first_not_before(events.at_ms, low, high, at_ms - longest_ms)
        stop = first_not_before(events.at_ms, first, high, at_ms + longest_ms + 1)
        for start, end in _groups(stop - first):
            counts = (stop - first)[start:end]
            rows = np.repeat(np.arange(start, end), counts)
            skipped = np.cumsum(counts) - counts
            places = np.arange(len(rows)) + np.repeat(first[start:end] - skipped, counts)
            _note(found, events, shown, rows + part.start, places)
    return found


def _groups(counts: IntArray) -> Iterator[tuple[int, int]]:
    """Cut rows into groups with few enough pairs, or of one row."""
    sums, start = np.cumsum(counts), 0
    while start < len(counts):
        before = int(sums[start - 1]) if start else 0
        end = int(np.searchsorted(sums, before + _MAX_PAIRS, side="right"))
        end = max(end, start + 1)
        yield start, end
        start = end


def _note(
    found: OwnItemCounts, events: Events, shown: Impressions, rows: IntArray, places: IntArray
) -> None:
    assert events.item_keys is not None
    is_own = events.item_keys[places] == shown.item_keys[rows]
    rows, places = rows[is_own], places[is_own]
    away_ms = events.at_ms[places] - shown.at_ms[rows]
    has_arrived = events.arrival_ms[places] <= shown.at_ms[rows]
    found.is_same[rows[away_ms == 0]] = True
    for within_ms in DISTANCES_MS:
        is_before = (away_ms < 0) & (away_ms >= -within_ms) & has_arrived
        found.is_before[within_ms][rows[is_before]] = True
        found.is_after[within_ms][rows[(away_ms > 0) & (away_ms <= within_ms)]] = True
