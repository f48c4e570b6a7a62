"""The precompute worker: from events to vectors in the store, at least once and with one outcome.

Commit order, the only one:

    1. poll        take the next records from the source
    2. decode      bad ones are set aside with their reason (the source decodes as it delivers)
    3. remember    the batch's engagements enter the histories
    4. score       the foundation model gives vectors; a record it refuses is set aside
    5. store       every write is acknowledged by the store
    6. set aside   dead letters are on disk
    7. commit      the source remembers the position

A step that fails stops the worker before the next one, so a position is committed only when its
vectors are in the store and its bad records on disk. Whatever was not committed comes again, and
changes nothing: memories are sets named by event time and item, pairs keep the newest, histories
and dead letters know positions. The outcome depends on the events and not on their batches, as
long as records come in the order in which they became known or say when they arrived.

Errors pass through: SourceError (poll, dead letters, commit), StoreError (the store, after bounded
retries), and whatever the foundation model raises that is not about a record.
"""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from features.errors import StoreError
from features.histories import HistoryIndex
from precompute.counters import Counters
from precompute.deadletters import DeadLetter, DeadLetters
from precompute.events import BadRecord, EngagementEvent, Event, RequestEvent, to_columns
from precompute.scoring import EventScorer, Scored, ScoringError
from precompute.sources.source import Position, Source, SourceRecord


class VectorSink(Protocol):
    """Where vectors go; writing the same ones again changes nothing."""

    def write(self, scored: Scored) -> None:
        """Write all vectors and return when the store has them.

        Raises:
            StoreError: some may not have been written.
        """

    def require_same_store(self) -> None:
        """Check that what was written before is still there; asked before every commit, and idle.

        Raises:
            StoreError: the store failed, or was emptied or replaced.
        """


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """Limits of one worker.

    Attributes:
        max_events: records in one batch, which is scored, stored and committed together.
        max_record_attempts: times a record is scored alone before it is set aside.
        store_patience_ms: how long a write is tried again before the worker stops.
        backoff_ms, max_backoff_ms: first and longest wait between tries; doubled and jittered.
        idle_ms: wait after an empty poll.
    """

    max_events: int = 256
    max_record_attempts: int = 2
    store_patience_ms: float = 120_000.0
    backoff_ms: float = 50.0
    max_backoff_ms: float = 2_000.0
    idle_ms: float = 200.0

    def __post_init__(self) -> None:
        """Refuse limits that would do nothing or try for ever."""
        for name in ("max_events", "max_record_attempts"):
            if getattr(self, name) < 1:
                raise ValueError(f"worker {name}: expected 1 or more, got {getattr(self, name)}")


