"""From a model's logits to probabilities, the same offline and when serving.

Platt scaling is fitted on the tune window; then, where negatives were sampled, the probability is
brought back to that of the traffic. Both keep the order of candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray

DoubleArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Platt:
    """p = sigmoid(slope * logit + intercept)."""

    slope: float = 1.0
    intercept: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what would turn the order of candidates around."""
        if not (np.isfinite([self.slope, self.intercept]).all() and self.slope > 0):
            raise ValueError(
                "calibration: expected a slope above 0 and a finite intercept, "
                f"got {self.slope} and {self.intercept}"
            )


def sigmoid(logit: FloatArray | DoubleArray) -> DoubleArray:
    """Give 1 / (1 + exp(-logit)) in double precision without overflow."""
    small = np.exp(-np.abs(logit.astype(np.float64)))
    return np.where(logit >= 0, 1.0, small) / (1.0 + small)


def correct_for_sampling(p: DoubleArray, *, negative_keep_frac: float | None) -> DoubleArray:
    """Give the probability before negatives were thinned; None means that they were not.

    Raises:
        ValueError: the fraction is not above 0 and at most 1.

    Source: He et al. 2014, section 6.3.
    """
    if negative_keep_frac is None:
        return p
    if not 0 < negative_keep_frac <= 1:
        raise ValueError(f"negative_keep_frac: expected (0, 1], got {negative_keep_frac}")
    return p / (p + (1.0 - p) / negative_keep_frac)


def calibrate(
    logits: FloatArray,
    objectives: Sequence[str],
    calibration: Mapping[str, Platt],
    *,
    negative_keep_frac: float | None = None,
) -> FloatArray:
    """Give calibrated probabilities.

    Shapes:
        logits: (N, A), float32, columns in the order of `objectives`.
        returns: (N, A), float32, in [0, 1].

    Raises:
        KeyError: an objective has no calibration.
    """
    slope = np.array([calibration[name].slope for name in objectives])
    intercept = np.array([calibration[name].intercept for name in objectives])
    p = sigmoid(logits.astype(np.float64) * slope + intercept)
    corrected = correct_for_sampling(p, negative_keep_frac=negative_keep_frac)
    return corrected.astype(np.float32)
