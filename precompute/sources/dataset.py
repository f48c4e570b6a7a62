"""A data set folder, replayed as if it happened now: its events and its requests in time order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from features.arrays import IntArray
from features.dataset import LogDataset
from features.log import Events, Impressions
from precompute.events import EngagementEvent, Event, RequestEvent, SourceError
from precompute.sources.source import Position, PositionFile, SourceRecord


class DatasetSource:
    """Every event source and every request of a log from one moment on.

    Order: by the moment of becoming known; at the same moment engagements before requests, and
    sources in the schema's order. A position is a place in that order.

    Args:
        dataset: the log.
        from_ms: what became known before belongs to the histories and is not delivered.
        until_ms: end of the delivery, exclusive; None for the end of the log.
        position_path: file of the committed position; None keeps it in memory.
    """

    def __init__(
        self,
        dataset: LogDataset,
        *,
        from_ms: int,
        until_ms: int | None = None,
        position_path: Path | None = None,
    ) -> None:
        self._events = list(dataset.events.items())
        self._requests = _Requests(dataset.impressions)
        known = [np.maximum(e.at_ms, e.arrival_ms) for _, e in self._events]
        known.append(self._requests.at_ms)
        kinds = np.repeat(np.arange(len(known)), [len(moments) for moments in known])
        rows = np.concatenate([np.arange(len(moments)) for moments in known])
        known_ms = np.concatenate(known)
        end_ms = np.iinfo(np.int64).max if until_ms is None else until_ms
        inside = np.flatnonzero((known_ms >= from_ms) & (known_ms < end_ms))
        order = inside[np.lexsort((rows[inside], kinds[inside], known_ms[inside]))]
        self._kinds, self._rows = kinds[order], rows[order]
        # Not the end: a longer replay of the same log goes on where a shorter one stopped.
        self._name = f"dataset:{dataset.schema.name}:from:{from_ms}"
        fingerprint = f"{self._name}:{dataset.schema.schema_id}"
        self._file = PositionFile(position_path, fingerprint=fingerprint) if position_path else None
        self._next = self._committed = self._file.read() if self._file else 0
        # A position is in the whole log from `from_ms` on, however short this replay of it is.
        num_whole = int(np.count_nonzero(known_ms >= from_ms))
        if self._committed > num_whole:
            raise SourceError(
                f"{position_path}: next_offset is {self._committed}, but {self._name} has "
                f"{num_whole} records; remove the file to start over"
            )

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def name(self) -> str:
        """Name of the data set and first moment: together they fix what an offset means."""
        return self._name

    @property
    def is_ended(self) -> bool:
        """Whether everything was delivered."""
        return self._next >= len(self)

    def replay(self) -> Iterator[SourceRecord]:
        """Deliver again what was committed."""
        return self._records(0, self._committed)

    def poll(self, max_events: int) -> list[SourceRecord]:
        """Deliver the next records in time order."""
        records = list(self._records(self._next, min(self._next + max_events, len(self))))
        self._next += len(records)
        return records

    def commit(self, positions: list[Position]) -> None:
        """Remember the position, in the file if there is one."""
        committed = max(position.offset for position in positions) + 1
        if self._file is not None:
            self._file.write(committed)
        self._committed = committed

    def pause(self) -> None:
        """Do nothing: a file waits by itself."""

    def resume(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing: the log is in memory."""

    def _records(self, start: int, stop: int) -> Iterator[SourceRecord]:
        for offset in range(start, min(stop, len(self))):
            event = self._event(int(self._kinds[offset]), int(self._rows[offset]))
            yield SourceRecord(position=Position(0, offset), event=event)

    def _event(self, kind: int, row: int) -> Event:
        if kind == len(self._events):
            return self._requests.event(row)
        source, events = self._events[kind]
        return _engagement(source, events, row)


def history_events(dataset: LogDataset, *, known_before_ms: int) -> Mapping[str, Events]:
    """Give the events of every source that were known before a moment, to build histories from."""
    return {
        source: events.take(
            np.flatnonzero(np.maximum(events.at_ms, events.arrival_ms) < known_before_ms)
        )
        for source, events in dataset.events.items()
    }


def _engagement(source: str, events: Events, row: int) -> EngagementEvent:
    return EngagementEvent(
        source=source,
        user_key=int(events.user_keys[row]),
        item_key=None if events.item_keys is None else int(events.item_keys[row]),
        at_ms=int(events.at_ms[row]),
        arrival_ms=int(events.arrival_ms[row]),
        codes={name: int(column[row]) for name, column in events.codes.items()},
        numeric={name: float(column[row]) for name, column in events.numeric.items()},
    )


class _Requests:
    """Impressions by request; a request's moment is that of its first impression."""

    def __init__(self, impressions: Impressions) -> None:
        self._impressions = impressions
        # A request is one user at one moment with one id: ids may repeat over days.
        columns = (impressions.at_ms, impressions.request_ids, impressions.user_keys)
        order = np.lexsort(columns[::-1])
        is_first = np.ones(len(order), dtype=bool)
        if len(order):
            is_first[1:] = np.any([np.diff(column[order]) != 0 for column in columns], axis=0)
        self._order = order
        self._starts: IntArray = np.append(np.flatnonzero(is_first), len(order)).astype(np.int64)
        self.at_ms: IntArray = impressions.at_ms[order[self._starts[:-1]]]

    def event(self, row: int) -> RequestEvent:
        index = self._order[self._starts[row] : self._starts[row + 1]]
        log = self._impressions
        return RequestEvent(
            request_id=str(int(log.request_ids[index[0]])),
            user_key=int(log.user_keys[index[0]]),
            at_ms=int(log.at_ms[index[0]]),
            item_keys=log.item_keys[index],
            codes={name: column[index] for name, column in log.codes.items()},
            numeric={name: column[index] for name, column in log.numeric.items()},
        )
