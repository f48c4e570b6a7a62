"""What is in a log folder, in figures: for a person, before anything is trained on it.

The folder is read exactly as training reads it. Nothing here is needed to train or to serve.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from features.arrays import IntArray
from features.dataset import LogDataset, load_dataset
from features.encoding import NULL, UNKNOWN
from features.errors import GemcutterError
from features.schema import SURFACE
from features.splits import WINDOWS

_PERCENTILES = (0, 10, 50, 90, 99, 100)
_ROWS_PER_LOOKUP = 65_536
# Above these a figure is worth a second look; they stop nothing.
_MAX_UNKNOWN_FRAC = 0.5
_MAX_COLD_FRAC = 0.5


@dataclass(frozen=True, kw_only=True)
class Span:
    """First and last moment of some rows, as ISO 8601 dates in UTC; None without rows."""

    first: str | None
    last: str | None


@dataclass(frozen=True, kw_only=True)
class LabelRate:
    """How often an objective's label is 1, in one window and on one surface ("" means all)."""

    window: str
    surface: str
    objective: str
    num_rows: int
    num_positive: int
    rate_frac: float | None


@dataclass(frozen=True, kw_only=True)
class FeatureShares:
    """How much of a categorical feature says nothing.

    Attributes:
        of: user, item, context, or the source's name.
        num_codes: of its vocabulary, the three reserved ones included.
        null_frac, unknown_frac: of the impressions; of the events for a source's column. An
            impression whose user has no row in its table counts as null, one whose item has none
            as unknown.
    """

    of: str
    feature: str
    vocabulary: str
    num_codes: int
    null_frac: float | None
    unknown_frac: float | None


@dataclass(frozen=True, kw_only=True)
class SourceReport:
    """One source of events.

    Attributes:
        num_events: rows of its table.
        num_late: of them arrived after they happened.
        visible_at_test: percentile to the number of events that an impression of the test window
            may see, at most the source's max_length; empty without such impressions.
    """

    source: str
    num_events: int
    num_users: int
    span: Span
    num_late: int
    visible_at_test: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """What a log holds, or why it cannot be read.

    Attributes:
        folder: that was checked.
        errors: what stops a load (everything else is then empty) or leaves nothing to learn from.
        warnings: what a load accepts and a person should look at.
        num_impressions: rows, each with an example id of its own (a repeated one is an error).
        num_users, num_items: distinct ids among the impressions.
        rows_by_window: impressions of each window of `splits.yaml`, and of none.
        cold_user_frac, cold_item_frac: of the impressions, whose user or item has no row.
    """

    folder: str
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    schema_id: str = ""
    encoder_id: str = ""
    num_impressions: int = 0
    num_requests: int = 0
    num_users: int = 0
    num_items: int = 0
    cold_user_frac: float | None = None
    cold_item_frac: float | None = None
    span: Span = Span(first=None, last=None)
    rows_by_window: dict[str, int] | None = None
    label_rates: tuple[LabelRate, ...] = ()
    features: tuple[FeatureShares, ...] = ()
    sources: tuple[SourceReport, ...] = ()


def check_dataset(folder: Path) -> DataReport:
    """Read a data set folder as training would and say what is in it, or what stops it.

    Never raises for what is in the folder. As every load, the first one that succeeds keeps the
    encoder in `prepared/`.
    """
    try:
        dataset = load_dataset(folder)
    except GemcutterError as error:
        return DataReport(folder=str(folder), errors=tuple(str(error).splitlines()))
    shown = dataset.impressions
    label_rates, features = tuple(_label_rates(dataset)), tuple(_features(dataset))
    rows_by_window = _rows_by_window(dataset)
    cold_user_frac = _share(dataset.users.rows(shown.user_keys) == 0)
    cold_item_frac = _share(dataset.items.rows(shown.item_keys) == 0)
    warnings = [
        *_cold_warnings(cold_user_frac, cold_item_frac),
        *_one_class_warnings(label_rates),
        *_feature_warnings(features),
        *(
            f"source {name} holds no events"
            for name, rows in dataset.events.items()
            if not len(rows)
        ),
    ]
    return DataReport(
        folder=str(folder),
        errors=tuple(_empty_windows(rows_by_window)),
        warnings=tuple(warnings),
        schema_id=dataset.schema.schema_id,
        encoder_id=dataset.encoder.encoder_id,
        num_impressions=len(shown),
        num_requests=len(np.unique(shown.request_ids)),
        num_users=len(np.unique(shown.user_keys)),
        num_items=len(np.unique(shown.item_keys)),
        cold_user_frac=cold_user_frac,
        cold_item_frac=cold_item_frac,
        span=_span(shown.at_ms),
        rows_by_window=rows_by_window,
        label_rates=label_rates,
        features=features,
        sources=tuple(_sources(dataset)),
    )


def _share(rows: np.ndarray) -> float | None:
    return float(rows.mean()) if len(rows) else None


def _span(at_ms: IntArray) -> Span:
    if not len(at_ms):
        return Span(first=None, last=None)
    return Span(first=_date(int(at_ms.min())), last=_date(int(at_ms.max())))


