"""Columns of any length, a part at a time: they may be mapped files larger than the memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from features.arrays import IntArray

ROWS_PER_PART = 262_144

_MAX_DISTINCT = 1 << 22  # keys held at once while counting, 32 MB
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def parts(num_rows: int, *, rows_per_part: int = ROWS_PER_PART) -> Iterator[slice]:
    """Give consecutive ranges of rows that cover all of them."""
    for start in range(0, num_rows, rows_per_part):
        yield slice(start, min(start + rows_per_part, num_rows))


def evenly_spaced(num_rows: int, max_rows: int) -> IntArray:
    """Give places spread evenly over the rows, at most so many, sorted and without repeats."""
    if num_rows <= max_rows:
        return np.arange(num_rows)
    return np.linspace(0, num_rows - 1, max_rows).astype(np.int64)


def num_distinct(keys: IntArray) -> int:
    """Count different keys.

    Cost: memory for 4 million keys; one pass over the column for each 4 million rows.
    """
    num_passes = -(-len(keys) // _MAX_DISTINCT)
    return sum(
        len(_distinct(keys, number, num_passes, _MAX_DISTINCT)) for number in range(num_passes)
    )


def distinct(keys: IntArray) -> IntArray:
    """Give the different keys, sorted.

    Cost: memory for them and for 4 million more.
    """
    return _distinct(keys, 0, 1, _MAX_DISTINCT)


def percentiles(counts: IntArray, wanted: tuple[int, ...]) -> dict[str, int]:
    """Give percentiles of values from how often each occurs; nothing if none does.

    Shapes:
        counts: (M,), how often the values 0 to M - 1 occur.
    """
    total = int(counts.sum())
    if not total:
        return {}
    ranks = [max(1, -(-p * total // 100)) for p in wanted]
    places = np.searchsorted(np.cumsum(counts), ranks)
    return {f"p{p}": int(place) for p, place in zip(wanted, places, strict=True)}


def share(part: int | float, whole: int | float) -> float | None:
    """Give a part of a whole; None of nothing."""
    return float(part) / float(whole) if whole else None


def _distinct(keys: IntArray, number: int, num_passes: int, max_pending: int) -> IntArray:
    found, pending, num_pending = np.zeros(0, dtype=np.int64), list[npt.NDArray[Any]](), 0
    for part in parts(len(keys)):
        chosen = np.asarray(keys[part])
        if num_passes > 1:
            mixed = (chosen.astype(np.uint64) * _GOLDEN) >> np.uint64(32)
            chosen = chosen[mixed % np.uint64(num_passes) == number]
        pending.append(np.unique(chosen))
        num_pending += len(pending[-1])
        if num_pending > max_pending:
            found, pending, num_pending = np.unique(np.concatenate([found, *pending])), [], 0
    return np.unique(np.concatenate([found, *pending]))
