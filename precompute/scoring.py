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
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray, IntArray
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
        self._numeric = [f.name for f in context if f.kind == "numeric"]

    def score(self, events: Sequence[Event]) -> Scored:
        """Give the vectors of events whose batch is in the histories already.

        Raises:
            ValueError: a request lacks a context column, or the model refuses an example.
            ScoringError: a vector is not finite or outside [-1, 1].
        """
        done = [
            event
            for event in events
            if isinstance(event, EngagementEvent) and event.source == self._memory_source
        ]
        asked = [event for event in events if isinstance(event, RequestEvent)]
        return Scored(
            engagements=self._score(_of_engagements(done)),
            requests=self._score(self._of_requests(asked)),
        )

    def _score(self, examples: Examples) -> ScoredRows:
        z = np.zeros((len(examples), self._model.dim), dtype=np.float32)
        if len(examples):
            for index in self._plan(examples):
                z[index] = self._model.score(examples.take(index)).z
        _require_usable(z)
        return ScoredRows(
            user_keys=examples.user_keys, item_keys=examples.item_keys, at_ms=examples.at_ms, z=z
        )

    def _of_requests(self, requests: Sequence[RequestEvent]) -> Examples:
        for request in requests:
            missing = {*self._codes, *self._numeric} - {*request.codes, *request.numeric}
            if missing:
                raise ValueError(f"request {request.request_id!r}: no context {sorted(missing)}")
        counts = [len(request.item_keys) for request in requests]
        users = np.array([request.user_key for request in requests], dtype=np.int64)
        at_ms = np.array([request.at_ms for request in requests], dtype=np.int64)
        return Examples(
            user_keys=np.repeat(users, counts),
            item_keys=_concatenate([request.item_keys for request in requests]),
            at_ms=np.repeat(at_ms, counts),
            codes={name: _concatenate([r.codes[name] for r in requests]) for name in self._codes},
            numeric={
                name: _concatenate([r.numeric[name] for r in requests]).astype(np.float32)
                for name in self._numeric
            },
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


def _of_engagements(events: Sequence[EngagementEvent]) -> Examples:
    """Give engagements as pairs of user and item seen nowhere: no context column at all.

    The transfer log has them so; what an absent context means is the model's to say.
    """
    items = [event.item_key for event in events if event.item_key is not None]
    assert len(items) == len(events), "the schema lets only sources with items be memories"
    return Examples(
        user_keys=np.array([event.user_key for event in events], dtype=np.int64),
        item_keys=np.array(items, dtype=np.int64),
        at_ms=np.array([event.at_ms for event in events], dtype=np.int64),
        codes={},
        numeric={},
    )


def _concatenate(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _require_usable(z: FloatArray) -> None:
    # Written so that not-a-number fails it too.
    is_usable = (np.abs(z) <= 1).all(axis=1)
    if not is_usable.all():
        row = int(np.flatnonzero(~is_usable)[0])
        raise ScoringError(
            f"vector {row} of {len(z)}: expected finite values in [-1, 1], got {z[row].tolist()}"
        )