class Worker:
    """Runs the commit order above over one source.

    One thread runs it; `stop` may be called from any thread or a signal handler.

    Args:
        histories: those the scorer's model reads; the worker adds to them. They must hold what
            became known before the source's first record, and nothing after.
        sleep_s: waits that many seconds.
        jitter: for the back-off.
    """

    def __init__(
        self,
        source: Source,
        scorer: EventScorer,
        *,
        sink: VectorSink,
        histories: HistoryIndex,
        dead_letters: DeadLetters,
        config: WorkerConfig | None = None,
        sleep_s: Callable[[float], None] = time.sleep,
        jitter: random.Random | None = None,
    ) -> None:
        self.counters = Counters()
        self._source, self._scorer, self._sink = source, scorer, sink
        self._dead_letters, self._config = dead_letters, config or WorkerConfig()
        self._sleep_s = sleep_s
        self._jitter = jitter or random.Random()  # noqa: S311  spreads retries, guards nothing
        self._ledger = _Ledger(histories)
        self._pending: deque[SourceRecord] = deque()
        self._is_stopping = False
        self._is_restored = False

    def run(self, *, is_following: bool = False) -> None:
        """Work until stopped; without is_following also until the source has no more.

        The batch in hand is finished either way.
        """
        while not self._is_stopping:
            if self.step() == 0:
                if self._source.is_ended and not is_following:
                    return
                time.sleep(self._config.idle_ms / 1e3)
                self._sink.require_same_store()

    def run_until(self, at_ms: int) -> int:
        """Work through every record that became known before a moment, and no further.

        Returns how many records were dealt with. Stops where the source has nothing more now, and
        before the first record of the moment or after it.
        """
        num_done = 0
        while not self._is_stopping:
            num_step = self.step(before_ms=at_ms)
            if num_step == 0:
                break
            num_done += num_step
        return num_done

    def stop(self) -> None:
        """Ask the worker to return after the batch in hand is committed, from anywhere.

        A signal's handler may call this, so it takes no lock.
        """
        self._is_stopping = True

    def step(self, *, before_ms: int | None = None) -> int:
        """Take one batch through the commit order; say how many records were dealt with."""
        if not self._is_restored:
            self._restore()
        batch = self._next_batch(before_ms)
        if not batch:
            return 0
        self._source.pause()
        try:
            self._work(batch)
        finally:
            self._source.resume()
        for _ in batch:
            self._pending.popleft()
        return len(batch)

    def _restore(self) -> None:
        """Put what was committed by an earlier run into the histories."""
        chunk: list[SourceRecord] = []
        for record in self._source.replay():
            chunk.append(record)
            if len(chunk) >= 10_000:
                self._ledger.remember(chunk)
                chunk = []
        self._ledger.remember(chunk)
        self._ledger.mark_remembered_done()
        self._is_restored = True

    def _next_batch(self, before_ms: int | None) -> list[SourceRecord]:
        room = self._config.max_events - len(self._pending)
        if room > 0:
            polled = self._source.poll(room)
            self.counters.num_polled += len(polled)
            self._pending.extend(polled)
        batch: list[SourceRecord] = []
        for record in self._pending:
            known_ms = record.known_at_ms
            if before_ms is not None and known_ms is not None and known_ms >= before_ms:
                break
            batch.append(record)
        return batch

    def _work(self, batch: Sequence[SourceRecord]) -> None:
        fresh = [record for record in batch if not self._ledger.is_done(record.position)]
        letters = [
            self._letter(record, record.event.reason, record.event.payload)
            for record in fresh
            if isinstance(record.event, BadRecord)
        ]
        self.counters.num_late += self._ledger.remember(fresh)
        scored, refused = self._score(fresh)
        self._store(scored)
        num_letters = self._dead_letters.write([*letters, *refused])
        positions = self._ledger.furthest(batch)
        self._sink.require_same_store()
        self._source.commit(positions)
        self._ledger.mark_done(positions)
        self._count(fresh, scored)
        self.counters.num_duplicates += len(batch) - len(fresh)
        self.counters.num_dead_letters += num_letters

    def _score(self, records: Sequence[SourceRecord]) -> tuple[list[Scored], list[DeadLetter]]:
        started_s = time.perf_counter()
        good = [(r, r.event) for r in records if not isinstance(r.event, BadRecord)]
        refused: list[DeadLetter] = []
        try:
            scored = [self._scorer.score([event for _, event in good])]
        except (ValueError, ScoringError):
            # One of them is bad: find it by scoring each alone.
            scored, refused = self._score_alone(good)
        self.counters.scoring_s += time.perf_counter() - started_s
        return scored, refused

    def _score_alone(
        self, records: Sequence[tuple[SourceRecord, Event]]
    ) -> tuple[list[Scored], list[DeadLetter]]:
        scored: list[Scored] = []
        refused: list[DeadLetter] = []
        for record, event in records:
            for attempt in range(1, self._config.max_record_attempts + 1):
                try:
                    scored.append(self._scorer.score([event]))
                    break
                except (ValueError, ScoringError) as error:
                    if attempt == self._config.max_record_attempts:
                        reason = f"{type(error).__name__}: {error}"
                        refused.append(self._letter(record, reason, _describe(event)))
        return scored, refused

    def _store(self, scored: Sequence[Scored]) -> None:
        started_s = time.perf_counter()
        for part in scored:
            self._write_with_retries(part)
        self.counters.storing_s += time.perf_counter() - started_s

    def _write_with_retries(self, scored: Scored) -> None:
        config, waited_ms, wait_ms = self._config, 0.0, self._config.backoff_ms
        while True:
            try:
                self._sink.write(scored)
                return
            except StoreError:
                # Whoever stops the worker does not wait for a store that is away.
                if waited_ms >= config.store_patience_ms or self._is_stopping:
                    raise
            self.counters.num_store_retries += 1
            self._sleep_s(wait_ms * self._jitter.uniform(0.5, 1.5) / 1e3)
            waited_ms += wait_ms
            wait_ms = min(2 * wait_ms, config.max_backoff_ms)

    def _count(self, fresh: Sequence[SourceRecord], scored: Sequence[Scored]) -> None:
        counters = self.counters
        counters.num_commits += 1
        for record in fresh:
            counters.num_engagements += isinstance(record.event, EngagementEvent)
            counters.num_requests += isinstance(record.event, RequestEvent)
            newest_ms = max(counters.newest_known_at_ms, record.known_at_ms or 0)
            counters.newest_known_at_ms = newest_ms
        for part in scored:
            counters.num_fm_samples += part.num_samples
            counters.num_memory_vectors += len(part.engagements)
            counters.num_pair_vectors += len(part.requests)

    def _letter(self, record: SourceRecord, reason: str, payload: bytes) -> DeadLetter:
        return DeadLetter(
            source=self._source.name, position=record.position, reason=reason, payload=payload
        )


