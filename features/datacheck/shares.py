"""What says nothing: nulls, values outside vocabularies, and what the test window sees first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from features.arrays import IntArray
from features.datacheck.parts import distinct, parts, share
from features.datacheck.report import ColumnCounts, FeatureShares, Unseen
from features.dataset import LogDataset
from features.encoding import NULL, UNKNOWN
from features.log import Impressions
from features.schema import FeatureSpec

_TABLES = {"user": "users", "item": "items", "context": "impressions"}


def measure_shares(dataset: LogDataset) -> tuple[FeatureShares, ...]:
    """Give the shares of every categorical feature, then of every source's columns.

    Cost: one pass over each table; memory for one part and two counts of each vocabulary.
    """
    return tuple([*_of_impressions(dataset), *_of_events(dataset)])


def measure_unseen(dataset: LogDataset) -> Unseen:
    """Give the share of test impressions with a user, or an item, that is new to the log.

    Cost: one pass over each key; memory for the distinct keys of the test window.
    """
    shown = dataset.impressions
    first, last = np.searchsorted(shown.at_ms, dataset.splits.test)
    return Unseen(
        user_frac=_unseen_frac(shown.user_keys, int(first), int(last)),
        item_frac=_unseen_frac(shown.item_keys, int(first), int(last)),
    )


def measure_cold(dataset: LogDataset) -> tuple[float | None, float | None]:
    """Give the shares of the impressions whose user, and whose item, has no row of its own.

    Without a table of users their share is None.
    """
    shown, cold = dataset.impressions, {"user": 0, "item": 0}
    for part in parts(len(shown)):
        for owner, rows in entity_rows(dataset, shown.take(part)).items():
            cold[owner] += int(np.count_nonzero(rows == 0))
    has_users = dataset.schema.users is not None
    user_frac = share(cold["user"], len(shown)) if has_users else None
    return user_frac, share(cold["item"], len(shown))


def measure_columns(dataset: LogDataset) -> Iterator[ColumnCounts]:
    """Give what the reader counted, for every feature with a column of its own."""
    tables = {name: dataset.schema.features_of(name) for name in ("context", "user", "item")}
    for owner, features in tables.items():
        for feature in features:
            yield _column_counts(dataset, _TABLES[owner], feature)
    for source in dataset.schema.sources:
        for feature in source.columns:
            yield _column_counts(dataset, source.name, feature)


def entity_rows(dataset: LogDataset, shown: Impressions) -> dict[str, IntArray]:
    """Give the rows of the impressions' users and items in their tables, (N,) each."""
    return {
        "user": dataset.users.rows(shown.user_keys),
        "item": dataset.items.rows(shown.item_keys),
    }


def feature_codes(
    dataset: LogDataset, feature: FeatureSpec, shown: Impressions, rows: dict[str, IntArray]
) -> IntArray:
    """Give a categorical feature's codes at some impressions, (N,)."""
    if feature.of == "context":
        return shown.codes[feature.name]
    table = dataset.users if feature.of == "user" else dataset.items
    return table.column(feature.name)[rows[feature.of]]


def _column_counts(dataset: LogDataset, table: str, feature: FeatureSpec) -> ColumnCounts:
    counts, key = dataset.report, f"{table}/{feature.name}"
    num_rows, num_null = counts.num_rows.get(table, 0), counts.num_null.get(key, 0)
    return ColumnCounts(
        table=table,
        feature=feature.name,
        column=feature.column,
        num_rows=num_rows,
        num_null=num_null,
        num_unknown=counts.num_unknown.get(key, 0),
        num_clipped=counts.num_clipped.get(key, 0),
        # Rows that were left out for their label were counted too.
        null_frac=share(min(num_null, num_rows), num_rows),
    )


def _of_impressions(dataset: LogDataset) -> Iterator[FeatureShares]:
    shown = dataset.impressions
    features = [f for f in dataset.schema.features if f.vocabulary is not None]
    sizes = {f.name: dataset.encoder.size(str(f.vocabulary)) for f in features}
    first, last = (int(place) for place in np.searchsorted(shown.at_ms, dataset.splits.test))
    # Three counts of each code: before the test window, in it, after it.
    counts = {name: np.zeros((3, size), dtype=np.int64) for name, size in sizes.items()}
    for number, (start, stop) in enumerate(((0, first), (first, last), (last, len(shown)))):
        for part in parts(stop - start):
            rows = shown.take(slice(start + part.start, start + part.stop))
            entities = entity_rows(dataset, rows)
            for f in features:
                codes = feature_codes(dataset, f, rows, entities)
                counts[f.name][number] += np.bincount(codes, minlength=sizes[f.name])
    for f in features:
        before, test = counts[f.name][:2]
        is_unseen = before == 0
        is_unseen[UNKNOWN] = True
        unseen_frac = share(int(test[is_unseen].sum()), int(test.sum()))
        yield _shares(f.of, f, counts[f.name].sum(axis=0), unseen_frac=unseen_frac)


def _of_events(dataset: LogDataset) -> Iterator[FeatureShares]:
    for source in dataset.schema.sources:
        for column in source.columns:
            if column.vocabulary is None:
                continue
            counts = np.zeros(dataset.encoder.size(column.vocabulary), dtype=np.int64)
            codes = dataset.events[source.name].codes[column.name]
            for part in parts(len(codes)):
                counts += np.bincount(codes[part], minlength=len(counts))
            yield _shares(source.name, column, counts, unseen_frac=None)


def _shares(
    owner: str, feature: FeatureSpec, counts: IntArray, *, unseen_frac: float | None
) -> FeatureShares:
    total = int(counts.sum())
    return FeatureShares(
        of=owner,
        feature=feature.name,
        vocabulary=str(feature.vocabulary),
        num_codes=len(counts),
        null_frac=share(int(counts[NULL]), total),
        unknown_frac=share(int(counts[UNKNOWN]), total),
        unseen_frac=unseen_frac,
    )


def _unseen_frac(keys: IntArray, first: int, last: int) -> float | None:
    """Share of the keys in [first, last) that are not before first."""
    known = distinct(keys[first:last])
    if not len(known):
        return None
    is_seen = np.zeros(len(known), dtype=bool)
    for part in parts(first):
        earlier = keys[part]
        places = np.minimum(np.searchsorted(known, earlier), len(known) - 1)
        is_seen[places[known[places] == earlier]] = True
    num_unseen = 0
    for part in parts(last - first):
        places = np.searchsorted(known, keys[first + part.start : first + part.stop])
        num_unseen += int(np.count_nonzero(~is_seen[places]))
    return num_unseen / (last - first)
