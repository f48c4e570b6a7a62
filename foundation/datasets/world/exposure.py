"""What users are shown: requests, candidates, the logging policy, the auction.

Some organic events are followed by a request, at a moment between that event and the next. Half of
its candidates are alive ads of topics among the user's 64 slots, half alive ads by popularity;
each has a rank value v = bid exp(taste + noise) that the policy knows. Places are filled from the
first to the last: with probability epsilon by any of the candidates left, evenly, otherwise by
candidate i with probability v_i^(1/T) over the sum of those left (Plackett-Luce). The propensity
of a row is the exact probability of its choice, given candidates, values and the places before it.

A winner pays the bid at which it would still have had the value of the best candidate left, at
least the reserve and at most its own bid; in a first-price world, its bid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foundation.datasets.world.catalogue import Catalogue
from foundation.datasets.world.clock import Clock, jitters
from foundation.datasets.world.config import WorldConfig
from foundation.datasets.world.latent import NUM_SLOTS, Floats
from foundation.datasets.world.randomness import (
    Numbers,
    Stream,
    generator,
    hash_events,
    shorts,
)
from foundation.datasets.world.timeline import Longs, Timeline

_EVEN16 = 1 << 16
_SURFACE_SHARE_FALL = 0.6


@dataclass(frozen=True, kw_only=True, eq=False)
class Exposures:
    """The impressions of a tick and a block, N of them, of R requests.

    Attributes:
        request: (N,), place in the request arrays.
        rows: (R,), of the user in the block; last: (R,), number of the event before it.
        at_ms, surface: (R,).
        ads: (N,), numbers in the catalogue; position: (N,), from 0.
        propensity: (N,); price_micros: (N,).
        affinity: (N,), z W_s a.
    """

    request: Longs
    rows: Longs
    last: Longs
    at_ms: Longs
    surface: npt.NDArray[np.uint8]
    ads: Longs
    position: npt.NDArray[np.int8]
    propensity: Floats
    price_micros: Longs
    affinity: Floats


class Exposer:
    """Makes impressions: the logging policy of a world."""

    def __init__(self, config: WorldConfig, clock: Clock, catalogue: Catalogue) -> None:
        self._config, self._clock, self._catalogue = config, clock, catalogue
        shares = _SURFACE_SHARE_FALL ** np.arange(config.num_surfaces)
        places = (np.arange(256) + 0.5) / 256
        edges = np.cumsum(shares / shares.sum())
        self._surface_of = np.searchsorted(edges, places).astype(np.uint8)

    def draw(self, line: Timeline, alive: Numbers) -> Exposures:
        """Give the impressions that follow a tick's events, by request and position."""
        config = self._config
        rng = generator(config.seed, Stream.EXPOSURE, tick=line.tick, block=line.block)
        is_asked = shorts(rng, len(line.rows), 1)[0] < config.requests_per_event * _EVEN16
        events = np.flatnonzero(is_asked)
        rows = line.rows[events]
        surface = self._surface_of[shorts(rng, len(rows), 1)[0] & 0xFF]
        ads = self._candidates(rng, line, rows, alive)
        affinity = np.einsum(
            "rk,rmk->rm",
            line.users.surface_tastes[surface, rows],
            self._catalogue.content[ads],
        )
        noise = rng.standard_normal(ads.shape, dtype=np.float32)
        log_value = self._catalogue.log_bid[ads] + config.taste_logit_sd * affinity
        log_value += np.float32(config.policy_noise_sd) * noise
        chosen, propensity, price = self._fill(rng, ads, log_value)
        is_shown = (chosen >= 0).ravel()
        places = np.flatnonzero(is_shown)
        request = places // config.num_shown
        candidate = chosen.ravel()[places]
        return Exposures(
            request=request,
            rows=rows,
            last=line.numbers[events],
            at_ms=self._moments(line, events),
            surface=surface,
            ads=ads[request, candidate],
            position=(places % config.num_shown).astype(np.int8),
            propensity=propensity.ravel()[places],
            price_micros=price.ravel()[places],
            affinity=affinity[request, candidate],
        )

    def _moments(self, line: Timeline, events: Numbers) -> Longs:
        """Give the moment of the request after each event: half-way to the next."""
        rows, numbers = line.rows[events], line.numbers[events]
        after = numbers + 1 + jitters(hash_events(line.users.keys[rows], numbers + 1))
        after = (after - line.users.phase[rows]) / line.users.rate[rows]
        return self._clock.moments((line.x[events] + after) / 2, line.tick)

    def _candidates(
        self, rng: np.random.Generator, line: Timeline, rows: Numbers, alive: Numbers
    ) -> Longs:
        num, width = len(rows), self._config.num_candidates
        liked = (width + 1) // 2
        even = shorts(rng, num * liked, 2).reshape(2, num, liked)
        topics = line.users.slots[rows[:, None], even[0] % NUM_SLOTS]
        slots = np.empty((num, width), dtype=np.int64)
        slots[:, :liked] = self._catalogue.slots_of_topics(topics, even[1])
        more = shorts(rng, num * (width - liked), 1).reshape(num, width - liked)
        slots[:, liked:] = self._catalogue.popular_slots(more)
        return alive[slots]

    def _fill(
        self, rng: np.random.Generator, ads: Longs, log_value: Floats
    ) -> tuple[Longs, Floats, Longs]:
        """Choose ads for the places; gives candidate (-1: none left), propensity and price."""
        config = self._config
        num = len(ads)
        each = np.arange(num)
        scaled = (log_value - log_value.max(axis=1, keepdims=True)) / config.policy_temperature
        left = _is_first(ads).astype(np.float32)
        weights = np.exp(scaled, dtype=np.float32) * left
        # float64: the sum of what is left may be a rest of 1e-7 of the first sum.
        even = rng.random((config.num_shown, num))
        chosen = np.empty((num, config.num_shown), dtype=np.int64)
        propensity = np.empty((num, config.num_shown), dtype=np.float32)
        price = np.empty((num, config.num_shown), dtype=np.int64)
        for place in range(config.num_shown):
            p = self._chances(weights, left)
            edges = np.cumsum(p, axis=1)
            taken = (even[place][:, None] * edges[:, -1:] >= edges).sum(axis=1)
            taken = np.minimum(taken, ads.shape[1] - 1)
            is_any = left[each, taken] > 0
            chosen[:, place] = np.where(is_any, taken, -1)
            propensity[:, place] = p[each, taken]
            weights[each, taken] = left[each, taken] = 0
            price[:, place] = self._price(log_value, ads, left, taken)
        return chosen, propensity, price

    def _chances(self, weights: Floats, left: Floats) -> npt.NDArray[np.float64]:
        explored = self._config.explore_frac
        tiny = np.finfo(np.float64).tiny
        greedy = weights / np.maximum(weights.sum(axis=1, keepdims=True, dtype=np.float64), tiny)
        evenly = left / np.maximum(left.sum(axis=1, keepdims=True), 1)
        found: npt.NDArray[np.float64] = (1 - explored) * greedy + explored * evenly
        return found

    def _price(self, log_value: Floats, ads: Longs, left: Floats, taken: Longs) -> Longs:
        each = np.arange(len(ads))
        log_bid = self._catalogue.log_bid[ads[each, taken]]
        if self._config.is_second_price:
            best = np.where(left > 0, log_value, -np.inf).max(axis=1)
            log_price = np.minimum(log_bid + best - log_value[each, taken], log_bid)
        else:
            log_price = log_bid
        price = np.exp(log_price, dtype=np.float64).astype(np.int64)
        found: Longs = np.maximum(price, self._config.reserve_micros)
        return found


def _is_first(ads: Longs) -> npt.NDArray[np.bool_]:
    """Tell which candidates are not a repetition of an earlier one of the request."""
    found = np.ones(ads.shape, dtype=bool)
    for place in range(1, ads.shape[1]):
        found[:, place] = (ads[:, :place] != ads[:, place : place + 1]).all(axis=1)
    return found
