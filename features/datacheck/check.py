"""The whole check of a log folder, from its files to a report."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from features.datacheck.clocks import by_hour, measure_clock, repeated_events, repeated_impressions
from features.datacheck.leaks import measure_leaks
from features.datacheck.lengths import measure_lengths
from features.datacheck.parts import num_distinct, parts
from features.datacheck.rates import measure_rates, span
from features.datacheck.remarks import errors_of, warnings_of
from features.datacheck.report import DataReport, Rejection, SourceReport, Span
from features.datacheck.shares import (
    measure_cold,
    measure_columns,
    measure_shares,
    measure_unseen,
)
from features.dataset import LogDataset, load_dataset
from features.errors import BadRows, GemcutterError, SeveralBadRows
from features.histories import HistoryIndex
from features.log import Events
from features.reading.progress import Progress, silent
from features.schema import SourceSpec
from features.splits import WINDOWS


def check_dataset(folder: Path, *, progress: Progress | None = None) -> DataReport:
    """Read a data set folder as training would and say what is in it, or what stops it.

    Never raises for what is in the folder. As every load, the first one that succeeds keeps the
    encoder and the log's columns in `prepared/`.

    Args:
        folder: with schema.yaml.
        progress: told what is being read or measured, and of how many rows.
    """
    tell = progress or silent
    try:
        dataset = load_dataset(folder, progress=tell)
    except GemcutterError as error:
        lines = tuple(str(error).splitlines())
        return DataReport(folder=str(folder), errors=lines, rejected=_rejected(error))
    report = _measure(dataset, tell)
    return dataclasses.replace(
        report, errors=tuple(errors_of(report)), warnings=tuple(warnings_of(report))
    )


def _measure(dataset: LogDataset, tell: Progress) -> DataReport:
    shown, index = dataset.impressions, dataset.histories()
    tell("counting impressions", len(shown))
    rates, features = measure_rates(dataset), measure_shares(dataset)
    cold_user_frac, cold_item_frac = measure_cold(dataset)
    sources = []
    for source in dataset.schema.sources:
        tell(f"measuring {source.name}", len(dataset.events[source.name]))
        sources.append(_source(dataset, index, source))
    tell("looking for leaks", len(shown))
    return DataReport(
        folder=str(dataset.folder),
        num_dropped=dataset.report.num_dropped,
        schema_id=dataset.schema.schema_id,
        encoder_id=dataset.encoder.encoder_id,
        num_impressions=len(shown),
        num_requests=num_distinct(shown.request_ids),
        num_users=num_distinct(shown.user_keys),
        num_items=num_distinct(shown.item_keys),
        cold_user_frac=cold_user_frac,
        cold_item_frac=cold_item_frac,
        unseen=measure_unseen(dataset),
        span=span(int(shown.at_ms[0]), int(shown.at_ms[-1])) if len(shown) else span(None, None),
        rows_by_window=rates.rows_by_window,
        windows_ms={name: getattr(dataset.splits, name) for name in WINDOWS},
        num_by_hour=by_hour(shown.at_ms),
        label_rates=rates.label_rates,
        timeline=rates.timeline,
        features=features,
        columns=tuple(measure_columns(dataset)),
        collision_frac=dataset.report.collision_frac,
        repeats=repeated_impressions(shown),
        sources=tuple(sources),
        leaks=measure_leaks(dataset, index),
    )


def _source(dataset: LogDataset, index: HistoryIndex, source: SourceSpec) -> SourceReport:
    events, at_ms = dataset.events[source.name], dataset.impressions.at_ms
    last_ms = int(at_ms[-1]) if len(at_ms) else dataset.splits.test[1]
    windows = ("fm_train", "test")
    lengths = tuple(measure_lengths(dataset, index, source, window) for window in windows)
    clock = measure_clock(events, first_ms=dataset.splits.history_start_ms, last_ms=last_ms)
    return SourceReport(
        source=source.name,
        num_events=len(events),
        num_users=num_distinct(events.user_keys),
        span=_event_span(events),
        num_late=clock.num_late,
        visible_at_test=lengths[-1].percentiles,
        lengths=lengths,
        repeats=repeated_events(events),
        clock=clock,
    )


def _event_span(events: Events) -> Span:
    if not len(events):
        return span(None, None)
    first_ms = min(int(events.at_ms[part].min()) for part in parts(len(events)))
    return span(first_ms, max(int(events.at_ms[part].max()) for part in parts(len(events))))


def _rejected(error: GemcutterError) -> tuple[Rejection, ...]:
    found: tuple[BadRows, ...] = ()
    if isinstance(error, SeveralBadRows):
        found = error.parts
    elif isinstance(error, BadRows):
        found = (error,)
    return tuple(
        Rejection(
            place=bad.place,
            problem=bad.problem,
            num_rows=bad.num_rows,
            first_rows=bad.rows,
            example=bad.example,
            hint=bad.hint,
        )
        for bad in found
    )
