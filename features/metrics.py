"""Ranking and calibration metrics, with intervals that respect users.

Rows of one user are not independent, so every interval resamples whole users. A metric that the
rows do not determine (one class only, no user with both) has no value and a reason, never a zero.

Definitions: normalised entropy is the mean log-loss over the entropy of the base rate of the
*evaluated* rows; gAUC weights a user's AUC by the user's impressions and drops users of one class;
calibration is the sum of p over the sum of y. Every one of them takes sampling weights.

Errors: DataError for arrays that cannot be predictions and labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from features.arrays import IntArray
from features.errors import DataError

DoubleArray = npt.NDArray[np.float64]
Values = npt.NDArray[Any]

# A prediction of exactly 0 or 1 would cost infinitely much when wrong; float32 rounds to either.
_MIN_P = 1e-7
# Resamples x rows held at once by the AUC bootstrap: 4 million doubles, 32 MB an array.
_MAX_CELLS = 4_000_000
_INTERVAL_PERCENTILES = (2.5, 97.5)

ONE_CLASS = "the rows are all of one class"
NO_POSITIVE = "no row is positive"
NO_ROWS = "no rows"
NO_MIXED_USER = "no user has rows of both classes"


@dataclass(frozen=True)
class Estimate:
    """A metric with the 95 % interval of the user bootstrap, or the reason why it has no value.

    ``low`` and ``high`` are None too where the value exists but no resample determines it.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


class Gauc(NamedTuple):
    """Impression-weighted mean of the users' AUC, and the share of impressions left out of it."""

    value: float | None
    dropped_frac: float


def normalized_entropy(p: Values, y: Values, w: Values | None = None) -> float | None:
    """Give mean log-loss over the entropy of the base rate; 1 is the constant predictor.

    Returns None where the rows are of one class: the entropy is 0.

    Raises:
        DataError: lengths differ, p outside [0, 1], y other than 0 or 1, a negative weight.

    Source: He et al. 2014, "Practical Lessons from Predicting Clicks on Ads", section 3.
    """
    return _only(_normalized_entropy(_Rows.check(p, y, w).sums()))


def auc(p: Values, y: Values, w: Values | None = None) -> float | None:
    """Give the weighted probability that a positive row is above a negative one, ties half.

    Returns None where the rows are of one class.

    Raises:
        DataError: as in normalized_entropy.
    """
    rows = _Rows.check(p, y, w)
    return _only(_grouped_auc(rows, np.zeros(len(rows.p), dtype=np.int64), 1).auc)


def gauc(users: Values, p: Values, y: Values, w: Values | None = None) -> Gauc:
    """Give the impression-weighted mean AUC of users with both classes, and the share dropped.

    Raises:
        DataError: as in normalized_entropy, or users differ in length.
    """
    rows = _Rows.check(p, y, w)
    user_index, num_users = _index_users(users, rows)
    per_user = _grouped_auc(rows, user_index, num_users)
    total = float(rows.w.sum())
    kept = float(per_user.weight.sum())
    value = float((per_user.weight * per_user.filled()).sum() / kept) if kept > 0 else None
    return Gauc(value, 1.0 - kept / total if total > 0 else 0.0)


def calibration(p: Values, y: Values, w: Values | None = None) -> float | None:
    """Give predicted over observed positives; above 1 is overprediction. None without positives.

    Raises:
        DataError: as in normalized_entropy.
    """
    return _only(_calibration(_Rows.check(p, y, w).sums()))


