"""When each request is meant to be sent, decided before the run and independent of any answer."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Seconds: TypeAlias = npt.NDArray[np.float64]


def poisson_arrivals(*, rate_qps: float, length_s: float, seed: int) -> Seconds:
    """Give the moments of a Poisson process, in seconds from the start of the run, sorted.

    Raises:
        ValueError: rate or length is not positive.
    """
    _require_positive(rate_qps=rate_qps, length_s=length_s)
    generator = np.random.default_rng(seed)
    expected = rate_qps * length_s
    # Six standard deviations more than needed; the loop is for the run that needs even more.
    chunk = int(expected + 6 * np.sqrt(expected)) + 16
    moments_s = np.cumsum(generator.exponential(1.0 / rate_qps, chunk))
    while moments_s[-1] < length_s:
        more = np.cumsum(generator.exponential(1.0 / rate_qps, chunk))
        moments_s = np.concatenate([moments_s, moments_s[-1] + more])
    return moments_s[moments_s < length_s]


def even_arrivals(*, rate_qps: float, length_s: float) -> Seconds:
    """Give moments one period apart, the first at 0.

    Raises:
        ValueError: rate or length is not positive.
    """
    _require_positive(rate_qps=rate_qps, length_s=length_s)
    return np.arange(round(rate_qps * length_s), dtype=np.float64) / rate_qps


def _require_positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not number > 0:
            raise ValueError(f"{name}: expected a number above 0, got {number}")
