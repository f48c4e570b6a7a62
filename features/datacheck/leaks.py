"""Could an impression know its own label? Single features, its own item, histories built again.

A feature that tells the label nearly alone is hardly ever a good feature: mostly it was written
after the outcome. Features are judged on a sample: positives and negatives are drawn each with a
share of their own, and weigh the inverse of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray, IntArray
from features.datacheck.neighbours import DISTANCES_MS, OwnItemCounts, own_item_counts
from features.datacheck.parts import parts, share
from features.datacheck.rebuilt import count_different
from features.datacheck.report import LeakReport, OwnItem, SingleFeature
from features.datacheck.shares import entity_rows, feature_codes
from features.dataset import LogDataset
from features.entities import EntityTable
from features.histories import HistoryIndex
from features.log import Impressions
from features.metrics import auc, normalized_entropy
from features.sampling import uniform
from features.schema import FeatureSpec

_MAX_ROWS = 200_000  # of each class
_MIN_ROWS = 20  # of each class; with fewer, chance can separate them
_NUM_BINS = 64
_ROWS_PER_LOOKUP = 65_536
# Above, or below, a feature is named. Honest features stay far from both: on the quick start's log
# the best of 46 has an AUC of 0.79, the lowest NE is 0.93.
_MAX_AUC, _MIN_NE = 0.98, 0.2
# An own item that so many positives see shortly before, and so many times fewer negatives.
_MIN_OWN_FRAC, _MIN_OWN_RATIO = 0.3, 10

_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class _Sample:
    """Impressions with the inverse of the share that they were drawn with.

    Attributes:
        is_fit: the half that rates are learned on.
    """

    shown: Impressions
    weights: npt.NDArray[np.float64]
    is_fit: _Bools


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """Something that impressions know; integers are categories."""

    of: str
    name: str
    values: npt.NDArray[np.generic]


def measure_leaks(dataset: LogDataset, index: HistoryIndex) -> LeakReport:
    """Look for labels in what impressions know.

    Cost: two passes over the impressions; memory for 400,000 of them.
    """
    sample = _draw(dataset.impressions)
    own = own_item_counts(dataset, sample.shown)
    found: list[SingleFeature] = []
    for candidate in _candidates(dataset, index, sample.shown, own):
        found += [_judge(sample, objective, candidate) for objective in sample.shown.labels]
    found.sort(key=lambda f: (f.objective, -(f.auc or 0.0)))
    own_item = tuple(_own_items(sample, own))
    num_rebuilt, num_different = count_different(dataset, index)
    return LeakReport(
        num_rows=len(sample.shown),
        features=tuple(found),
        own_item=own_item,
        num_rebuilt=num_rebuilt,
        num_different=num_different,
        likely=tuple([*_likely_features(found), *_likely_histories(num_rebuilt, num_different)]),
    )


def own_item_warnings(report: LeakReport) -> Iterator[str]:
    """Say where positives see their own item shortly before much more often than negatives."""
    told = set()
    for row in report.own_item:
        key, positive, negative = (row.source, row.objective), row.positive_frac, row.negative_frac
        if row.when != "before" or key in told or positive is None or negative is None:
            continue
        if positive >= _MIN_OWN_FRAC and positive >= _MIN_OWN_RATIO * negative:
            told.add(key)
            yield (
                f"source {row.source}: {positive:.0%} of the positives of {row.objective} see "
                f"their own item in the {row.within_ms // 1000} s before, and {negative:.2%} of "
                "the negatives; are these events the outcome, dated before the impression?"
            )


def _draw(shown: Impressions) -> _Sample:
    """Draw rows by their example id, so that the same rows are drawn every time."""
    num_positive = 0
    for part in parts(len(shown)):
        num_positive += int(np.count_nonzero(_is_positive(shown, part)))
    keep = np.array(
        [min(1.0, _MAX_ROWS / max(n, 1)) for n in (len(shown) - num_positive, num_positive)]
    )
    chosen, weights = [], []
    for part in parts(len(shown)):
        keep_frac = keep[_is_positive(shown, part).astype(np.int64)]
        is_kept = uniform(shown.example_ids[part], seed=0) < keep_frac
        chosen.append(part.start + np.flatnonzero(is_kept))
        weights.append(1.0 / keep_frac[is_kept])
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *chosen])
    drawn = shown.take(rows)
    return _Sample(
        shown=drawn,
        weights=np.concatenate([np.zeros(0), *weights]),
        is_fit=uniform(drawn.example_ids, seed=1) < 0.5,
    )


def _is_positive(shown: Impressions, part: slice) -> _Bools:
    found = np.zeros(part.stop - part.start, dtype=bool)
    for labels in shown.labels.values():
        found |= labels[part] > 0
    return found


def _candidates(
    dataset: LogDataset, index: HistoryIndex, shown: Impressions, own: dict[str, OwnItemCounts]
) -> Iterator[_Candidate]:
    """Give what impressions know, one column at a time."""
    rows = entity_rows(dataset, shown)
    for feature in dataset.schema.features:
        read = _numbers if feature.vocabulary is None else feature_codes
        values = read(dataset, feature, shown, rows)
        yield _Candidate(of=feature.of, name=feature.name, values=values)
    for source in dataset.schema.sources:
        since_s = _since_newest_s(index, source.name, shown)
        name = "seconds since the newest visible event"
        yield _Candidate(of=source.name, name=name, values=since_s)
        for within_ms in DISTANCES_MS if source.name in own else ():
            is_before = own[source.name].is_before[within_ms].astype(np.int64)
            name = f"own item in the {within_ms // 1000} s before"
            yield _Candidate(of=source.name, name=name, values=is_before)


def _numbers(
    dataset: LogDataset, feature: FeatureSpec, shown: Impressions, rows: dict[str, IntArray]
) -> FloatArray:
    if feature.of == "context":
        return shown.numeric[feature.name]
    table: EntityTable = dataset.users if feature.of == "user" else dataset.items
    column: FloatArray = table.numeric[:, table.numeric_names.index(feature.name)]
    return column[rows[feature.of]]


def _since_newest_s(index: HistoryIndex, source: str, shown: Impressions) -> FloatArray:
    """Seconds, infinite where there is no event."""
    since_s = np.full(len(shown), np.inf)
    for part in parts(len(shown), rows_per_part=_ROWS_PER_LOOKUP):
        at_ms = shown.at_ms[part]
        found = index.visible(source, shown.user_keys[part], at_ms, max_length=1)
        has_event = found.lengths > 0
        since_s[part][has_event] = (at_ms[has_event] - found.at_ms) / 1000
    return since_s


def _judge(sample: _Sample, objective: str, candidate: _Candidate) -> SingleFeature:
    labels, values = sample.shown.labels[objective], candidate.values
    is_number = values.dtype.kind == "f"
    codes = _binned(values, sample.is_fit) if is_number else values.astype(np.int64)
    judged = SingleFeature(
        objective=objective, of=candidate.of, feature=candidate.name, auc=None, ne=None
    )
    is_test = ~sample.is_fit
    for half in (sample.is_fit, is_test):
        num_positive = int(np.count_nonzero(labels[half]))
        if min(num_positive, int(half.sum()) - num_positive) < _MIN_ROWS:
            return judged
    p = _rates(codes, labels, sample)[is_test]
    y, w = labels[is_test], sample.weights[is_test]
    best = auc(p, y, w)
    if is_number:
        by_rank = auc(_ranks(values[is_test]), y, w)
        if best is not None and by_rank is not None:
            best = max(best, by_rank, 1.0 - by_rank)
    ne = normalized_entropy(p, y, w)
    assert best is not None  # both classes are there
    assert ne is not None
    is_likely = best > _MAX_AUC or ne < _MIN_NE
    return dataclasses.replace(judged, auc=best, ne=ne, is_likely_leak=is_likely)


def _rates(codes: IntArray, labels: FloatArray, sample: _Sample) -> npt.NDArray[np.float64]:
    """Give each row the label rate of its code in the half for learning, drawn to the base rate."""
    fit, size = sample.is_fit, int(codes.max(initial=0)) + 1
    weights = sample.weights[fit]
    rows = np.bincount(codes[fit], weights=weights, minlength=size)
    positives = np.bincount(codes[fit], weights=weights * labels[fit], minlength=size)
    base = positives.sum() / rows.sum()
    rates: npt.NDArray[np.float64] = ((positives + base) / (rows + 1.0))[codes]
    return rates


def _binned(values: npt.NDArray[np.generic], is_fit: _Bools) -> IntArray:
    """Give quantile bins; a value that is an edge has a bin of its own."""
    numbers = np.asarray(values, dtype=np.float64)
    finite = numbers[is_fit & np.isfinite(numbers)]
    if not len(finite):
        return np.isfinite(numbers).astype(np.int64)
    edges = np.unique(np.quantile(finite, np.linspace(0, 1, _NUM_BINS + 1), method="inverted_cdf"))
    places = np.searchsorted(edges, numbers, side="left")
    bins = places + np.searchsorted(edges, numbers, side="right")
    return np.where(np.isfinite(numbers), bins, 2 * len(edges) + 1).astype(np.int64)


def _ranks(values: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """Give numbers in [0, 1] in the order of the values, equal ones equal."""
    unique, places = np.unique(values, return_inverse=True)
    ranks: npt.NDArray[np.float64] = places / max(len(unique) - 1, 1)
    return ranks


def _own_items(sample: _Sample, own: dict[str, OwnItemCounts]) -> Iterator[OwnItem]:
    for source, counts in own.items():
        for objective, labels in sample.shown.labels.items():
            for when, within_ms, is_near in counts.by_distance():
                fracs = []
                for label in (1, 0):
                    weights = np.where(labels == label, sample.weights, 0.0)
                    fracs.append(share((weights * is_near).sum(), weights.sum()))
                yield OwnItem(
                    source=source,
                    objective=objective,
                    when=when,
                    within_ms=within_ms,
                    positive_frac=fracs[0],
                    negative_frac=fracs[1],
                )


def _likely_features(found: list[SingleFeature]) -> Iterator[str]:
    for one in found:
        if one.is_likely_leak:
            yield (
                f"{one.feature!r} of {one.of} alone tells {one.objective} (AUC {one.auc:.3f}, NE "
                f"{one.ne:.3f}); was it written after the outcome?"
            )


def _likely_histories(num_rebuilt: int, num_different: int) -> Iterator[str]:
    if num_different:
        yield (
            f"{num_different} of {num_rebuilt} histories of test impressions come out different "
            "without the events that were not known at their moment"
        )
