"""`splits.yaml`: the windows of time, in order and without overlap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from features.documents import read_yaml
from features.errors import DataError
from features.log import Splits
from features.times import EARLIEST_MS, LATEST_MS

WINDOWS = ("fm_train", "vm_train", "tune", "test")
_START = "history_start_ms"


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
