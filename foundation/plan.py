"""Where a run's batches begin: by rows and by tokens, in the order of time, known before it starts.

A batch of many long histories costs many times one of short ones, so rows alone do not bound
memory. The plan is a function of the data and the budget alone; a place in the run is the number of
a batch, and a run that goes on checks that the plan is still the same.

Rows of one request share its history and stay in one batch. Only a request that is too large for
any batch is split, between its rows, and counted.

Legend: N rows, R requests, K batches.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from features.arrays import IntArray
from features.histories import HistoryIndex
from features.schema import Schema


@dataclass(frozen=True, kw_only=True)
class BatchBudget:
    """What one batch may hold.

    Attributes:
        max_rows: examples.
        max_tokens: events that rows look at, and one for each row itself. A row whose tokens
            alone are more is a batch of its own.
    """

    max_rows: int
    max_tokens: int

    def __post_init__(self) -> None:
        """Refuse a budget that holds nothing."""
        for name in ("max_rows", "max_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """Batches of consecutive rows.

    Shapes:
        bounds: (K + 1,), int64; batch k is the rows [bounds[k], bounds[k + 1]).
        tokens: (K,), int64.

    Attributes:
        num_split: requests that did not fit into one batch.
        num_oversize: batches of one row that has more tokens than the budget.
    """

    bounds: IntArray
    tokens: IntArray
    num_split: int
    num_oversize: int

    def __len__(self) -> int:
        """Number of batches."""
        return len(self.tokens)

    @cached_property
    def plan_id(self) -> str:
        """Sixteen hexadecimal digits that change with any bound."""
        return hashlib.sha256(np.ascontiguousarray(self.bounds).tobytes()).hexdigest()[:16]


def plan_batches(
    starts_R: IntArray, tokens_R: IntArray, num_rows: int, budget: BatchBudget
) -> BatchPlan:
    """Cut consecutive requests into batches, each as full as the budget lets it be.

    Args:
        starts_R: (R,), first row of each request, increasing from 0.
        tokens_R: (R,), tokens of each of its rows.
        num_rows: of all requests.
        budget: of a batch.

    Cost: O(R + K).
    """
    bounds, tokens, num_split, num_oversize = [0], [], 0, 0
    rows_held = tokens_held = 0
    ends = np.append(starts_R, num_rows)[1:].tolist()

    def close(end: int) -> None:
        nonlocal rows_held, tokens_held
        if rows_held:
            bounds.append(end)
            tokens.append(tokens_held)
        rows_held = tokens_held = 0

    for start, end, each in zip(starts_R.tolist(), ends, tokens_R.tolist(), strict=True):
        size = end - start
        if not _fits(rows_held + size, tokens_held + size * each, budget):
            close(start)
        if _fits(size, size * each, budget):
            rows_held, tokens_held = rows_held + size, tokens_held + size * each
            continue
        num_split += size > 1
        piece = max(1, min(budget.max_rows, budget.max_tokens // each))
        for first in range(start, end, piece):
            last = min(first + piece, end)
            num_oversize += (last - first) * each > budget.max_tokens
            rows_held, tokens_held = last - first, (last - first) * each
            if last < end:
                close(last)
    close(num_rows)
    return BatchPlan(
        bounds=np.array(bounds, dtype=np.int64),
        tokens=np.array(tokens, dtype=np.int64),
        num_split=num_split,
        num_oversize=num_oversize,
    )


def request_starts(user_keys: IntArray, at_ms: IntArray) -> IntArray:
    """Give the first row of each request: a run of rows of one user at one moment, (R,)."""
    if not len(user_keys):
        return np.zeros(0, dtype=np.int64)
    fresh = np.ones(len(user_keys), dtype=bool)
    fresh[1:] = (user_keys[1:] != user_keys[:-1]) | (at_ms[1:] != at_ms[:-1])
    return np.flatnonzero(fresh)


def history_tokens(
    schema: Schema,
    histories: HistoryIndex,
    user_keys: IntArray,
    at_ms: IntArray,
    *,
    max_events: int,
) -> IntArray:
    """Give the tokens of a row of each request, (R,): its merged history, and itself."""
    total = np.zeros(len(at_ms), dtype=np.int64)
    for source in schema.sources:
        length = min(source.max_length, max_events)
        total += histories.lengths(source.name, user_keys, at_ms, max_length=length)
    return np.minimum(total, max_events) + 1


def _fits(num_rows: int, num_tokens: int, budget: BatchBudget) -> bool:
    return num_rows <= budget.max_rows and num_tokens <= budget.max_tokens
