"""Metrics against plain loops, with ties, weights and slices that determine nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features import metrics
from features.errors import DataError

Row = tuple[int, float, int, float]  # user, p, y, weight

rows_strategy = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([0.1, 0.25, 0.25, 0.6, 0.9]),
        st.integers(0, 1),
        st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    ),
    min_size=1,
    max_size=20,
)


def columns(rows: list[Row]) -> tuple[np.ndarray, ...]:
    users, p, y, w = zip(*rows, strict=True)
    return np.array(users), np.array(p), np.array(y), np.array(w)


def loop_auc(rows: list[Row]) -> float | None:
    won = total = 0.0
    for _, p, y, w in rows:
        for _, other_p, other_y, other_w in rows:
            if y == 1 and other_y == 0:
                total += w * other_w
                won += w * other_w * ((p > other_p) + 0.5 * (p == other_p))
    return won / total if total else None


def loop_ne(rows: list[Row]) -> float | None:
    weight = sum(row[3] for row in rows)
    rate = sum(row[3] for row in rows if row[2]) / weight if weight else 0
    if not 0 < rate < 1:
        return None
    loss = -sum(w * math.log(p if y else 1 - p) for _, p, y, w in rows) / weight
    return loss / -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))


def loop_gauc(rows: list[Row]) -> tuple[float | None, float]:
    kept = won = 0.0
    for user in {row[0] for row in rows}:
        own = [row for row in rows if row[0] == user]
        value = loop_auc(own)
        if value is not None:
            weight = sum(row[3] for row in own)
            kept, won = kept + weight, won + weight * value
    total = sum(row[3] for row in rows)
    return (won / kept if kept else None), (1 - kept / total if total else 0)


def same(got: float | None, expected: float | None) -> bool:
    if got is None or expected is None:
        return got is expected
    return math.isclose(got, expected, rel_tol=1e-9, abs_tol=1e-12)


@given(rows=rows_strategy)
def test_auc_is_the_weighted_share_of_pairs_in_order_with_ties_half(rows):
    _, p, y, w = columns(rows)
    assert same(metrics.auc(p, y, w), loop_auc(rows))


@given(rows=rows_strategy)
def test_normalized_entropy_is_log_loss_over_the_entropy_of_the_base_rate(rows):
    _, p, y, w = columns(rows)
    assert same(metrics.normalized_entropy(p, y, w), loop_ne(rows))


@given(rows=rows_strategy)
def test_gauc_averages_users_by_their_impressions(rows):
    users, p, y, w = columns(rows)
    got = metrics.gauc(users, p, y, w)
    value, dropped = loop_gauc(rows)
    assert same(got.value, value)
    assert same(got.dropped_frac, dropped)


def test_the_constant_predictor_has_normalized_entropy_one():
    y = np.array([0, 0, 0, 1])
    assert metrics.normalized_entropy(np.full(4, 0.25), y) == pytest.approx(1.0)


def test_calibration_is_predicted_over_observed_positives():
    assert metrics.calibration([0.5, 0.5, 0.2], [1, 0, 0], [1, 2, 5]) == pytest.approx(2.5)


@pytest.mark.parametrize(("y", "reason"), [([0, 0], "one class"), ([1, 1], "one class")])
def test_one_class_has_no_value_and_says_why(y, reason):
    estimates = metrics.evaluate(np.array([0.2, 0.4]), np.array(y), np.array([1, 2]))
    for name in ("ne", "auc"):
        assert estimates[name].value is None
        assert reason in str(estimates[name].reason)
    assert estimates["gauc"].value is None
    assert estimates["logloss"].value is not None
    assert (estimates["calibration"].value is None) == (sum(y) == 0)


def test_no_rows_have_no_value_and_say_so():
    estimates = metrics.evaluate(np.array([]), np.array([]), np.array([]))
    assert {estimate.reason for estimate in estimates.values()} == {"no rows"}


def test_users_of_one_class_are_dropped_from_gauc_and_reported():
    users, y = np.array([1, 1, 2, 2]), np.array([0, 1, 0, 0])
    estimates = metrics.evaluate(np.array([0.1, 0.9, 0.3, 0.4]), y, users)
    assert estimates["gauc"].value == 1.0
    assert estimates["gauc_dropped_frac"].value == 0.5


def data(num_rows: int, num_users: int, seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    lean = rng.normal(0, 1, num_users)
    users = rng.integers(0, num_users, num_rows)
    p = 1 / (1 + np.exp(-(lean[users] + rng.normal(0, 1, num_rows) - 1)))
    return users, p.round(2).clip(0.01, 0.99), (rng.random(num_rows) < p).astype(np.float64)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_the_bootstrap_equals_scoring_each_resample_of_users_by_hand(seed):
    users, p, y = data(60, 6, seed)
    got = metrics.evaluate(p, y, users, num_bootstrap=15, seed=seed)
    present = np.unique(users)
    draws = np.random.default_rng(seed).multinomial(
        len(present), np.full(len(present), 1 / len(present)), size=15
    )
    by_hand: dict[str, list[float | None]] = {"ne": [], "auc": [], "calibration": []}
    for draw in draws:
        times = draw[np.searchsorted(present, users)]
        again = np.repeat(np.arange(len(p)), times)
        by_hand["ne"].append(metrics.normalized_entropy(p[again], y[again]))
        by_hand["auc"].append(metrics.auc(p[again], y[again]))
        by_hand["calibration"].append(metrics.calibration(p[again], y[again]))
    for name, values in by_hand.items():
        low, high = np.percentile([v for v in values if v is not None], [2.5, 97.5])
        assert got[name].low == pytest.approx(low)
        assert got[name].high == pytest.approx(high)


def test_the_gauc_bootstrap_counts_a_user_as_often_as_drawn():
    users, p, y = data(80, 5, 11)
    got = metrics.evaluate(p, y, users, num_bootstrap=9, seed=4)["gauc"]
    draws = np.random.default_rng(4).multinomial(5, np.full(5, 0.2), size=9)
    by_hand = []
    for draw in draws:
        copies = [(user, copy) for user in range(5) for copy in range(draw[user])]
        again = np.concatenate([np.flatnonzero(users == user) for user, _ in copies])
        names = np.concatenate(
            [np.full((users == user).sum(), place) for place, (user, _) in enumerate(copies)]
        )
        by_hand.append(metrics.gauc(names, p[again], y[again]).value)
    low, high = np.percentile([v for v in by_hand if v is not None], [2.5, 97.5])
    assert (got.low, got.high) == (pytest.approx(low), pytest.approx(high))


def test_the_auc_bootstrap_is_the_same_in_pieces(monkeypatch):
    users, p, y = data(300, 20, 5)
    whole = metrics.evaluate(p, y, users, num_bootstrap=30)["auc"]
    monkeypatch.setattr(metrics, "_MAX_CELLS", 700)
    assert metrics.evaluate(p, y, users, num_bootstrap=30)["auc"] == whole


def test_the_interval_covers_the_value_and_the_seed_fixes_it():
    users, p, y = data(3000, 100, 2)
    first, second = (metrics.evaluate(p, y, users, seed=1) for _ in range(2))
    assert first == second
    for name in ("ne", "auc", "gauc", "calibration", "logloss"):
        estimate = first[name]
        assert estimate.value is not None
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low < estimate.value < estimate.high


def test_a_paired_difference_is_tighter_than_either_interval():
    users, p, y = data(3000, 100, 2)
    worse = np.clip(p * 0.9, 0.01, 0.99)
    single = metrics.evaluate(p, y, users)["ne"]
    paired = metrics.paired_ne_difference(worse, p, y, users)
    better, base = metrics.normalized_entropy(worse, y), metrics.normalized_entropy(p, y)
    assert better is not None
    assert base is not None
    assert paired.value == pytest.approx(better - base)
    assert single.low is not None
    assert single.high is not None
    assert paired.low is not None
    assert paired.high is not None
    assert paired.high - paired.low < 0.3 * (single.high - single.low)


def test_weights_count_rows_as_often_as_they_say():
    users, p, y = data(50, 5, 8)
    times = np.random.default_rng(0).integers(0, 4, 50)
    again = np.repeat(np.arange(50), times)
    weighted = metrics.evaluate(p, y, users, weights=times, num_bootstrap=2)
    repeated = metrics.evaluate(p[again], y[again], users[again], num_bootstrap=2)
    for name, estimate in weighted.items():
        assert estimate.value == pytest.approx(repeated[name].value)


def test_predictions_of_exactly_zero_and_one_cost_finitely_much():
    loss = metrics.evaluate(np.array([0.0, 1.0]), np.array([1, 0]), np.array([1, 2]))["logloss"]
    assert loss.value == pytest.approx(-math.log(1e-7), rel=1e-6)


@pytest.mark.parametrize(
    ("p", "y", "users", "weights", "message"),
    [
        ([0.5, 1.5], [0, 1], [1, 1], None, r"p in \[0, 1\], got 1.5 in row 1"),
        ([0.5, math.nan], [0, 1], [1, 1], None, "got nan in row 1"),
        ([0.5, 0.5], [0, 2], [1, 1], None, "y of 0 or 1, got 2.0 in row 1"),
        ([0.5, 0.5], [0, 1], [1, 1], [1, -1], "weights of 0 or more"),
        ([0.5, 0.5], [0], [1, 1], None, "one length"),
        ([0.5, 0.5], [0, 1], [1], None, "expected 2 users"),
    ],
)
def test_arrays_that_cannot_be_predictions_are_refused(p, y, users, weights, message):
    with pytest.raises(DataError, match=message):
        metrics.evaluate(p, y, users, weights=weights)
