"""Fits the calibration of a trained model on the tune window."""

from __future__ import annotations

import numpy as np

from features.arrays import FloatArray
from ranking.calibration import DoubleArray, Platt, sigmoid

_MAX_STEPS = 50
_CONVERGED = 1e-10
# Pulls the slope to 1 and the intercept to 0 as this many rows would: an objective with a handful
# of positives keeps about the model's own probabilities.
_PRIOR_ROWS = 20.0
_MIN_SLOPE = 0.05


def fit_platt(logits: FloatArray, labels: FloatArray, weights: FloatArray) -> Platt:
    """Give the slope and intercept of the smallest weighted log-loss, by Newton's method.

    The slope stays above 0: calibration must not turn the order of candidates around. Rows of one
    class keep the model's own probabilities.

    Shapes:
        logits, labels, weights: (N,), float32; one objective.
    """
    x, y, w = (array.astype(np.float64) for array in (logits, labels, weights))
    if not (w * y).any() or not (w * (1 - y)).any():
        return Platt()
    features = np.column_stack([x, np.ones_like(x)])
    start = np.array([1.0, 0.0])
    ridge = _PRIOR_ROWS * w.mean() * np.array([0.05, 0.0])
    at = start
    value = _loss(at, features, y, w, ridge)
    for _ in range(_MAX_STEPS):
        p = sigmoid(features @ at)
        gradient = features.T @ (w * (p - y)) + ridge * (at - start)
        curvature = (features.T * (w * p * (1 - p))) @ features + np.diag(ridge + 1e-9)
        step = np.linalg.solve(curvature, gradient)
        scale = 1.0
        while _loss(at - scale * step, features, y, w, ridge) > value and scale > _CONVERGED:
            scale /= 2
        at = at - scale * step
        before, value = value, _loss(at - 0.0, features, y, w, ridge)
        if before - value <= _CONVERGED * max(1.0, abs(before)):
            break
    return Platt(slope=max(float(at[0]), _MIN_SLOPE), intercept=float(at[1]))


def _loss(
    at: DoubleArray, features: DoubleArray, y: DoubleArray, w: DoubleArray, ridge: DoubleArray
) -> float:
    logit = features @ at
    penalty = 0.5 * float(ridge @ (at - np.array([1.0, 0.0])) ** 2)
    return float(w @ (np.logaddexp(0.0, logit) - y * logit)) + penalty
