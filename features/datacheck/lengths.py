"""How many events impressions may see."""

from __future__ import annotations

import numpy as np

from features.arrays import IntArray
from features.datacheck.parts import evenly_spaced, parts, percentiles, share
from features.datacheck.report import Lengths
from features.dataset import LogDataset
from features.histories import HistoryIndex
from features.schema import SourceSpec

_PERCENTILES = (0, 10, 50, 90, 99, 100)
_MAX_ROWS = 2_000_000
_ROWS_PER_LOOKUP = 65_536


def measure_lengths(
    dataset: LogDataset, index: HistoryIndex, source: SourceSpec, window: str
) -> Lengths:
    """Look up the lengths of the histories in a window.

    Args:
        dataset: the log.
        index: of its histories.
        source: whose events.
        window: of the impressions; of more than two million, those that are spread evenly.

    Cost: as to find them; memory for one part.
    """
    shown = dataset.impressions.between(*getattr(dataset.splits, window))
    rows = evenly_spaced(len(shown), _MAX_ROWS)
    counts = np.zeros(source.max_length + 1, dtype=np.int64)
    for part in parts(len(rows), rows_per_part=_ROWS_PER_LOOKUP):
        found = index.lengths(
            source.name,
            shown.user_keys[rows[part]],
            shown.at_ms[rows[part]],
            max_length=source.max_length,
        )
        counts += np.bincount(found, minlength=len(counts))
    upper = _upper_edges(source.max_length)
    sums = np.cumsum(counts)[list(upper)]
    return Lengths(
        window=window,
        num_rows=len(rows),
        empty_frac=share(int(counts[0]), len(rows)),
        percentiles=percentiles(counts, _PERCENTILES),
        upper=upper,
        num_by_upper=tuple(_differences(sums)),
    )


def _upper_edges(max_length: int) -> tuple[int, ...]:
    """0, 1, 2, 4, 8 and so on, and the longest."""
    edges = [0]
    while edges[-1] < max_length:
        edges.append(min(max(1, 2 * edges[-1]), max_length))
    return tuple(edges)


def _differences(sums: IntArray) -> list[int]:
    found: list[int] = np.diff(sums, prepend=0).tolist()
    return found
