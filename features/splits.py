"""`splits.yaml`: the windows of time, in order and without overlap.

Without the file, windows are drawn by time so that they hold these shares of the impressions: the
first 15 % are history only, then 45 % train the foundation model, 20 % the verticals, 5 % tune
and 15 % test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from features.documents import read_yaml
from features.errors import DataError
from features.files import write_whole
from features.log import Splits
from features.reading.columns import file_batches, impression_keys, read_arrays
from features.reading.progress import Progress
from features.reading.rejections import Rejections
from features.schema import Schema
from features.times import EARLIEST_MS, LATEST_MS

WINDOWS = ("fm_train", "vm_train", "tune", "test")
_START = "history_start_ms"
_EDGE_FRACS = (0.15, 0.60, 0.80, 0.85)  # where fm_train, vm_train, tune and test begin


def load_splits(path: Path) -> Splits:
    """Read `splits.yaml`.

    Raises:
        DataError: a window is missing, empty, reaches into the next, or is not in milliseconds.
    """
    try:
        document = read_yaml(path)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise DataError(f"{path}: expected a mapping, got {type(document).__name__}")
    expected = {_START, *WINDOWS}
    if document.keys() != expected:
        missing, stray = sorted(expected - document.keys()), sorted(document.keys() - expected)
        raise DataError(f"{path}: missing {missing}, unknown {stray}")
    end_ms = start = _moment(document[_START], f"{path}: {_START}")
    windows = {}
    for name in WINDOWS:
        windows[name] = _window(document[name], f"{path}: {name}", end_ms)
        end_ms = windows[name][1]
    return Splits(history_start_ms=start, **windows)


def draw_splits(folder: Path, schema: Schema, *, progress: Progress) -> Splits:
    """Draw windows from the times of the impressions.

    Raises:
        DataError: there are too few different times for four windows.
    """
    columns = impression_keys(schema)[:1]
    parts = []
    for batch, arrays in read_arrays(
        file_batches(folder, schema.impressions, columns), columns, Rejections()
    ):
        parts.append(arrays["at_ms"])
        progress("looking for windows", batch.first_row + len(batch))
    at_ms = np.sort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)
    places = [int(frac * len(at_ms)) for frac in _EDGE_FRACS]
    edges = [int(at_ms[place]) for place in places] if len(at_ms) else []
    ends = [*edges, int(at_ms[-1]) + 1] if len(at_ms) else []
    if len(set(ends)) < len(WINDOWS) + 1:
        raise DataError(
            f"{folder / schema.impressions.path}: no windows can be drawn from {len(at_ms)} rows "
            f"at {len(np.unique(at_ms))} different times; write splits.yaml"
        )
    windows = {name: (ends[i], ends[i + 1]) for i, name in enumerate(WINDOWS)}
    return Splits(history_start_ms=int(at_ms[0]), **windows)


def save_splits(path: Path, splits: Splits) -> None:
    """Write windows as `load_splits` reads them."""
    document: dict[str, Any] = {_START: splits.history_start_ms}
    document |= {name: list(getattr(splits, name)) for name in WINDOWS}
    write_whole(path, yaml.safe_dump(document, sort_keys=False).encode())


def _window(value: Any, place: str, earliest_ms: int) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise DataError(f"{place}: expected [start, end] in Unix milliseconds, got {value!r}")
    start_ms, end_ms = (_moment(moment, place) for moment in value)
    if start_ms < earliest_ms or end_ms <= start_ms:
        raise DataError(
            f"{place} is [{start_ms}, {end_ms}), expected a window that is not empty and starts "
            f"at {earliest_ms} or later"
        )
    return start_ms, end_ms


def _moment(value: Any, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise DataError(f"{place}: expected Unix milliseconds, got {value!r}")
    if not EARLIEST_MS <= value < LATEST_MS:
        raise DataError(f"{place}: expected Unix milliseconds of 1990 to 2100, got {value}")
    return value