class _Ledger:
    """What this worker has already put into the histories, and what it has finished."""

    def __init__(self, histories: HistoryIndex) -> None:
        self._histories = histories
        self._remembered: dict[int, int] = {}
        self._done: dict[int, int] = {}
        self._newest_ms: dict[int, int] = {}

    def is_done(self, position: Position) -> bool:
        return position.offset <= self._done.get(position.partition, -1)

    def furthest(self, batch: Sequence[SourceRecord]) -> list[Position]:
        """Give, for each partition of a batch, how far all is done once the batch is.

        Not always the end of the batch: what comes again must not move a commit back.
        """
        last: dict[int, int] = {}
        for record in batch:
            partition, offset = record.position.partition, record.position.offset
            known = last.get(partition, self._done.get(partition, -1))
            last[partition] = max(known, offset)
        return [Position(partition, offset) for partition, offset in last.items()]

    def mark_done(self, positions: Sequence[Position]) -> None:
        self._done.update({position.partition: position.offset for position in positions})

    def mark_remembered_done(self) -> None:
        self._done.update(self._remembered)

    def remember(self, records: Sequence[SourceRecord]) -> int:
        """Add engagements to the histories, each position once; say how many events are late."""
        by_source: dict[str, list[EngagementEvent]] = defaultdict(list)
        num_late = 0
        for record in records:
            partition, offset = record.position.partition, record.position.offset
            if offset <= self._remembered.get(partition, -1):
                continue
            self._remembered[partition] = offset
            event = record.event
            if isinstance(event, BadRecord):
                continue
            newest_ms = self._newest_ms.get(event.user_key, event.at_ms)
            num_late += event.at_ms < newest_ms
            self._newest_ms[event.user_key] = max(newest_ms, event.at_ms)
            if isinstance(event, EngagementEvent):
                by_source[event.source].append(event)
        for source, events in by_source.items():
            self._histories.append(source, to_columns(events))
        return num_late


def _describe(event: Event) -> bytes:
    """Give an event that was decoded as JSON, for a dead letter."""
    content: dict[str, object] = {"user_key": event.user_key, "at_ms": event.at_ms}
    if isinstance(event, RequestEvent):
        content |= {"request_id": event.request_id, "item_keys": event.item_keys.tolist()}
    else:
        content |= {"source": event.source, "item_key": event.item_key}
    return json.dumps(content).encode("utf-8")
