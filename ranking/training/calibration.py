"""Fits the calibration of a trained model on the tune window."""

from __future__ import annotations

import numpy as np

from features.arrays import FloatArray
from ranking.calibration import DoubleArray, Platt, sigmoid

_MAX_STEPS = 50
_CONVERGED = 1e-10
# Pulls the slope to 1 about as much as one row would: it decides only where nothing else does.
_SLOPE_PRIOR = 1.0
_MIN_SLOPE = 0.05
_START = np.array([1.0, 0.0])


def fit_platt(logits: FloatArray, labels: FloatArray, weights: FloatArray) -> Platt:
    """Give the slope and intercept of the smallest weighted log-loss.

    The slope stays above 0: calibration must not turn the order of candidates around. Rows of one
    class keep the model's own probabilities.

    Shapes:
        logits, labels, weights: (N,), float32; one objective.
    """
    x, y, w = (array.astype(np.float64) for array in (logits, labels, weights))
    if not (w * y).any() or not (w * (1 - y)).any():
        return Platt()
    w = w / w.mean()
    slope, intercept = _minimise(x, y, w, prior=_SLOPE_PRIOR)
    if slope < _MIN_SLOPE:
        # A prior that nothing outweighs holds the slope, and the intercept settles around it.
        _, intercept = _minimise(x * _MIN_SLOPE, y, w, prior=1e12)
        slope = _MIN_SLOPE
    return Platt(slope=slope, intercept=intercept)


def _minimise(
    x: DoubleArray, y: DoubleArray, w: DoubleArray, *, prior: float
) -> tuple[float, float]:
    """Newton's method with step halving."""
    features = np.column_stack([x, np.ones_like(x)])
    ridge = np.array([prior, 0.0])
    at = _START

    def loss(at: DoubleArray) -> float:
        logit = features @ at
        penalty = 0.5 * float(ridge @ (at - _START) ** 2)
        return float(w @ (np.logaddexp(0.0, logit) - y * logit)) + penalty

    value = loss(at)
    for _ in range(_MAX_STEPS):
        p = sigmoid(features @ at)
        gradient = features.T @ (w * (p - y)) + ridge * (at - _START)
        curvature = (features.T * (w * p * (1 - p))) @ features + np.diag(ridge + 1e-9)
        step, scale = np.linalg.solve(curvature, gradient), 1.0
        while loss(at - scale * step) > value and scale > _CONVERGED:
            scale /= 2
        before, at = value, at - scale * step
        value = loss(at)
        if before - value <= _CONVERGED * max(1.0, abs(before)):
            break
    return float(at[0]), float(at[1])
