"""What every source of events does, and where it keeps its position.

A source delivers records in the order in which they became known. A position names one record for
ever: the same position is the same record after a restart. Commit says that everything up to a
position has been dealt with; after a restart delivery goes on behind it. Delivery is at least
once: what was polled and not committed comes again.

The file sources are here now. A Kafka source is to come behind the same protocol: partition and
offset of a topic are a position, and pause and resume keep the group membership alive during
long work. File sources have nothing to pause.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from precompute.events import BadRecord, Event, SourceError

_FORMAT = 1


@dataclass(frozen=True, order=True)
class Position:
    """Name of a record in its source: ordered within a partition."""

    partition: int
    offset: int


@dataclass(frozen=True, kw_only=True)
class SourceRecord:
    """One record, decoded or found bad."""

    position: Position
    event: Event | BadRecord

    @property
    def known_at_ms(self) -> int | None:
        """When the record became known; None for one that could not be read."""
        return None if isinstance(self.event, BadRecord) else self.event.known_at_ms


class Source(Protocol):
    """Delivers records and remembers how far they were dealt with."""

    @property
    def name(self) -> str:
        """For logs and dead letters: the topic, or the file."""

    @property
    def is_ended(self) -> bool:
        """Whether everything there is now was delivered; false for a live stream."""

    def replay(self) -> Iterator[SourceRecord]:
        """Deliver again what was committed before, in order: histories are rebuilt from it."""

    def poll(self, max_events: int) -> list[SourceRecord]:
        """Deliver the next records, at most max_events; an empty list when there are none now.

        Raises:
            SourceError: the source cannot be read.
        """

    def commit(self, positions: list[Position]) -> None:
        """Remember, durably, that everything up to these positions was dealt with.

        Args:
            positions: the last position of each partition concerned.

        Raises:
            SourceError: it could not be made durable; the records will come again.
        """

    def pause(self) -> None:
        """Stop taking in records while the worker is busy, and stay connected."""

    def resume(self) -> None:
        """Take in records again."""

    def close(self) -> None:
        """Give back files and connections."""


class PositionFile:
    """A committed position of a source with one partition, in a small JSON file.

    Written beside and renamed, so a crash leaves the old position or the new one.

    Args:
        path: the file; made at the first commit.
        fingerprint: of the source's content; a file of another source is refused.
    """

    def __init__(self, path: Path, *, fingerprint: str) -> None:
        self._path = path
        self._fingerprint = fingerprint

    def read(self) -> int:
        """Give the offset of the next record to deliver, 0 if nothing was committed.

        Raises:
            SourceError: the file is of another source, or is not a position file.
        """
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return 0
        try:
            content: dict[str, Any] = json.loads(text)
            found, offset = content["source"], int(content["next_offset"])
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(f"{self._path}: not a position file ({error})") from error
        if found != self._fingerprint:
            raise SourceError(
                f"{self._path}: position of source {found!r}, expected {self._fingerprint!r}; "
                "remove the file to start over"
            )
        if offset < 0:
            raise SourceError(f"{self._path}: next_offset is {offset}, expected 0 or more")
        return offset

    def write(self, next_offset: int) -> None:
        """Replace the position.

        Raises:
            SourceError: the file could not be written.
        """
        content = {"format": _FORMAT, "source": self._fingerprint, "next_offset": next_offset}
        beside = self._path.with_name(self._path.name + ".part")
        try:
            with beside.open("w", encoding="utf-8") as file:
                file.write(json.dumps(content) + "\n")
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        except OSError as error:
            raise SourceError(f"{self._path}: cannot write the position ({error})") from error
