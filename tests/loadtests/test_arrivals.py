"""Arrival processes."""

import numpy as np
import pytest

from loadtests.arrivals import even_arrivals, poisson_arrivals


def test_poisson_gaps_have_the_mean_and_spread_of_an_exponential() -> None:
    gaps = np.diff(poisson_arrivals(rate_qps=200.0, length_s=100.0, seed=1))
    assert gaps.mean() == pytest.approx(1 / 200, rel=0.03)
    assert gaps.std() == pytest.approx(1 / 200, rel=0.05)


def test_arrivals_are_sorted_inside_the_run_and_repeat_with_the_seed() -> None:
    first = poisson_arrivals(rate_qps=50.0, length_s=10.0, seed=3)
    assert (np.diff(first) >= 0).all()
    assert first[0] > 0
    assert first[-1] < 10.0
    assert first.tolist() == poisson_arrivals(rate_qps=50.0, length_s=10.0, seed=3).tolist()
    assert first.tolist() != poisson_arrivals(rate_qps=50.0, length_s=10.0, seed=4).tolist()


def test_even_arrivals_are_one_period_apart() -> None:
    assert even_arrivals(rate_qps=4.0, length_s=1.0).tolist() == [0.0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize(("rate_qps", "length_s"), [(0.0, 1.0), (-1.0, 1.0), (1.0, 0.0)])
def test_a_rate_or_length_that_is_not_positive_is_refused(rate_qps: float, length_s: float) -> None:
    with pytest.raises(ValueError, match="expected a number above 0"):
        poisson_arrivals(rate_qps=rate_qps, length_s=length_s, seed=0)
