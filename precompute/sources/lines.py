"""An event file with one JSON object a line, in the order in which they became known.

    {"kind": "engagement", "source": "purchase", "user": 17, "event_at_ms": 1700000000000,
     "arrival_at_ms": 1700000000500, "columns": {"product_id": 42, "quantity": 2}}
    {"kind": "request", "request_id": "r1", "user": 17, "at_ms": 1700000001000,
     "context": {"surface": "coupon"}, "items": [42, 43], "columns": {"display": ["front", null]}}

``columns`` of an engagement are the source's own columns by their name in the data, the item's
among them; of a request, context features that differ by item, as many values as items.
``context`` is the same for every item. The file may grow while it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from precompute.decoding import EventDecoder
from precompute.events import BadRecord, SourceError
from precompute.sources.source import Position, PositionFile, SourceRecord

MAX_LINE_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16
# Of a line too long to decode, what a dead letter keeps.
_KEPT_BYTES = 1 << 10


class LinesSource:
    """Records of a JSON-lines file. A position is the byte at which a line starts.

    Args:
        path: the event file.
        decoder: turns a line into an event.
        position_path: file of the committed position; None keeps it in memory.
    """

    def __init__(
        self, path: Path, decoder: EventDecoder, *, position_path: Path | None = None
    ) -> None:
        self._path, self._decoder = path, decoder
        fingerprint = f"lines:{path.name}"
        self._positions = (
            PositionFile(position_path, fingerprint=fingerprint) if position_path else None
        )
        self._committed = self._positions.read() if self._positions else 0
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise SourceError(f"event file {path}: cannot be opened ({error})") from error
        size = path.stat().st_size
        if size < self._committed:
            self._file.close()
            raise SourceError(
                f"event file {path}: {size} bytes, but {self._committed} were committed: "
                "it was cut or replaced"
            )
        self._file.seek(self._committed)
        self._ends: dict[int, int] = {}
        self._is_at_end = False

    @property
    def name(self) -> str:
        """Path of the file."""
        return str(self._path)

    @property
    def is_ended(self) -> bool:
        """Whether the last poll found nothing; the file may grow and be polled again."""
        return self._is_at_end

    def replay(self) -> Iterator[SourceRecord]:
        """Decode again the lines before the committed position."""
        with self._path.open("rb") as file:
            while file.tell() < self._committed:
                start = file.tell()
                line, is_whole = _read_line(file)
                if line is None:
                    return
                yield self._record(start, line, is_whole)

    def poll(self, max_events: int) -> list[SourceRecord]:
        """Decode the next complete lines; a last line without its end waits for the rest."""
        records: list[SourceRecord] = []
        while len(records) < max_events:
            start = self._file.tell()
            line, is_whole = _read_line(self._file)
            if line is None:
                self._file.seek(start)
                break
            self._ends[start] = self._file.tell()
            records.append(self._record(start, line, is_whole))
        self._is_at_end = not records
        return records

    def commit(self, positions: list[Position]) -> None:
        """Remember the end of the last line dealt with."""
        last = max(position.offset for position in positions)
        end = self._ends[last]
        if self._positions is not None:
            self._positions.write(end)
        self._committed = end
        self._ends = {start: stop for start, stop in self._ends.items() if start > last}

    def pause(self) -> None:
        """Do nothing: a file waits by itself."""

    def resume(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _record(self, start: int, line: bytes, is_whole: bool) -> SourceRecord:
        if is_whole:
            event = self._decoder.decode(line)
        else:
            reason = f"longer than {MAX_LINE_BYTES} bytes"
            event = BadRecord(reason=reason, payload=line[:_KEPT_BYTES])
        return SourceRecord(position=Position(0, start), event=event)


def _read_line(file: BinaryIO) -> tuple[bytes | None, bool]:
    """Give the next line without its end and whether all of it; None if it has no end yet."""
    line = file.readline(MAX_LINE_BYTES + 1)
    if line.endswith(b"\n"):
        return line[:-1], True
    if len(line) <= MAX_LINE_BYTES:
        return None, True
    kept = line[:_KEPT_BYTES]
    while line and not line.endswith(b"\n"):
        line = file.readline(_CHUNK_BYTES)
    return (kept if line else None), False
