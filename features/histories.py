"""Point-in-time event histories: what was known about a user at one moment, and no more.

An event is visible to a moment t only if ``at_ms < t`` and ``arrival_ms <= t``. The index keeps a
few immutable sorted segments per source; a look-up is a binary search per row, all rows at once,
so the rows of a training batch and one live request take the same path.

Order inside a history is total and a function of the events alone: user, event time, arrival,
item, then every column. Building in one batch, in many appends, or in any other order gives the
same bytes. It knows nothing of models, vocabularies or surfaces.

Errors: DataError for columns that do not fit each other or the source, and for unknown sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from features.arrays import FloatArray, IntArray
from features.errors import DataError
from features.log import Events
from features.segments import Segment, concatenate, named_columns, newest, row_offsets, tie_keys

# A new segment swallows its older neighbour while that one is less than this many times as large:
# few segments to search (logarithmic), and every event is re-sorted a logarithmic number of times.
_MERGE_RATIO = 4


@dataclass(frozen=True, kw_only=True)
class HistorySlice:
    """Visible events of N rows, end to end, oldest to newest inside a row.

    Shapes:
        offsets: (N + 1,), int64; first 0, last L, non-decreasing. Rows with 2, 0 and 3 events:
            [0, 2, 2, 5].
        at_ms, item_keys and every column: (L,).

    Attributes:
        num_excluded: (row, event) pairs of the same user that the moment of the row hides: the
            event is not older than the row, or had not arrived. A report, not a feature: it grows
            when later events are appended.
        num_late: those of them that had happened but not arrived.
    """

    offsets: IntArray
    at_ms: IntArray
    item_keys: IntArray | None
    codes: dict[str, IntArray]
    numeric: dict[str, FloatArray]
    num_excluded: int
    num_late: int = 0

    def __post_init__(self) -> None:
        """Refuse columns that disagree with the offsets, naming the column."""
        offsets = self.offsets
        if len(offsets) < 1 or offsets[0] != 0 or (np.diff(offsets) < 0).any():
            raise DataError(
                "history offsets: expected a first 0 and non-decreasing values, "
                f"got {offsets[:5].tolist()}"
            )
        expected = int(offsets[-1])
        for name, column in named_columns(self).items():
            if len(column) != expected:
                raise DataError(
                    f"history column {name!r}: expected {expected} values (the last offset), "
                    f"got {len(column)}"
                )

    @property
    def lengths(self) -> IntArray:
        """Number of visible events of each row, (N,)."""
        return np.diff(self.offsets)


@dataclass(frozen=True, kw_only=True)
class OneSeq:
    """Several sources merged into one sequence per row, oldest to newest.

    Shapes:
        offsets: (N + 1,), int64.
        source_index: (L,), int64; place of the source in the mapping that was merged.
        position: (L,), int64; index into that source's slice.
        at_ms: (L,), int64.
    """

    offsets: IntArray
    source_index: IntArray
    position: IntArray
    at_ms: IntArray


class HistoryIndex:
    """Events of every source, ready to be asked for what was visible at a moment.

    Build it with :meth:`build`; add what happens later with :meth:`append`.
    """

    def __init__(self, segments: dict[str, list[Segment]]) -> None:
        self._segments = segments

    @classmethod
    def build(cls, events: Mapping[str, Events]) -> HistoryIndex:
        """Give an index over all events of every source.

        Raises:
            DataError: a source's columns differ in length.

        Cost: O(E log E) per source.
        """
        return cls({source: [Segment.sort(source, rows)] for source, rows in events.items()})

    @classmethod
    def of_segments(cls, segments: Mapping[str, Segment]) -> HistoryIndex:
        """Give an index over events that are sorted already; it copies none of them."""
        return cls({source: [segment] for source, segment in segments.items()})

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources, in the order given to build."""
        return tuple(self._segments)

    def num_events(self, source: str) -> int:
        """Number of events held for a source."""
        return sum(len(segment) for segment in self._of(source))

    def append(self, source: str, events: Events) -> None:
        """Add events of one source, in any order of time or arrival.

        Slices handed out before are copies and do not change. An event appended twice counts
        twice: whoever replays a stream must know where it stopped.

        Raises:
            DataError: unknown source, or columns other than those the source was built with.
        """
        segments = self._of(source)
        fresh = Segment.sort(source, events)
        segments[0].require_same_columns(source, fresh)
        if not len(fresh):
            return
        while segments and len(segments[-1]) < _MERGE_RATIO * len(fresh):
            fresh = Segment.sort(source, concatenate([segments.pop().events, fresh.events]))
        segments.append(fresh)

    def visible(
        self, source: str, user_keys: IntArray, at_ms: IntArray, *, max_length: int
    ) -> HistorySlice:
        """Give each row the newest events of its user that were known at its moment.

        Shapes:
            user_keys, at_ms: (N,), int64; rows in any order, users may repeat.

        Raises:
            DataError: unknown source, or user_keys and at_ms differ in length.
            ValueError: max_length is below 1.

        Cost: O(N log T) to find and O(L) to copy, T events of one user, L of the result; events
        that arrived late add the events inside that user's longest delay before the moment.
        """
        if max_length < 1:
            raise ValueError(f"max_length: expected 1 or more, got {max_length}")
        if len(user_keys) != len(at_ms):
            raise DataError(
                f"history of {source!r}: {len(user_keys)} user keys but {len(at_ms)} moments"
            )
        found = [s.find(user_keys, at_ms, max_length) for s in self._of(source)]
        if len(found) == 1:
            rows, events = found[0].rows, found[0].take()
        else:
            rows = np.concatenate([hit.rows for hit in found])
            events = concatenate([hit.take() for hit in found])
            if sum(len(hit.rows) > 0 for hit in found) > 1:
                order = newest(np.lexsort((*tie_keys(events), rows)), rows, max_length)
                rows, events = rows[order], events.take(order)
        return HistorySlice(
            offsets=row_offsets(rows, len(at_ms)),
            at_ms=events.at_ms,
            item_keys=events.item_keys,
            codes=events.codes,
            numeric=events.numeric,
            num_excluded=sum(hit.num_future + hit.num_late for hit in found),
            num_late=sum(hit.num_late for hit in found),
        )

    def lengths(
        self, source: str, user_keys: IntArray, at_ms: IntArray, *, max_length: int
    ) -> IntArray:
        """Give the lengths of the histories that :meth:`visible` would give, (N,).

        Raises:
            DataError: unknown source.

        Cost: as to find them; nothing is copied.
        """
        nothing = np.zeros(len(at_ms), dtype=np.int64)
        counts = sum((s.count(user_keys, at_ms) for s in self._of(source)), nothing)
        return np.minimum(counts, max_length)

    def _of(self, source: str) -> list[Segment]:
        if source not in self._segments:
            raise DataError(f"event source {source!r}: expected one of {list(self._segments)}")
        return self._segments[source]


