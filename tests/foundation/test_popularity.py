"""Counting baselines: what is counted, up to when, and that it ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from features.dataset import LogDataset, load_dataset
from features.errors import DataError
from features.metrics import auc
from foundation.baselines.popularity import RECENT_MS, WEEK_MS, CountsBaseline, CountsConfig

START_MS = 1_600_000_000_000
DAY_MS = 24 * 3_600_000
Purchase = tuple[int, int, int]  # user, item, ms after the start of training

SCHEMA = {
    "name": "tiny",
    "version": 1,
    "user": {"column": "user", "dtype": "int64"},
    "item": {"column": "item", "dtype": "int64"},
    "time": {"column": "at_ms", "unit": "ms"},
    "impressions": {
        "path": "impressions.parquet",
        "request_column": "request",
        "example_column": "example",
        "surface_column": "place",
        "surfaces": ["left", "right"],
    },
    "users": {"path": "users.parquet"},
    "items": {"path": "items.parquet"},
    "vocabularies": [{"name": "kind", "policy": "fitted"}],
    "features": [
        {
            "name": "kind",
            "of": "item",
            "kind": "categorical",
            "column": "kind",
            "vocabulary": "kind",
        }
    ],
    "sources": [
        {
            "name": "purchase",
            "path": "purchase.parquet",
            "user_column": "user",
            "item_column": "item",
            "time": {"column": "at_ms", "unit": "ms"},
            "arrival": {"column": "arrival_ms", "unit": "ms"},
            "max_length": 10,
        }
    ],
    "objectives": [
        {"name": "bought", "kind": "binary", "label_column": "bought", "attribution_window_ms": 0}
    ],
    "verticals": [],
}
WINDOWS = {
    "history_start_ms": START_MS - 50 * WEEK_MS,
    "fm_train": [START_MS, START_MS + 2 * WEEK_MS],
    "vm_train": [START_MS + 2 * WEEK_MS, START_MS + 3 * WEEK_MS],
    "tune": [START_MS + 3 * WEEK_MS, START_MS + 4 * WEEK_MS],
    "test": [START_MS + 4 * WEEK_MS, START_MS + 5 * WEEK_MS],
}


def write(folder: Path, name: str, columns: dict[str, list[object]]) -> None:
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def dataset(
    folder: Path,
    purchases: list[Purchase],
    shown: list[tuple[int, int, int, int]],
    *,
    delay_ms: int = 0,
) -> LogDataset:
    """Items 1 to 4 are of kind a, 5 to 8 of kind b, 9 of none; rows are user, item, time, label."""
    (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    (folder / "splits.yaml").write_text(yaml.safe_dump(WINDOWS))
    write(folder, "users", {"user": [1, 2]})
    write(folder, "items", {"item": list(range(1, 10)), "kind": [*"aaaabbbb", None]})
    write(
        folder,
        "purchase",
        {
            "user": [user for user, _, _ in purchases],
            "item": [item for _, item, _ in purchases],
            "at_ms": [START_MS + at for _, _, at in purchases],
            "arrival_ms": [START_MS + at + delay_ms for _, _, at in purchases],
        },
    )
    write(
        folder,
        "impressions",
        {
            "example": list(range(len(shown))),
            "request": list(range(len(shown))),
            "user": [user for user, _, _, _ in shown],
            "item": [item for _, item, _, _ in shown],
            "at_ms": [START_MS + at for _, _, at, _ in shown],
            "place": ["left", "right"] * (len(shown) // 2) + ["left"] * (len(shown) % 2),
            "bought": [label for _, _, _, label in shown],
        },
    )
    return load_dataset(folder)


def config(*, has_history: bool) -> CountsConfig:
    return CountsConfig(
        has_history=has_history, objective="bought", placement=("surface",), groups=("kind",)
    )


def counts_of(data: LogDataset) -> list[dict[str, float]]:
    matrix, names = CountsBaseline(data, config(has_history=True)).features(data.impressions)
    return [dict(zip(names, row, strict=True)) for row in matrix.tolist()]


def test_popularity_ends_with_the_week_before_and_own_counts_with_the_moment(tmp_path):
    purchases = [
        (1, 1, -DAY_MS),
        (2, 1, -DAY_MS),
        (1, 1, 2 * DAY_MS),
        (1, 2, 3 * DAY_MS),
        (1, 1, 4 * DAY_MS),
        (1, 1, 5 * DAY_MS),
    ]
    (row,) = counts_of(dataset(tmp_path, purchases, [(1, 1, 4 * DAY_MS, 1)]))
    assert row["popularity"] == 2
    assert (row["user_item"], row["user_kind"]) == (2, 3)


def test_recent_counts_hold_eight_weeks(tmp_path):
    moment = 3 * DAY_MS
    purchases = [(1, 1, moment - RECENT_MS - 1), (1, 1, moment - RECENT_MS), (1, 1, moment - 1)]
    (row,) = counts_of(dataset(tmp_path, purchases, [(1, 1, moment, 1)]))
    assert (row["user_item"], row["user_item_recent"]) == (3, 2)
    assert (row["user_kind"], row["user_kind_recent"]) == (3, 2)


def test_a_purchase_counts_from_its_arrival_on(tmp_path):
    shown = [(1, 1, 2 * DAY_MS - 1, 1), (1, 1, 2 * DAY_MS, 1)]
    data = dataset(tmp_path, [(1, 1, DAY_MS)], shown, delay_ms=DAY_MS)
    assert [row["user_item"] for row in counts_of(data)] == [0, 1]


def test_unknown_users_items_and_kinds_count_nothing(tmp_path):
    purchases = [(1, 9, -DAY_MS), (1, 1, -DAY_MS), (1, 77, -DAY_MS)]
    shown = [(3, 1, DAY_MS, 1), (1, 9, DAY_MS, 1), (1, 55, DAY_MS, 1)]
    stranger, kindless, unseen = counts_of(dataset(tmp_path, purchases, shown))
    assert (stranger["user_item"], stranger["user_kind"]) == (0, 0)
    assert (kindless["user_item"], kindless["user_kind"]) == (1, 0)
    assert (unseen["popularity"], unseen["user_item"], unseen["user_kind"]) == (0, 0, 0)


def test_later_purchases_change_no_count(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    early, shown = [(1, 1, -DAY_MS)], [(1, 1, DAY_MS, 1)]
    first = counts_of(dataset(before, early, shown))
    second = counts_of(dataset(after, [*early, (1, 1, DAY_MS), (2, 1, 2 * DAY_MS)], shown))
    assert first == second


def habits(folder: Path) -> LogDataset:
    """Each user buys again, from both kinds, what the user bought before the start."""
    rng = np.random.default_rng(0)
    own = {1: [1, 5], 2: [2, 6]}
    purchases = [
        (user, item, -DAY_MS * (1 + n)) for user in own for item in own[user] for n in range(3)
    ]
    shown = []
    for _ in range(1200):
        user, item = int(rng.integers(1, 3)), int(rng.choice([1, 2, 5, 6]))
        shown.append((user, item, int(rng.integers(0, 5 * WEEK_MS)), int(item in own[user])))
    return dataset(folder, purchases, shown)


def test_history_counts_rank_what_popularity_cannot(tmp_path):
    data = habits(tmp_path)
    train = data.impressions.between(*data.splits.fm_train)
    test = data.impressions.between(*data.splits.test)
    areas = []
    for has_history in (False, True):
        baseline = CountsBaseline(data, config(has_history=has_history)).fit(train)
        p = baseline.score(test)
        assert ((p >= 0) & (p <= 1)).all()
        areas.append(auc(p, test.labels["bought"]))
    assert areas[0] is not None
    assert 0.3 < areas[0] < 0.7
    assert areas[1] == pytest.approx(1.0)


def test_fitting_twice_gives_the_same_probabilities(tmp_path):
    data = habits(tmp_path)
    train = data.impressions.between(*data.splits.fm_train)
    first, second = (
        CountsBaseline(data, config(has_history=True)).fit(train).score(data.impressions)
        for _ in range(2)
    )
    assert first.tobytes() == second.tobytes()
    assert len(np.unique(first)) > 1


def test_no_rows_score_to_nothing(tmp_path):
    data = dataset(tmp_path, [(1, 1, -DAY_MS)], [(1, 1, DAY_MS, 1)])
    nothing = data.impressions.between(0, 1)
    assert len(CountsBaseline(data, config(has_history=True)).score(nothing)) == 0


def test_one_class_is_refused(tmp_path):
    data = dataset(tmp_path, [(1, 1, -DAY_MS)], [(1, 1, DAY_MS, 1)])
    with pytest.raises(DataError, match=r"'bought': expected rows of both classes"):
        CountsBaseline(data, config(has_history=True)).fit(data.impressions)


def test_a_source_without_items_is_refused(tmp_path):
    data = dataset(tmp_path, [(1, 1, -DAY_MS)], [(1, 1, DAY_MS, 1)])
    object.__setattr__(data.events["purchase"], "item_keys", None)
    with pytest.raises(DataError, match="'purchase': expected a source with items"):
        CountsBaseline(data, config(has_history=True))