def _date(at_ms: int) -> str:
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).date().isoformat()


def _rows_by_window(dataset: LogDataset) -> dict[str, int]:
    shown, rows = dataset.impressions, {}
    for window in WINDOWS:
        first, last = np.searchsorted(shown.at_ms, getattr(dataset.splits, window))
        rows[window] = int(last - first)
    rows["in none"] = len(shown) - sum(rows.values())
    return rows


def _label_rates(dataset: LogDataset) -> Iterator[LabelRate]:
    surfaces = dataset.schema.surfaces
    codes = dataset.encoder.codes(SURFACE, surfaces)
    for window in WINDOWS:
        shown = dataset.impressions.between(*getattr(dataset.splits, window))
        parts = {"": np.ones(len(shown), dtype=bool)}
        for surface, code in zip(surfaces, codes, strict=True):
            parts[surface] = shown.codes[SURFACE] == code
        for surface, is_part in parts.items():
            for objective, labels in shown.labels.items():
                part = labels[is_part]
                yield LabelRate(
                    window=window,
                    surface=surface,
                    objective=objective,
                    num_rows=len(part),
                    num_positive=int(part.sum(dtype=np.float64)),
                    rate_frac=_share(part),
                )


def _features(dataset: LogDataset) -> Iterator[FeatureShares]:
    shown = dataset.impressions
    tables = {"user": (dataset.users, shown.user_keys), "item": (dataset.items, shown.item_keys)}
    rows = {owner: table.rows(keys) for owner, (table, keys) in tables.items()}
    for feature in dataset.schema.features:
        if feature.vocabulary is None:
            continue
        if feature.of == "context":
            codes = shown.codes[feature.name]
        else:
            codes = tables[feature.of][0].column(feature.name)[rows[feature.of]]
        yield _shares(dataset, feature.of, feature.name, feature.vocabulary, codes)
    for source in dataset.schema.sources:
        for column in source.columns:
            if column.vocabulary is not None:
                codes = dataset.events[source.name].codes[column.name]
                yield _shares(dataset, source.name, column.name, column.vocabulary, codes)


def _shares(
    dataset: LogDataset, owner: str, feature: str, vocabulary: str, codes: IntArray
) -> FeatureShares:
    return FeatureShares(
        of=owner,
        feature=feature,
        vocabulary=vocabulary,
        num_codes=dataset.encoder.size(vocabulary),
        null_frac=_share(codes == NULL),
        unknown_frac=_share(codes == UNKNOWN),
    )


def _sources(dataset: LogDataset) -> Iterator[SourceReport]:
    index = dataset.histories()
    test = dataset.impressions.between(*dataset.splits.test)
    for source in dataset.schema.sources:
        events = dataset.events[source.name]
        lengths = [
            index.visible(
                source.name,
                test.user_keys[start : start + _ROWS_PER_LOOKUP],
                test.at_ms[start : start + _ROWS_PER_LOOKUP],
                max_length=source.max_length,
            ).lengths
            for start in range(0, len(test), _ROWS_PER_LOOKUP)
        ]
        yield SourceReport(
            source=source.name,
            num_events=len(events),
            num_users=len(np.unique(events.user_keys)),
            span=_span(events.at_ms),
            num_late=int((events.arrival_ms > events.at_ms).sum()),
            visible_at_test=_percentiles(np.concatenate(lengths)) if lengths else {},
        )


def _percentiles(lengths: IntArray) -> dict[str, int]:
    found = np.percentile(lengths, _PERCENTILES, method="inverted_cdf")
    return {f"p{p}": int(length) for p, length in zip(_PERCENTILES, found, strict=True)}


def _cold_warnings(user_frac: float | None, item_frac: float | None) -> Iterator[str]:
    for what, frac in (("user", user_frac), ("item", item_frac)):
        if frac is not None and frac > _MAX_COLD_FRAC:
            yield (
                f"{frac:.0%} of the impressions name a {what} that has no row in the {what}s "
                "table; are the ids of both of the same kind?"
            )


def _empty_windows(rows_by_window: dict[str, int]) -> Iterator[str]:
    for window in WINDOWS:
        if not rows_by_window[window]:
            yield f"window {window} of splits.yaml holds no impressions"


def _one_class_warnings(label_rates: tuple[LabelRate, ...]) -> Iterator[str]:
    for rate in label_rates:
        if rate.num_rows and not rate.surface and rate.num_positive in {0, rate.num_rows}:
            label = int(rate.num_positive > 0)
            yield (
                f"window {rate.window}: every label of {rate.objective} is {label}; AUC is "
                "undefined there"
            )


def _feature_warnings(features: tuple[FeatureShares, ...]) -> Iterator[str]:
    for shares in features:
        if shares.unknown_frac is not None and shares.unknown_frac > _MAX_UNKNOWN_FRAC:
            yield (
                f"feature {shares.feature} of {shares.of}: {shares.unknown_frac:.0%} of its values "
                "are unknown; too new, too rare for min_count, or prepared/ is from other tables"
            )
