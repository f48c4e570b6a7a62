"""Rows and label rates, by window and over time, in one pass over the impressions."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from features.arrays import IntArray
from features.datacheck.parts import parts, share
from features.datacheck.report import LabelRate, RateSeries, Span, Timeline
from features.dataset import LogDataset
from features.schema import SURFACE
from features.splits import WINDOWS

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_WIDTHS_MS = (_HOUR_MS, 6 * _HOUR_MS, _DAY_MS, 7 * _DAY_MS, 28 * _DAY_MS)
_MAX_STEPS = 120


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Counts by window and over time.

    Attributes:
        rows_by_window: impressions of each window, and of none.
    """

    rows_by_window: dict[str, int]
    label_rates: tuple[LabelRate, ...]
    timeline: Timeline


@dataclass(frozen=True, kw_only=True)
class _Steps:
    """Equal steps of time."""

    start_ms: int
    width_ms: int
    num: int

    def places(self, at_ms: IntArray) -> IntArray:
        """Step of each moment; outside all of them -1 or num."""
        return np.clip((at_ms - self.start_ms) // self.width_ms, -1, self.num)


def measure_rates(dataset: LogDataset) -> Rates:
    """Count impressions, labels and events.

    Cost: one pass over each table; memory for one part.
    """
    steps = _steps(dataset)
    by_window, by_step = _counts(dataset, steps)
    series = tuple(_series(dataset, by_step))
    return Rates(
        rows_by_window=_rows_by_window(dataset),
        label_rates=tuple(_label_rates(dataset, by_window)),
        timeline=Timeline(
            starts_ms=tuple(steps.start_ms + steps.width_ms * i for i in range(steps.num)),
            width_ms=steps.width_ms,
            num_impressions=tuple(by_step[:, :, 0].sum(axis=1).tolist()),
            num_events={
                name: _by_step(events.at_ms, steps) for name, events in dataset.events.items()
            },
            rates=series,
        ),
    )


def span(first_ms: int | None, last_ms: int | None) -> Span:
    """Give two moments as dates."""
    return Span(first=_date(first_ms), last=_date(last_ms))


def _date(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).date().isoformat()


def _steps(dataset: LogDataset) -> _Steps:
    at_ms = dataset.impressions.at_ms
    last_ms = int(at_ms[-1]) if len(at_ms) else dataset.splits.test[1]
    first_ms = min(dataset.splits.history_start_ms, int(at_ms[0]) if len(at_ms) else last_ms)
    for width_ms in _WIDTHS_MS:
        start_ms = first_ms // width_ms * width_ms
        num = (last_ms - start_ms) // width_ms + 1
        if num <= _MAX_STEPS:
            break
    return _Steps(start_ms=start_ms, width_ms=width_ms, num=num)


def _counts(dataset: LogDataset, steps: _Steps) -> tuple[IntArray, IntArray]:
    """Give rows, then positives of each objective, by (window or step, surface code)."""
    shown, num_codes = dataset.impressions, dataset.encoder.size(SURFACE)
    columns = 1 + len(shown.labels)
    by_window = np.zeros((len(WINDOWS) + 1, num_codes, columns), dtype=np.int64)
    by_step = np.zeros((steps.num + 2, num_codes, columns), dtype=np.int64)
    for part in parts(len(shown)):
        rows = shown.take(part)
        window = np.full(len(rows), len(WINDOWS))
        for number, name in enumerate(WINDOWS):
            first, last = np.searchsorted(rows.at_ms, getattr(dataset.splits, name))
            window[first:last] = number
        for counts, group in ((by_window, window), (by_step, steps.places(rows.at_ms) + 1)):
            place = group * num_codes + rows.codes[SURFACE]
            weights = [None, *rows.labels.values()]
            for column, weight in enumerate(weights):
                size = counts.shape[0] * num_codes
                found = np.bincount(place, weights=weight, minlength=size)
                counts[:, :, column] += found.reshape(-1, num_codes).astype(np.int64)
    return by_window, by_step[1:-1]


def _by_step(at_ms: IntArray, steps: _Steps) -> tuple[int, ...]:
    counts = np.zeros(steps.num + 2, dtype=np.int64)
    for part in parts(len(at_ms)):
        counts += np.bincount(steps.places(at_ms[part]) + 1, minlength=steps.num + 2)
    return tuple(counts[1:-1].tolist())


def _rows_by_window(dataset: LogDataset) -> dict[str, int]:
    shown, rows = dataset.impressions, {}
    for window in WINDOWS:
        first, last = np.searchsorted(shown.at_ms, getattr(dataset.splits, window))
        rows[window] = int(last - first)
    rows["in none"] = len(shown) - sum(rows.values())
    return rows


def _by_surface(dataset: LogDataset, counts: IntArray) -> Iterator[tuple[str, IntArray]]:
    """Give the counts of all surfaces together, then of each."""
    yield "", counts.sum(axis=1)
    surfaces = dataset.schema.surfaces
    codes = dataset.encoder.codes(SURFACE, surfaces)
    for surface, code in zip(surfaces, codes, strict=True):
        yield surface, counts[:, code]


def _label_rates(dataset: LogDataset, by_window: IntArray) -> Iterator[LabelRate]:
    for number, window in enumerate(WINDOWS):
        for surface, counts in _by_surface(dataset, by_window):
            for column, objective in enumerate(dataset.impressions.labels, start=1):
                num_rows, num_positive = int(counts[number, 0]), int(counts[number, column])
                yield LabelRate(
                    window=window,
                    surface=surface,
                    objective=objective,
                    num_rows=num_rows,
                    num_positive=num_positive,
                    rate_frac=share(num_positive, num_rows),
                )


def _series(dataset: LogDataset, by_step: IntArray) -> Iterator[RateSeries]:
    for surface, counts in _by_surface(dataset, by_step):
        for column, objective in enumerate(dataset.impressions.labels, start=1):
            yield RateSeries(
                surface=surface,
                objective=objective,
                num_rows=tuple(counts[:, 0].tolist()),
                num_positive=tuple(counts[:, column].tolist()),
            )
