"""From events to vectors: which examples the foundation model sees, and in which micro-batches.

Point in time. A batch's engagements are put into the histories *before* the batch is scored.
A history shows only what happened strictly before a moment and had arrived by then, so an event
never sees itself or one at its own moment, and does see the earlier ones of its own batch. With
the other order the inputs of an event would depend on where the batches were cut.

Errors: ScoringError (a GemcutterError), when the model gives vectors that cannot be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from features.arrays import FloatArray, IntArray
from features.encoding import NULL
from features.errors import GemcutterError
from features.histories import HistoryIndex
from features.schema import Schema
from foundation.batches import Examples
from precompute.events import EngagementEvent, Event, RequestEvent


class ScoringError(GemcutterError):
    """The foundation model gave something that must not be stored."""


class Scores(Protocol):
    """What the foundation model gives for examples: z is (n, d), float32 in [-1, 1]."""

    @property
    def z(self) -> FloatArray:
        """Vectors, one per example."""


class FoundationModel(Protocol):
    """The part of the frozen foundation model that the worker uses."""

    @property
    def space_id(self) -> str:
        """16 hex digits; part of every key."""

    @property
    def dim(self) -> int:
        """Width of a vector."""

    def score(self, examples: Examples) -> Scores:
        """Score examples against the histories the model was opened with."""


@dataclass(frozen=True, kw_only=True)
class MicroBatchBudget:
    """Most that one pass through the model may hold.

    Attributes:
        max_rows: examples.
        max_tokens: examples times the events each of them sees; a single example may exceed it.
    """

    max_rows: int = 512
    max_tokens: int = 65_536

    def __post_init__(self) -> None:
        """Refuse budgets that hold nothing."""
        if self.max_rows < 1 or self.max_tokens < 1:
            raise ValueError(f"micro-batch budget: expected 1 or more of each, got {self}")


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredRows:
    """Vectors to be stored.

    Shapes:
        user_keys, item_keys, at_ms: (n,), int64. z: (n, d), float32.
    """

    user_keys: IntArray
    item_keys: IntArray
    at_ms: IntArray
    z: FloatArray

    def __len__(self) -> int:
        return len(self.at_ms)

    def take(self, index: IntArray) -> ScoredRows:
        """Give some of the rows."""
        return ScoredRows(
            user_keys=self.user_keys[index],
            item_keys=self.item_keys[index],
            at_ms=self.at_ms[index],
            z=self.z[index],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """Vectors of a batch: of what users did, and of users with the items asked for."""

    engagements: ScoredRows
    requests: ScoredRows

    @property
    def num_samples(self) -> int:
        """Number of vectors."""
        return len(self.engagements) + len(self.requests)


class EventScorer:
    """Scores events in micro-batches.

    Args:
        schema: its context features are the columns of every example; the lengths of its sources
            bound how many events an example sees.
        histories: those the model reads.
        memory_source: engagements of this source are scored, those of others only remembered.
    """

    def __init__(
        self,
        model: FoundationModel,
        *,
        schema: Schema,
        histories: HistoryIndex,
        memory_source: str,
        budget: MicroBatchBudget | None = None,
    ) -> None:
        self._model = model
        self._histories = histories
        self._memory_source = memory_source
        self._max_lengths = {source.name: source.max_length for source in schema.sources}
        self._budget = budget or MicroBatchBudget()
        context = schema.features_of("context")
        self._codes = [f.name for f in context if f.kind == "categorical"]
        self._numeric = {f.name: f.default or 0.0 for f in context if f.kind == "numeric"}

    def is_scored(self, event: Event) -> bool:
        """Tell whether the event has a vector at all."""
        if isinstance(event, RequestEvent):
            return len(event.item_keys) > 0
        return event.source == self._memory_source and event.item_key is not None

    def score(self, events: Sequence[Event]) -> Scored:
        """Give the vectors of events whose batch is in the histories already.

        Raises:
            ValueError: an event lacks a context column, or the model refuses an example.
            ScoringError: a vector is not finite or outside [-1, 1].
        """
        events = [event for event in events if self.is_scored(event)]
        examples, is_engagement = self._to_examples(events)
        z = np.zeros((len(examples.at_ms), self._model.dim), dtype=np.float32)
        for index in self._plan(examples):
            z[index] = self._model.score(_take(examples, index)).z
        _require_usable(z)
        rows = ScoredRows(
            user_keys=examples.user_keys, item_keys=examples.item_keys, at_ms=examples.at_ms, z=z
        )
        return Scored(
            engagements=rows.take(np.flatnonzero(is_engagement)),
            requests=rows.take(np.flatnonzero(~is_engagement)),
        )

    def _to_examples(self, events: Sequence[Event]) -> tuple[Examples, np.ndarray]:
        parts = [self._columns(event) for event in events]
        examples = Examples(
            user_keys=_concatenate([part.user_keys for part in parts]),
            item_keys=_concatenate([part.item_keys for part in parts]),
            at_ms=_concatenate([part.at_ms for part in parts]),
            codes={name: _concatenate([p.codes[name] for p in parts]) for name in self._codes},
            numeric={
                name: _concatenate([p.numeric[name] for p in parts]).astype(np.float32)
                for name in self._numeric
            },
        )
        counts = [len(part.at_ms) for part in parts]
        kinds = [isinstance(event, EngagementEvent) for event in events]
        return examples, np.repeat(np.array(kinds, dtype=bool), counts)

    def _columns(self, event: Event) -> Examples:
        if isinstance(event, RequestEvent):
            missing = {*self._codes, *self._numeric} - {*event.codes, *event.numeric}
            if missing:
                raise ValueError(f"request {event.request_id!r}: no context {sorted(missing)}")
            num = len(event.item_keys)
            return Examples(
                user_keys=np.full(num, event.user_key, dtype=np.int64),
                item_keys=event.item_keys,
                at_ms=np.full(num, event.at_ms, dtype=np.int64),
                codes=event.codes,
                numeric=event.numeric,
            )
        assert event.item_key is not None, "only engagements with an item are scored"
        return Examples(
            user_keys=np.array([event.user_key], dtype=np.int64),
            item_keys=np.array([event.item_key], dtype=np.int64),
            at_ms=np.array([event.at_ms], dtype=np.int64),
            codes={name: np.array([NULL], dtype=np.int64) for name in self._codes},
            numeric={n: np.array([v], dtype=np.float32) for n, v in self._numeric.items()},
        )

    def _plan(self, examples: Examples) -> list[IntArray]:
        moments = np.stack([examples.user_keys, examples.at_ms], axis=1)
        distinct, inverse = np.unique(moments, axis=0, return_inverse=True)
        lengths = np.zeros(len(distinct), dtype=np.int64)
        for source, max_length in self._max_lengths.items():
            lengths += self._histories.visible(
                source, distinct[:, 0], distinct[:, 1], max_length=max_length
            ).lengths
        return plan_micro_batches(
            examples.user_keys, lengths[inverse.reshape(-1)] + 1, budget=self._budget
        )


def plan_micro_batches(
    user_keys: IntArray, tokens: IntArray, *, budget: MicroBatchBudget
) -> list[IntArray]:
    """Give row indices per micro-batch: every row once, a user's rows side by side.

    A user is cut in two only where the budget leaves no other way.

    Shapes:
        user_keys, tokens: (n,), int64; tokens is what each row costs.
    """
    order = np.argsort(user_keys, kind="stable")
    starts = np.flatnonzero(np.diff(user_keys[order], prepend=user_keys[order][:1] - 1))
    batches: list[IntArray] = []
    current: list[IntArray] = []
    num_rows = num_tokens = 0
    for rows in np.split(order, starts[1:]):
        for piece in _cut(rows, tokens, budget):
            cost = int(tokens[piece].sum())
            is_full = (
                num_rows + len(piece) > budget.max_rows or num_tokens + cost > budget.max_tokens
            )
            if current and is_full:
                batches.append(np.concatenate(current))
                current, num_rows, num_tokens = [], 0, 0
            current.append(piece)
            num_rows, num_tokens = num_rows + len(piece), num_tokens + cost
    if num_rows:
        batches.append(np.concatenate(current))
    return batches


def _cut(rows: IntArray, tokens: IntArray, budget: MicroBatchBudget) -> list[IntArray]:
    """Cut one user's rows into pieces that fit a micro-batch each."""
    pieces: list[IntArray] = []
    start, cost = 0, 0
    for place, row in enumerate(rows):
        is_full = place - start >= budget.max_rows or cost + int(tokens[row]) > budget.max_tokens
        if place > start and is_full:
            pieces.append(rows[start:place])
            start, cost = place, 0
        cost += int(tokens[row])
    return [*pieces, rows[start:]]


def _take(examples: Examples, index: IntArray) -> Examples:
    return Examples(
        user_keys=examples.user_keys[index],
        item_keys=examples.item_keys[index],
        at_ms=examples.at_ms[index],
        codes={name: column[index] for name, column in examples.codes.items()},
        numeric={name: column[index] for name, column in examples.numeric.items()},
    )


def _concatenate(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _require_usable(z: FloatArray) -> None:
    # Written so that not-a-number fails it too.
    is_usable = (np.abs(z) <= 1).all(axis=1)
    if not is_usable.all():
        row = int(np.flatnonzero(~is_usable)[0])
        raise ScoringError(
            f"vector {row} of {len(z)}: expected finite values in [-1, 1], got {z[row].tolist()}"
        )
