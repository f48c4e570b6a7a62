"""A draft of splits.yaml: windows that hold fixed shares of the impressions."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np

from features.arrays import IntArray
from features.errors import DataError
from features.reading.tables import read_batches
from features.schema import EntitySpec
from features.splits import WINDOWS
from features.times import TimeSpec, to_ms

_EDGE_FRACS = (0.15, 0.60, 0.80, 0.85)  # where fm_train, vm_train, tune and test begin
_MAX_KEPT = 1 << 21
_HEAD = """\
# Windows of time, in order: who may learn from what, [start, end) in Unix milliseconds, UTC.
# Guessed: they hold 45, 20, 5 and 15 % of the impressions; the first 15 % are history only.
"""


def draw_windows(folder: Path, files: EntitySpec, time: TimeSpec) -> str:
    """Give the text of a splits.yaml.

    Raises:
        DataError: times that cannot be read, or too few different ones.

    Cost: one pass over the column; memory for two million moments, of more those spread evenly.
    """
    at_ms = np.sort(_moments(folder, files, time))
    edges = [int(at_ms[int(frac * len(at_ms))]) for frac in _EDGE_FRACS] if len(at_ms) else []
    ends = [*edges, int(at_ms[-1]) + 1] if len(at_ms) else []
    if len(set(ends)) < len(WINDOWS) + 1:
        raise DataError(
            f"{folder / files.path}: the impressions are of too few different times for four "
            "windows; write splits.yaml by hand"
        )
    start_ms = int(at_ms[0])
    lines = [f"history_start_ms: {start_ms}  # {_date(start_ms)}, the first impression"]
    for name, start, end in zip(WINDOWS, ends[:-1], ends[1:], strict=True):
        lines.append(f"{name}: [{start}, {end}]  # {_date(start)} to {_date(end)}")
    return _HEAD + "\n".join(lines) + "\n"


def _moments(folder: Path, files: EntitySpec, time: TimeSpec) -> IntArray:
    """Give every n-th moment, with n as small as there is room for."""
    kept, stride, seen, last_ms = np.zeros(0, dtype=np.int64), 1, 0, -1
    for batch in read_batches(folder, files, [time.column]):
        at_ms = to_ms(batch.column(time.column, None), time, where=batch.where)
        first = -seen % stride
        kept = np.concatenate([kept, at_ms[first::stride]])
        seen += len(at_ms)
        last_ms = max(last_ms, int(at_ms.max(initial=-1)))
        while len(kept) > _MAX_KEPT:
            kept, stride = kept[::2], 2 * stride
    # The last window ends after the last impression, whichever were kept.
    return np.append(kept, last_ms) if seen else kept


def _date(at_ms: int) -> str:
    return f"{datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC):%Y-%m-%d %H:%M}"
