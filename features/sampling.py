"""Fewer negatives, each standing for several: a row's weight says for how many.

Whether a row is kept depends on its example id and the seed alone, not on order or batches, so a
log that grows keeps what it kept. Positives of any objective are all kept. Training with the
weights gives probabilities of the whole traffic; without them, a probability must be corrected by
q = p / (p + (1 - p) / w), which is a shift of the logit by log w (`ranking.calibration`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray, IntArray
from features.log import Impressions

_GOLDEN, _MIX_1, _MIX_2 = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)


def sample_negatives(
    impressions: Impressions, keep_frac: FloatArray | float, *, seed: int
) -> Impressions:
    """Leave out negatives, and divide the weights of those that stay by their share.

    Args:
        impressions: N rows.
        keep_frac: share of the negatives to keep, above 0 and at most 1; one for all or (N,).
        seed: another one keeps others.

    Raises:
        ValueError: a share is not in (0, 1].
    """
    shares = np.broadcast_to(np.asarray(keep_frac, dtype=np.float64), len(impressions))
    if not ((shares > 0) & (shares <= 1)).all():
        raise ValueError(f"keep_frac: expected shares above 0 and at most 1, got {keep_frac}")
    is_positive = np.zeros(len(impressions), dtype=bool)
    for labels in impressions.labels.values():
        is_positive |= labels > 0
    is_kept = is_positive | (uniform(impressions.example_ids, seed=seed) < shares)
    rows = np.flatnonzero(is_kept)
    kept = impressions.take(rows)
    share = np.where(is_positive[rows], 1.0, shares[rows])
    return replace(kept, weights=(kept.weights / share).astype(np.float32))


def keep_frac_by_code(codes: IntArray, frac_by_code: Mapping[int, float]) -> FloatArray:
    """Give each row the share of its code (a surface, say); 1 where none is given, (N,)."""
    shares = np.ones(len(codes), dtype=np.float32)
    for code, frac in frac_by_code.items():
        shares[codes == code] = frac
    return shares


def uniform(ids: IntArray, *, seed: int) -> npt.NDArray[np.float64]:
    """Give a number in [0, 1) for each id, the same for the same id and seed (SplitMix64)."""
    with np.errstate(over="ignore"):
        z = ids.astype(np.uint64) + _GOLDEN * np.uint64(2 * seed + 1)
        z = (z ^ (z >> np.uint64(30))) * _MIX_1
        z = (z ^ (z >> np.uint64(27))) * _MIX_2
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