def one_seq(slices: Mapping[str, HistorySlice], *, max_length: int) -> OneSeq:
    """Merge the histories of several sources into the newest max_length events of each row.

    Events at the same moment keep the order of the mapping, then of their slice.

    Raises:
        DataError: the slices are of different numbers of rows, or there are none.
        ValueError: max_length is below 1.

    Cost: a stable sort of runs that are sorted already, O(L log S) for S sources.
    """
    if max_length < 1:
        raise ValueError(f"max_length: expected 1 or more, got {max_length}")
    sizes = {name: len(part.offsets) - 1 for name, part in slices.items()}
    if len(set(sizes.values())) != 1:
        raise DataError(f"histories to merge: expected the same number of rows, got {sizes}")
    num_rows = next(iter(sizes.values()))
    parts = list(slices.values())
    rows = np.concatenate([np.repeat(np.arange(num_rows), part.lengths) for part in parts])
    at_ms = np.concatenate([part.at_ms for part in parts])
    source_index = np.repeat(np.arange(len(parts)), [len(part.at_ms) for part in parts])
    position = np.concatenate([np.arange(len(part.at_ms)) for part in parts])
    order = newest(_order_by_row_and_time(rows, at_ms, num_rows), rows, max_length)
    return OneSeq(
        offsets=row_offsets(rows[order], num_rows),
        source_index=source_index[order],
        position=position[order],
        at_ms=at_ms[order],
    )


def _order_by_row_and_time(rows: IntArray, at_ms: IntArray, num_rows: int) -> IntArray:
    """Give the stable order by row, then time.

    One packed key lets the sort walk runs that are in order already; it needs rows times the
    span of the times to fit 63 bits, which a century in milliseconds does for 2 million rows.
    """
    if not len(at_ms):
        return np.zeros(0, dtype=np.int64)
    earliest_ms, span_ms = int(at_ms.min()), int(at_ms.max()) - int(at_ms.min()) + 1
    if num_rows * span_ms >= 2**63:
        return np.lexsort((at_ms, rows))
    return np.argsort(rows * span_ms + (at_ms - earliest_ms), kind="stable")
