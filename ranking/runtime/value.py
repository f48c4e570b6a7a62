"""What a candidate is worth: from bids and probabilities to eCPM, and the order by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray, IntArray

DEFAULT_BID_MICROS = 1_000_000
"""One currency unit, so that without bids the order is that of the probability."""

MAX_BID_MICROS = 10**15
"""A thousand million units: a thousand times that still fits into the answer's int64."""

_IMPRESSIONS = 1000  # the M of eCPM


def ecpm_micros(
    p: FloatArray,
    bid_micros: IntArray,
    objectives: Sequence[str],
    value_weights: Mapping[str, float],
) -> npt.NDArray[np.float64]:
    """Give the expected value of a thousand impressions, not yet rounded.

    Shapes:
        p: (N, A), float32, calibrated, columns in the order of `objectives`.
        bid_micros: (N,), int64, 0 to MAX_BID_MICROS.
        returns: (N,), float64, millionths of the currency unit.
    """
    weights = np.array([value_weights[name] for name in objectives])
    # Not a matrix product: equal rows must give equal values wherever they stand.
    worth = (p.astype(np.float64) * weights).sum(axis=1)
    ecpm: npt.NDArray[np.float64] = bid_micros * worth * _IMPRESSIONS
    return ecpm


def best_first(score: npt.NDArray[np.float64]) -> IntArray:
    """Give the places of the candidates, best first; equal scores in the order asked."""
    return np.argsort(-score, kind="stable").astype(np.int64)
