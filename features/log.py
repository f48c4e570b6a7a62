"""The event log in memory: impressions, the events of one source, and the windows of time.

Columns are NumPy arrays, encoded already; moments are int64 Unix milliseconds, UTC.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from features.arrays import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Impressions:
    """Shown items with what came of them, sorted by (at_ms, request_id, example_id).

    Shapes:
        every array: (N,). codes: context features by name, "surface" among them.
        labels: objective to 0 or 1, float32. weights: float32.
    """

    example_ids: IntArray
    request_ids: IntArray
    user_keys: IntArray
    item_keys: IntArray
    at_ms: IntArray
    codes: dict[str, IntArray]
    numeric: dict[str, FloatArray]
    labels: dict[str, FloatArray]
    weights: FloatArray

    def __len__(self) -> int:
        """Number of impressions."""
        return len(self.example_ids)

    def take(self, index: IntArray | slice) -> Impressions:
        """The impressions at these positions, in this order; a slice copies nothing."""
        return Impressions(
            example_ids=self.example_ids[index],
            request_ids=self.request_ids[index],
            user_keys=self.user_keys[index],
            item_keys=self.item_keys[index],
            at_ms=self.at_ms[index],
            codes={name: column[index] for name, column in self.codes.items()},
            numeric={name: column[index] for name, column in self.numeric.items()},
            labels={name: column[index] for name, column in self.labels.items()},
            weights=self.weights[index],
        )

    def between(self, start_ms: int, end_ms: int) -> Impressions:
        """The impressions of a half-open window of time, without copying them."""
        first, last = np.searchsorted(self.at_ms, [start_ms, end_ms], side="left")
        return self.take(slice(first, last))


@dataclass(frozen=True, kw_only=True)
class Events:
    """Events of one source; `item_keys` is None where the source names no item.

    Shapes:
        every array: (E,).
    """

    user_keys: IntArray
    at_ms: IntArray
    arrival_ms: IntArray
    item_keys: IntArray | None
    codes: dict[str, IntArray]
    numeric: dict[str, FloatArray]

    def __len__(self) -> int:
        """Number of events."""
        return len(self.user_keys)

    def take(self, index: IntArray | slice) -> Events:
        """The events at these positions, in this order; a slice copies nothing."""
        at_ms = self.at_ms[index]
        return Events(
            user_keys=self.user_keys[index],
            at_ms=at_ms,
            # Without arrivals of their own, events have one array for both.
            arrival_ms=at_ms if self.arrival_ms is self.at_ms else self.arrival_ms[index],
            item_keys=None if self.item_keys is None else self.item_keys[index],
            codes={name: column[index] for name, column in self.codes.items()},
            numeric={name: column[index] for name, column in self.numeric.items()},
        )


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Half-open windows of time, in milliseconds: who may learn from what."""

    history_start_ms: int
    fm_train: tuple[int, int]
    vm_train: tuple[int, int]
    tune: tuple[int, int]
    test: tuple[int, int]