def evaluate(
    p: Values,
    y: Values,
    users: Values,
    *,
    weights: Values | None = None,
    num_bootstrap: int = 200,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Give NE, AUC, gAUC, calibration and log-loss with 95 % intervals over users.

    The key ``gauc_dropped_frac`` is the share of impressions that gAUC leaves out.

    Shapes:
        p, y, users, weights: (N,).

    Raises:
        DataError: as in normalized_entropy, or users differ in length.

    Cost: O(N log N), and O(R N) for the AUC of R resamples.
    """
    rows = _Rows.check(p, y, weights)
    user_index, num_users = _index_users(users, rows)
    draws = _draw_users(num_users, num_bootstrap, seed)
    sums = rows.user_sums(user_index)
    per_user = _grouped_auc(rows, user_index, num_users)
    grouped = np.stack([per_user.weight * per_user.filled(), per_user.weight, sums[:, _W]], axis=1)
    has_rows = bool(rows.w.any())
    one_class = ONE_CLASS if has_rows else NO_ROWS
    return {
        "ne": _bootstrap(_normalized_entropy, sums, draws, one_class),
        "auc": _estimate(
            auc(rows.p, rows.y, rows.w), _resampled_auc(rows, user_index, draws), one_class
        ),
        "gauc": _bootstrap(
            lambda s: _ratio(s[:, 0], s[:, 1]),
            grouped,
            draws,
            NO_MIXED_USER if has_rows else NO_ROWS,
        ),
        "gauc_dropped_frac": _bootstrap(
            lambda s: 1.0 - _ratio(s[:, 1], s[:, 2]), grouped, draws, NO_ROWS
        ),
        "calibration": _bootstrap(_calibration, sums, draws, NO_POSITIVE if has_rows else NO_ROWS),
        "logloss": _bootstrap(lambda s: _ratio(s[:, _LOSS], s[:, _W]), sums, draws, NO_ROWS),
    }


def paired_ne_difference(
    p_a: Values,
    p_b: Values,
    y: Values,
    users: Values,
    *,
    weights: Values | None = None,
    num_bootstrap: int = 200,
    seed: int = 0,
) -> Estimate:
    """Give NE of a less NE of b on the same rows; below 0 means a is better.

    Both are scored on every resample of the users, so what makes a row hard for both cancels.

    Raises:
        DataError: as in evaluate.
    """
    a, b = _Rows.check(p_a, y, weights), _Rows.check(p_b, y, weights)
    user_index, num_users = _index_users(users, a)
    draws = _draw_users(num_users, num_bootstrap, seed)
    difference = a.user_sums(user_index)
    difference[:, _LOSS] -= b.user_sums(user_index)[:, _LOSS]
    return _bootstrap(_normalized_entropy, difference, draws, ONE_CLASS if a.w.any() else NO_ROWS)


# Columns of the per-user sums, from which every metric but the AUC follows.
_LOSS, _W, _WY, _WP = range(4)


@dataclass(frozen=True, kw_only=True)
class _Rows:
    p: DoubleArray
    y: DoubleArray
    w: DoubleArray

    @classmethod
    def check(cls, p: Values, y: Values, w: Values | None) -> _Rows:
        p_, y_ = np.asarray(p, dtype=np.float64), np.asarray(y, dtype=np.float64)
        w_ = np.ones(len(p_)) if w is None else np.asarray(w, dtype=np.float64)
        if not p_.shape == y_.shape == w_.shape or p_.ndim != 1:
            raise DataError(
                "metrics: expected p, y and weights of one length, "
                f"got {p_.shape}, {y_.shape}, {w_.shape}"
            )
        _require(p_, (p_ >= 0) & (p_ <= 1), "p in [0, 1]")
        _require(y_, (y_ == 0) | (y_ == 1), "y of 0 or 1")
        _require(w_, np.isfinite(w_) & (w_ >= 0), "finite weights of 0 or more")
        return cls(p=p_, y=y_, w=w_)

    def sums(self) -> DoubleArray:
        """Sum all rows together, (1, 4)."""
        return self.user_sums(np.zeros(len(self.p), dtype=np.int64))

    def user_sums(self, user_index: IntArray) -> DoubleArray:
        """Sum the weighted log-loss, weight, label and prediction of each user, (U, 4)."""
        clipped = np.clip(self.p, _MIN_P, 1.0 - _MIN_P)
        loss = -np.where(self.y == 1, np.log(clipped), np.log1p(-clipped))
        columns = (self.w * loss, self.w, self.w * self.y, self.w * self.p)
        num_users = int(user_index.max(initial=0)) + 1
        return np.stack([_sum_by(user_index, c, num_users) for c in columns], axis=1)


def _require(values: DoubleArray, is_good: npt.NDArray[np.bool_], expected: str) -> None:
    if not is_good.all():
        row = int(np.argmin(is_good))
        raise DataError(f"metrics: expected {expected}, got {values[row]} in row {row}")


def _index_users(users: Values, rows: _Rows) -> tuple[IntArray, int]:
    if len(users) != len(rows.p):
        raise DataError(f"metrics: expected {len(rows.p)} users, one per row, got {len(users)}")
    unique, index = np.unique(np.asarray(users), return_inverse=True)
    return index.astype(np.int64), max(1, len(unique))


def _draw_users(num_users: int, num_bootstrap: int, seed: int) -> DoubleArray:
    """Give how often each user is drawn in each resample, (R, U)."""
    shares = np.full(num_users, 1.0 / num_users)
    draws = np.random.default_rng(seed).multinomial(num_users, shares, size=num_bootstrap)
    return draws.astype(np.float64)


def _ratio(top: DoubleArray, bottom: DoubleArray) -> DoubleArray:
    """Divide, with not-a-number where the bottom is 0 or less."""
    ratio = np.full(len(top), np.nan)
    np.divide(top, bottom, out=ratio, where=bottom > 0)
    return ratio


def _sum_by(index: IntArray, values: DoubleArray, num_groups: int) -> DoubleArray:
    return np.bincount(index, values, minlength=num_groups).astype(np.float64)


def _normalized_entropy(sums: DoubleArray) -> DoubleArray:
    rate = np.clip(_ratio(sums[:, _WY], sums[:, _W]), 0.0, 1.0)
    is_mixed = (rate > 0) & (rate < 1)
    inside = np.where(is_mixed, rate, 0.5)
    entropy = -(inside * np.log(inside) + (1 - inside) * np.log1p(-inside))
    return np.where(is_mixed, _ratio(sums[:, _LOSS], sums[:, _W]) / entropy, np.nan)


def _calibration(sums: DoubleArray) -> DoubleArray:
    return _ratio(sums[:, _WP], sums[:, _WY])


def _only(values: DoubleArray) -> float | None:
    """Give the value of the only group, None where it is not a number."""
    value = float(values[0])
    return None if np.isnan(value) else value


def _bootstrap(
    metric: Callable[[DoubleArray], DoubleArray],
    sums: DoubleArray,
    draws: DoubleArray,
    reason: str,
) -> Estimate:
    value = _only(metric(sums.sum(axis=0, keepdims=True)))
    return _estimate(value, metric(draws @ sums), reason)


def _estimate(value: float | None, resampled: DoubleArray, reason: str) -> Estimate:
    if value is None:
        return Estimate(None, None, None, reason)
    defined = resampled[~np.isnan(resampled)]
    if not len(defined):
        return Estimate(value)
    low, high = np.percentile(defined, _INTERVAL_PERCENTILES)
    return Estimate(value, float(low), float(high))


class _GroupedAuc(NamedTuple):
    """AUC of each group (not-a-number for one class) and its weight (0 for one class)."""

    auc: DoubleArray
    weight: DoubleArray

    def filled(self) -> DoubleArray:
        return np.nan_to_num(self.auc)


def _grouped_auc(rows: _Rows, group: IntArray, num_groups: int) -> _GroupedAuc:
    order = np.lexsort((rows.p, group))
    group, p, w = group[order], rows.p[order], rows.w[order]
    positive, negative = w * rows.y[order], w * (1 - rows.y[order])
    is_first = np.ones(len(p), dtype=bool)
    is_first[1:] = (group[1:] != group[:-1]) | (p[1:] != p[:-1])
    tie = np.cumsum(is_first) - 1
    num_ties = int(tie[-1]) + 1 if len(tie) else 0
    tie_group = group[is_first]
    tie_negative = _sum_by(tie, negative, num_ties)
    sum_positive = _sum_by(group, positive, num_groups)
    sum_negative = _sum_by(group, negative, num_groups)
    # Negatives below a tie: all below in the order, less those of the groups before this one.
    below = np.cumsum(tie_negative) - tie_negative
    below -= (np.cumsum(sum_negative) - sum_negative)[tie_group]
    wins = _sum_by(tie, positive, num_ties) * (below + 0.5 * tie_negative)
    pairs = sum_positive * sum_negative
    values = _ratio(_sum_by(tie_group, wins, num_groups), pairs)
    return _GroupedAuc(values, np.where(pairs > 0, sum_positive + sum_negative, 0.0))


def _resampled_auc(rows: _Rows, user_index: IntArray, draws: DoubleArray) -> DoubleArray:
    """Give the AUC of every resample of the users, (R,)."""
    if not len(rows.p):
        return np.full(len(draws), np.nan)
    order = np.argsort(rows.p, kind="stable")
    p, w, y, users = rows.p[order], rows.w[order], rows.y[order], user_index[order]
    starts = np.flatnonzero(np.concatenate([[True], p[1:] != p[:-1]]))
    step = max(1, _MAX_CELLS // len(p))
    values = np.empty(len(draws))
    for begin in range(0, len(draws), step):
        weights = draws[begin : begin + step, users] * w
        positive = np.add.reduceat(weights * y, starts, axis=1)
        negative = np.add.reduceat(weights * (1 - y), starts, axis=1)
        below = np.cumsum(negative, axis=1) - 0.5 * negative
        wins = np.einsum("rt,rt->r", positive, below)
        values[begin : begin + step] = _ratio(wins, positive.sum(axis=1) * negative.sum(axis=1))
    return values
