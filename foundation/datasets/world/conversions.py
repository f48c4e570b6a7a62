"""Conversions: whether, after how long, for how much, and whether they are taken back.

    logit p_conversion = b_c + 0.8 (z W_c a) - 0.4 |log price - budget| + 0.5 [wanted] + intent of
                         the objective

given the click. The delay is a mixture, with the means m = `delay_hours` x the objective's factor x
the user's factor:

    P(delay > t) = 0.7 exp(-t / m) + 0.3 Phi((log(m / 2) - log t) / 1.2)

The label is 1 for a conversion within the attribution window, before the log ends, that is not
taken back. Its probability, which the oracle holds, is p_click p_conversion P(delay <= the
shorter of both) (1 - refund_frac).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from foundation.datasets.world.catalogue import Catalogue
from foundation.datasets.world.config import MS_PER_DAY, MS_PER_HOUR, WorldConfig
from foundation.datasets.world.exposure import Exposures
from foundation.datasets.world.latent import Floats
from foundation.datasets.world.outcomes import base_logit
from foundation.datasets.world.randomness import Numbers, Stream, generator
from foundation.datasets.world.timeline import Timeline

EXPONENTIAL_FRAC = 0.7
LOGNORMAL_SIGMA = 1.2
OBJECTIVE_DELAY = np.array([0.3, 1.0, 0.6])
_OBJECTIVE_LOGIT = np.array([-0.4, 0.3, 0.1], dtype=np.float32)
_TASTE, _BUDGET, _WANTED = np.float32(0.8), np.float32(0.4), np.float32(0.5)
_SPREAD = 0.9
_REFUND_DAYS = 3.0

Doubles = npt.NDArray[np.float64]


def survival(delay_ms: Numbers, mean_ms: Numbers) -> Doubles:
    """Give P(delay > t) of conversions with the mean m, both in ms: the formula above."""
    t = np.maximum(delay_ms, 1e-9) / mean_ms
    slow = normal_tail((np.log(2 * t)) / LOGNORMAL_SIGMA)
    return EXPONENTIAL_FRAC * np.exp(-t) + (1 - EXPONENTIAL_FRAC) * slow


def normal_tail(x: Numbers) -> Doubles:
    """Give P(N(0, 1) > x), to 8e-8.

    Source: Abramowitz and Stegun 1964, equation 26.2.17.
    """
    t = 1 / (1 + 0.2316419 * np.abs(x))
    series = 0.31938153 + t * (
        -0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))
    )
    tail = np.exp(-0.5 * np.square(x)) / math.sqrt(2 * math.pi) * t * series
    return np.where(x >= 0, tail, 1 - tail)


class Conversions:
    """Draws what follows clicks."""

    def __init__(self, config: WorldConfig, catalogue: Catalogue) -> None:
        self._config, self._catalogue = config, catalogue
        # The policy shows ads that are liked, and prices rarely suit; chosen so that the share
        # comes out near base_conversion_frac in the default world.
        self._base = base_logit(config.base_conversion_frac, _SPREAD) - 0.6

    def probabilities(
        self, line: Timeline, shown: Exposures, is_wanted: Numbers
    ) -> tuple[Floats, Doubles]:
        """Give p_conversion of every impression, given its click, and the delay's mean in ms."""
        catalogue, users = self._catalogue, line.users
        rows, ads = shown.rows[shown.request], shown.ads
        logit = np.einsum("nk,nk->n", users.conversion_tastes[rows], catalogue.content[ads])
        logit *= _TASTE
        logit += np.float32(self._base) + _OBJECTIVE_LOGIT[catalogue.objective[ads]]
        logit -= _BUDGET * np.abs(catalogue.log_price[ads] - users.budget[rows])
        logit += _WANTED * is_wanted
        mean_hours = self._config.delay_hours * OBJECTIVE_DELAY[catalogue.objective[ads]]
        mean_ms = mean_hours * MS_PER_HOUR * users.delay_factor[rows]
        return 1 / (1 + np.exp(-logit)), mean_ms

    def counted_frac(self, mean_ms: Doubles, at_ms: Numbers) -> Doubles:
        """Give the share of conversions that the label counts: in time, seen, not taken back."""
        config = self._config
        window_ms = np.minimum(config.attribution_days * MS_PER_DAY, config.end_ms - at_ms)
        in_time = 1 - survival(np.maximum(window_ms, 0), mean_ms)
        return np.where(window_ms > 0, in_time, 0.0) * (1 - config.refund_frac)

    def draw(
        self, line: Timeline, clicked: Numbers, p: Floats, mean_ms: Doubles
    ) -> dict[str, Numbers]:
        """Give what becomes of every impression, (N,).

        Args:
            line: the events of the tick.
            clicked: (N,), bool.
            p: of :meth:`probabilities`.
            mean_ms: of the same.

        Returns:
            delay_ms: -1 where there is no conversion; refund_ms: from the conversion, -1 where it
            stays.
        """
        rng = generator(self._config.seed, Stream.CONVERSIONS, tick=line.tick, block=line.block)
        places = np.flatnonzero(clicked)
        even = rng.random((3, len(places)))
        is_quick = even[1] < EXPONENTIAL_FRAC
        quick = rng.standard_exponential(len(places))
        slow = 0.5 * np.exp(LOGNORMAL_SIGMA * rng.standard_normal(len(places)))
        delays = np.where(is_quick, quick, slow) * mean_ms[places]
        waits = rng.standard_exponential(len(places)) * _REFUND_DAYS * MS_PER_DAY
        is_converted = even[0] < p[places]
        is_refunded = is_converted & (even[2] < self._config.refund_frac)
        delay_ms = np.full(len(clicked), -1, dtype=np.int64)
        refund_ms = np.full(len(clicked), -1, dtype=np.int64)
        delay_ms[places[is_converted]] = delays[is_converted].astype(np.int64)
        refund_ms[places[is_refunded]] = waits[is_refunded].astype(np.int64)
        return {"delay_ms": delay_ms, "refund_ms": refund_ms}
