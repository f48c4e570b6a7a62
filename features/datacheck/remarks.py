"""What stops training on a log that could be read, and what a person should look at in it."""

from __future__ import annotations

from collections.abc import Iterator

from features.datacheck.leaks import own_item_warnings
from features.datacheck.report import DataReport, LabelRate, SourceReport
from features.splits import WINDOWS

_LEARNT = ("fm_train", "vm_train")
# Above these a figure is worth a second look; they stop nothing.
_MAX_UNKNOWN_FRAC = 0.5
_MAX_COLD_FRAC = 0.5
_MAX_UNSEEN_FRAC = 0.5
_MAX_REPEATED_FRAC = 0.01  # of events
_MAX_SHOWN_AGAIN_FRAC = 0.2  # a request may show an item twice; a log written twice has 0.5
_MAX_AFTER_FRAC = 0.2
_MAX_ONE_SECOND_FRAC = 0.5
_MAX_RATE_RATIO = 3.0
_MIN_POSITIVES = 100  # in both windows, for rates to be compared


def errors_of(report: DataReport) -> Iterator[str]:
    """Give what leaves nothing to learn from, and what tells the labels."""
    for window in WINDOWS:
        if report.rows_by_window is not None and not report.rows_by_window[window]:
            yield f"window {window} of splits.yaml holds no impressions"
    for rate in _one_class(report.label_rates):
        if rate.window in _LEARNT:
            label = int(rate.num_positive > 0)
            yield (
                f"window {rate.window}: every label of {rate.objective} is {label}; there is "
                "nothing to learn"
            )
    if report.leaks is not None:
        yield from (f"likely leak: {leak}" for leak in report.leaks.likely)


def warnings_of(report: DataReport) -> Iterator[str]:
    """Give what a load accepts and may be meant otherwise, one line each."""
    yield from _of_ids(report)
    yield from _of_labels(report.label_rates)
    yield from _of_features(report)
    for source in report.sources:
        if source.num_events:
            yield from _of_events(source)
        else:
            yield f"source {source.source} holds no events"
    if report.leaks is not None:
        yield from own_item_warnings(report.leaks)


def _of_ids(report: DataReport) -> Iterator[str]:
    for what, frac in (("user", report.cold_user_frac), ("item", report.cold_item_frac)):
        if frac is not None and frac > _MAX_COLD_FRAC:
            yield (
                f"{frac:.0%} of the impressions name a {what} that has no row in the {what}s "
                "table; are the ids of both of the same kind?"
            )
    unseen = (("user", report.unseen.user_frac), ("item", report.unseen.item_frac))
    for what, frac in unseen:
        if frac is not None and frac > _MAX_UNSEEN_FRAC:
            yield (
                f"{frac:.0%} of the test impressions name a {what} that no impression before the "
                "test window does"
            )
    repeated = report.repeats.num_same_key if report.repeats is not None else 0
    if repeated > _MAX_SHOWN_AGAIN_FRAC * report.num_impressions:
        yield (
            f"{repeated:,} impressions are of the same request, user, item, surface and moment as "
            "another; was something logged twice?"
        )


def _of_labels(label_rates: tuple[LabelRate, ...]) -> Iterator[str]:
    whole = {(r.window, r.objective): r for r in label_rates if not r.surface}
    for rate in _one_class(label_rates):
        if rate.window not in _LEARNT:
            label = int(rate.num_positive > 0)
            yield (
                f"window {rate.window}: every label of {rate.objective} is {label}; AUC is "
                "undefined there"
            )
    for (window, objective), rate in whole.items():
        test = whole["test", objective]
        if window != "fm_train" or min(rate.num_positive, test.num_positive) < _MIN_POSITIVES:
            continue
        before, after = rate.rate_frac or 0.0, test.rate_frac or 0.0
        if max(before, after) > _MAX_RATE_RATIO * min(before, after):
            yield (
                f"the label rate of {objective} is {before:.4f} in fm_train and {after:.4f} in "
                "test; do late labels still miss, or did the logging change?"
            )


def _one_class(label_rates: tuple[LabelRate, ...]) -> Iterator[LabelRate]:
    for rate in label_rates:
        if rate.num_rows and not rate.surface and rate.num_positive in {0, rate.num_rows}:
            yield rate


def _of_features(report: DataReport) -> Iterator[str]:
    for shares in report.features:
        if shares.unknown_frac is not None and shares.unknown_frac > _MAX_UNKNOWN_FRAC:
            yield (
                f"feature {shares.feature} of {shares.of}: {shares.unknown_frac:.0%} of its values "
                "are unknown; too new, too rare for min_count, or prepared/ is from other tables"
            )


def _of_events(source: SourceReport) -> Iterator[str]:
    name, clock = source.source, source.clock
    if source.repeats.num_exact > _MAX_REPEATED_FRAC * source.num_events:
        yield (
            f"source {name}: {source.repeats.num_exact:,} events repeat another in every column; "
            "was something exported twice?"
        )
    if clock.num_early:
        yield (
            f"source {name}: {clock.num_early:,} events arrived before they happened; do both "
            "columns tell the same clock, in the same zone?"
        )
    if clock.num_after > _MAX_AFTER_FRAC * source.num_events:
        yield (
            f"source {name}: {clock.num_after / source.num_events:.0%} of its events are later "
            "than the last impression, so nothing can see them; are unit and zone right?"
        )
    one_second_frac = clock.commonest_time_frac or 0.0
    # Dates become midnight somewhere, which is a whole half hour in UTC.
    is_date = clock.commonest_time[3:] in {"00:00", "30:00"}
    if one_second_frac > _MAX_ONE_SECOND_FRAC and is_date:
        yield (
            f"source {name}: {one_second_frac:.0%} of its events are at {clock.commonest_time} "
            "UTC: dates without a time? Such an event must count from the end of its day, or it "
            "tells the day's impressions what is still to come"
        )
