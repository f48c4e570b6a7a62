"""A log that survives crashes, a foundation model that shows its inputs, and fuses that blow."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from features.histories import HistoryIndex
from features.log import Events
from precompute.deadletters import DeadLetter
from precompute.events import BadRecord, EngagementEvent, Event, RequestEvent
from precompute.scoring import Scored
from precompute.sources.source import Position, SourceRecord

SPACE_ID = "00112233445566aa"
DIM = 4
START_MS = 1_700_000_000_000


class Crash(BaseException):
    """The process is gone; nothing may catch this."""


CRASH = object()
"""An item of a log: the worker that polls it dies, once."""


def buy(user: int, item: int, at: int, *, arrival: int | None = None) -> EngagementEvent:
    """A purchase; times in ms after START_MS."""
    return EngagementEvent(
        source="purchase",
        user_key=user,
        item_key=item,
        at_ms=START_MS + at,
        arrival_ms=START_MS + (at if arrival is None else arrival),
        codes={"category": 3 + item % 5},
        numeric={"amount": float(item)},
    )


def ask(user: int, items: Sequence[int], at: int) -> RequestEvent:
    return RequestEvent(
        request_id=f"r{user}-{at}",
        user_key=user,
        at_ms=START_MS + at,
        item_keys=np.array(items, dtype=np.int64),
        codes={"surface": np.full(len(items), 3, dtype=np.int64)},
        numeric={},
    )


def bad(reason: str) -> BadRecord:
    return BadRecord(reason=reason, payload=reason.encode())


@dataclass
class Fuse:
    """Raises when a step has been taken often enough; then never again."""

    step: str = ""
    at_call: int = 0
    error: BaseException = field(default_factory=Crash)
    calls: Counter = field(default_factory=Counter)
    has_blown: bool = False

    def burn(self, step: str) -> None:
        self.calls[step] += 1
        if step == self.step and self.calls[step] >= self.at_call and not self.has_blown:
            self.has_blown = True
            raise self.error


class FakeLog:
    """What outlives a worker: the records, the committed position, the dead letters."""

    def __init__(self, items: Sequence[object]) -> None:
        self.items = [*items]
        self.committed = 0
        self.letters: dict[Position, DeadLetter] = {}

    def write(self, letters: Sequence[DeadLetter]) -> int:
        before = len(self.letters)
        self.letters.update({letter.position: letter for letter in letters})
        return len(self.letters) - before


class FakeSource:
    """One worker's view of the log."""

    name = "fake"

    def __init__(self, log: FakeLog, *, fuse: Fuse | None = None) -> None:
        self._log, self._fuse = log, fuse or Fuse()
        self._next = log.committed
        self.is_paused = False
        self.commits: list[int] = []

    @property
    def is_ended(self) -> bool:
        return self._next >= len(self._log.items)

    def replay(self) -> Iterator[SourceRecord]:
        for offset in range(self._log.committed):
            if self._log.items[offset] is not CRASH:
                yield self._record(offset)

    def poll(self, max_events: int) -> list[SourceRecord]:
        self._fuse.burn("poll")
        records: list[SourceRecord] = []
        while len(records) < max_events and not self.is_ended:
            if self._log.items[self._next] is CRASH:
                if records:
                    break
                del self._log.items[self._next]
                raise Crash
            records.append(self._record(self._next))
            self._next += 1
        return records

    def rewind(self, offset: int) -> None:
        """Deliver again from here, as a consumer group does after a rebalance."""
        self._next = offset

    def commit(self, positions: list[Position]) -> None:
        assert self.is_paused, "commits happen while the worker is busy"
        self._fuse.burn("commit")
        self._log.committed = max(p.offset for p in positions) + 1
        self.commits.append(self._log.committed)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        pass

    def _record(self, offset: int) -> SourceRecord:
        event = self._log.items[offset]
        assert isinstance(event, Event | BadRecord)
        return SourceRecord(position=Position(0, offset), event=event)


class FakeModel:
    """Vectors that are a function of exactly what the model was shown.

    With histories, what it was shown includes every visible event; so equal vectors mean equal
    inputs, histories included. Items in `poison` are refused; those in `nan` give no number.
    """

    space_id = SPACE_ID
    dim = DIM
    dtype = "int4"

    def __init__(self, histories: HistoryIndex | None = None, *, fuse: Fuse | None = None) -> None:
        self._histories, self._fuse = histories, fuse or Fuse()
        self.poison: set[int] = set()
        self.nan: set[int] = set()
        self.batch_sizes: list[int] = []

    def score(self, examples) -> SimpleNamespace:
        self._fuse.burn("score")
        self.batch_sizes.append(len(examples.at_ms))
        if self.poison & set(examples.item_keys.tolist()):
            raise ValueError(f"item among {sorted(self.poison)}: refused")
        seen = self._seen(examples)
        z = np.zeros((len(examples.at_ms), DIM), dtype=np.float32)
        for row, (user, item, at_ms) in enumerate(
            zip(examples.user_keys, examples.item_keys, examples.at_ms, strict=True)
        ):
            z[row] = vector_of(int(user), int(item), int(at_ms), seen[row])
            if int(item) in self.nan:
                z[row, 0] = np.nan
        return SimpleNamespace(z=z)

    def _seen(self, examples) -> list[str]:
        if self._histories is None:
            return [""] * len(examples.at_ms)
        part = self._histories.visible(
            "purchase", examples.user_keys, examples.at_ms, max_length=100
        )
        rows = zip(part.offsets[:-1], part.offsets[1:], strict=True)
        return [
            str((part.at_ms[low:high].tolist(), part.item_keys[low:high].tolist()))
            for low, high in rows
        ]


def vector_of(user: int, item: int, at_ms: int, seen: str = "") -> np.ndarray:
    """Multiples of 1/8, so that packing loses nothing."""
    digest = hashlib.blake2b(f"{user}/{item}/{at_ms}/{seen}".encode(), digest_size=DIM).digest()
    return np.array([(byte % 16 - 8) / 8 for byte in digest], dtype=np.float32)


class FuseSink:
    """A sink that burns a fuse before, and one after, what it passes on."""

    def __init__(self, sink, fuse: Fuse) -> None:
        self._sink, self._fuse = sink, fuse

    def write(self, scored: Scored) -> None:
        self._fuse.burn("before store")
        self._sink.write(scored)
        self._fuse.burn("after store")

    def require_same_store(self) -> None:
        self._sink.require_same_store()


class FuseStore:
    """A store that burns a fuse between the writes of one batch: memories are in, pairs are not."""

    def __init__(self, store, fuse: Fuse) -> None:
        self._store, self._fuse = store, fuse

    def __getattr__(self, name: str):
        return getattr(self._store, name)

    def put_newest(self, writes) -> list[bool]:
        self._fuse.burn("middle of store")
        return self._store.put_newest(writes)


class FuseLetters:
    """Dead letters in the log, behind a fuse."""

    def __init__(self, log: FakeLog, fuse: Fuse) -> None:
        self._log, self._fuse = log, fuse

    def write(self, letters: Sequence[DeadLetter]) -> int:
        self._fuse.burn("dead letters")
        return self._log.write(letters)


def empty_histories() -> HistoryIndex:
    nothing = np.zeros(0, dtype=np.int64)
    events = Events(
        user_keys=nothing,
        at_ms=nothing,
        arrival_ms=nothing,
        item_keys=nothing,
        codes={"category": nothing},
        numeric={"amount": np.zeros(0, dtype=np.float32)},
    )
    return HistoryIndex.build({"purchase": events})
