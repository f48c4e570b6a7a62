"""Immutable sorted runs of events, the pieces a history index is made of.

A segment holds events in a total order that depends on the events alone: user, event time,
arrival, item, then every column. It answers, for many rows at once, which of its events a user
could be known by at a moment. It knows nothing of several segments or sources together.

Errors: DataError for columns that do not fit each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray, IntArray
from features.errors import DataError
from features.log import Events


class Columns(Protocol):
    """Anything that carries event columns: a batch of events or a slice of a history."""

    @property
    def at_ms(self) -> IntArray:
        """Event times, Unix ms."""

    @property
    def item_keys(self) -> IntArray | None:
        """Item of each event, where the source has items."""

    @property
    def codes(self) -> dict[str, IntArray]:
        """Categorical columns."""

    @property
    def numeric(self) -> dict[str, FloatArray]:
        """Numeric columns."""


def named_columns(of: Columns) -> dict[str, npt.NDArray[Any]]:
    """Give every array of an event batch or a slice by name, absent ones left out."""
    fixed = ("user_keys", "at_ms", "arrival_ms", "item_keys")
    present = {name: getattr(of, name, None) for name in fixed}
    arrays = {name: array for name, array in present.items() if array is not None}
    return {**arrays, **of.codes, **of.numeric}


@dataclass(frozen=True, kw_only=True)
class Found:
    """Events of one segment that rows may see.

    Shapes:
        rows, index: (L,), int64; the row of each event and its place in the segment, by row, then
            oldest to newest.

    Attributes:
        num_future: (row, event) pairs that had not happened yet.
        num_late: pairs that had happened but not arrived.
    """

    events: Events
    rows: IntArray
    index: IntArray
    num_future: int
    num_late: int

    def take(self) -> Events:
        """Copy the found events out of the segment."""
        return self.events.take(self.index)


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Immutable events in total order, with one range per user.

    Shapes:
        users: (U,), int64, sorted.
        starts: (U + 1,), int64; the events of user u lie in [starts[u], starts[u + 1]).
        max_delay_ms: (U,), int64; the user's longest arrival minus event time, 0 or more.
    """

    events: Events
    users: IntArray
    starts: IntArray
    max_delay_ms: IntArray

    def __len__(self) -> int:
        return len(self.events.at_ms)

    @classmethod
    def sort(cls, source: str, events: Events) -> Segment:
        """Copy events into total order and lock them.

        Raises:
            DataError: a column is not as long as the event times.
        """
        for name, column in named_columns(events).items():
            if len(column) != len(events.at_ms):
                raise DataError(
                    f"event source {source!r}, column {name!r}: expected {len(events.at_ms)} "
                    f"values (one per event time), got {len(column)}"
                )
        events = events.take(np.lexsort((*tie_keys(events), events.user_keys)))
        for column in named_columns(events).values():
            column.flags.writeable = False
        return cls.of_sorted(events)

    @classmethod
    def of_sorted(cls, events: Events) -> Segment:
        """Take events that are in total order already."""
        users, starts = np.unique(events.user_keys, return_index=True)
        delay_ms = np.maximum(events.arrival_ms - events.at_ms, 0)
        return cls(
            events=events,
            users=users,
            starts=np.append(starts, len(events.at_ms)).astype(np.int64),
            max_delay_ms=np.maximum.reduceat(delay_ms, starts) if len(users) else delay_ms,
        )

    def require_same_columns(self, source: str, other: Segment) -> None:
        """Raise DataError where another segment has other columns than this one."""
        expected, got = sorted(named_columns(self.events)), sorted(named_columns(other.events))
        if expected != got:
            raise DataError(f"event source {source!r}: expected columns {expected}, got {got}")

    def find(self, user_keys: IntArray, at_ms: IntArray, max_length: int) -> Found:
        """Give each row the newest max_length events of its user known at its moment.

        Cost: O(N log T) and O(L); plus the events inside the user's longest delay.
        """
        low, high, delay_ms = self._ranges(user_keys)
        stop = first_not_before(self.events.at_ms, low, high, at_ms)
        # Events at or before the moment less the user's longest delay have all arrived.
        sure = first_not_before(self.events.at_ms, low, stop, at_ms - delay_ms + 1)
        sure = np.where(delay_ms > 0, sure, stop)
        rows, recent = _expand(sure, stop - sure)
        has_arrived = self.events.arrival_ms[recent] <= at_ms[rows]
        num_late = len(recent) - int(np.count_nonzero(has_arrived))
        rows, recent = rows[has_arrived], recent[has_arrived]
        room = np.maximum(max_length - np.bincount(rows, minlength=len(at_ms)), 0)
        first = np.maximum(low, sure - room)
        old_rows, old = _expand(first, sure - first)
        if len(recent):
            rows, recent = np.concatenate([old_rows, rows]), np.concatenate([old, recent])
            order = newest(np.argsort(rows, kind="stable"), rows, max_length)
            old_rows, old = rows[order], recent[order]
        return Found(
            events=self.events,
            rows=old_rows,
            index=old,
            num_future=int((high - stop).sum()),
            num_late=num_late,
        )

    def count(self, user_keys: IntArray, at_ms: IntArray) -> IntArray:
        """Give how many events of its user each row may see, (N,), without copying them."""
        low, high, delay_ms = self._ranges(user_keys)
        stop = first_not_before(self.events.at_ms, low, high, at_ms)
        if not delay_ms.any():
            return stop - low
        sure = first_not_before(self.events.at_ms, low, stop, at_ms - delay_ms + 1)
        rows, recent = _expand(sure, stop - sure)
        rows = rows[self.events.arrival_ms[recent] <= at_ms[rows]]
        return sure - low + np.bincount(rows, minlength=len(at_ms))

    def _ranges(self, user_keys: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        if not len(self.users):
            nothing = np.zeros(len(user_keys), dtype=np.int64)
            return nothing, nothing, nothing
        place = np.minimum(np.searchsorted(self.users, user_keys), len(self.users) - 1)
        known = self.users[place] == user_keys
        low = np.where(known, self.starts[place], 0)
        high = np.where(known, self.starts[place + 1], 0)
        return low, high, np.where(known, self.max_delay_ms[place], 0)


def tie_keys(events: Events) -> list[npt.NDArray[Any]]:
    """Give sort keys that make the order total, least significant first, as lexsort takes them."""
    keys: list[npt.NDArray[Any]] = [events.at_ms]
    if events.arrival_ms is not events.at_ms:
        keys.append(events.arrival_ms)
    if events.item_keys is not None:
        keys.append(events.item_keys)
    keys += [events.codes[name] for name in sorted(events.codes)]
    # By bits, so that -0.0, 0.0 and not-a-number each have a place of their own.
    for name in sorted(events.numeric):
        keys.append(np.ascontiguousarray(events.numeric[name], dtype=np.float32).view(np.int32))
    return keys[::-1]


def concatenate(parts: list[Events]) -> Events:
    """Lay batches of events with the same columns end to end."""
    first = parts[0]
    items = [part.item_keys for part in parts if part.item_keys is not None]
    return Events(
        user_keys=np.concatenate([part.user_keys for part in parts]),
        at_ms=np.concatenate([part.at_ms for part in parts]),
        arrival_ms=np.concatenate([part.arrival_ms for part in parts]),
        item_keys=None if first.item_keys is None else np.concatenate(items),
        codes={name: np.concatenate([p.codes[name] for p in parts]) for name in first.codes},
        numeric={name: np.concatenate([p.numeric[name] for p in parts]) for name in first.numeric},
    )


def newest(order: IntArray, rows: IntArray, max_length: int) -> IntArray:
    """Keep the last max_length entries of each row in an order that is sorted by row."""
    counts = np.bincount(rows)
    left_in_row = np.repeat(np.cumsum(counts), counts) - np.arange(len(order))
    return order[left_in_row <= max_length]


def row_offsets(rows: IntArray, num_rows: int) -> IntArray:
    """Give the (num_rows + 1,) offsets of sorted row numbers."""
    counts = np.bincount(rows, minlength=num_rows)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def first_not_before(values: IntArray, low: IntArray, high: IntArray, bound: IntArray) -> IntArray:
    """Give, for each row, the first index in [low, high) whose value is at or above its bound.

    Values are sorted inside every range; a row without such a value gets its high. A range may
    end anywhere up to the length of values.

    Cost: O(N log T), T the longest range.
    """
    low, high = low.copy(), high.copy()
    for _ in range(int((high - low).max(initial=0)).bit_length()):
        middle = (low + high) >> 1
        is_open = low < high
        goes_right = is_open & (values[np.where(is_open, middle, 0)] < bound)
        low = np.where(goes_right, middle + 1, low)
        high = np.where(is_open & ~goes_right, middle, high)
    return low


def _expand(starts: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Give the rows and indices of ranges laid end to end."""
    ends = np.cumsum(counts)
    index = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - ends + counts, counts)
    return np.repeat(np.arange(len(counts)), counts), index
