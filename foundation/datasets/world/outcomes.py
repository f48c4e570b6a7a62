"""The click: one formula, every part of it known.

    logit p = b + surface_s + objective_o + taste (z W_s a) + ad + user
              + memory (`bands`) + intent [the ad's topic is wanted now]
              + trend of the topic on the day + what the stage of life likes
              - fatigue log2(1 + events of the day / 4) - position log2(1 + position)
              + hour sin(hour) + noise

b is set so that about `base_click_frac` of impressions are clicked; the policy shows better ads
than a draw would, so the share is somewhat above.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foundation.datasets.world.bands import band_signs, memory_table, remembered_styles
from foundation.datasets.world.catalogue import OBJECTIVES, Catalogue
from foundation.datasets.world.config import MS_PER_DAY, MS_PER_HOUR, WorldConfig
from foundation.datasets.world.exposure import Exposures
from foundation.datasets.world.latent import Floats, Topics
from foundation.datasets.world.randomness import Numbers, Stream, generator
from foundation.datasets.world.timeline import Timeline

_MAX_LOGIT = 15.0


class Clicks:
    """Draws clicks, and tells what they were drawn with."""

    def __init__(self, config: WorldConfig, topics: Topics, catalogue: Catalogue) -> None:
        self._config, self._topics, self._catalogue = config, topics, catalogue
        self._memory = memory_table(config)
        rng = generator(config.seed, Stream.SURFACES, block=1)
        surface = 0.2 * rng.standard_normal(config.num_surfaces)
        objective = 0.2 * rng.standard_normal(len(OBJECTIVES))
        base = base_logit(config.base_click_frac, _spread(config))
        self._base = (base + surface[:, None] + objective).astype(np.float32)
        self._position = _fall(config.position_logit, 1 + np.arange(config.num_shown))
        self._fatigue = _fall(config.fatigue_logit, 1 + np.arange(256) / 4)

    def draw(self, line: Timeline, shown: Exposures) -> dict[str, Numbers]:
        """Give click, p_click, band_signs and the logit's memory and noise, each (N,)."""
        config = self._config
        rng = generator(config.seed, Stream.CLICKS, tick=line.tick, block=line.block)
        num = len(shown.ads)
        keys = line.users.keys[shown.rows]
        remembered = remembered_styles(config, keys, shown.last)
        signs = band_signs(remembered[shown.request], self._catalogue.style[shown.ads])
        memory = self._memory[signs]
        noise = np.float32(config.noise_logit_sd) * rng.standard_normal(num, dtype=np.float32)
        logit = self._of_ads(line, shown) + self._of_requests(line, shown)[shown.request]
        logit += memory + noise
        p = 1 / (1 + np.exp(-np.clip(logit, -_MAX_LOGIT, _MAX_LOGIT)))
        return {
            "click": (rng.random(num, dtype=np.float32) < p).astype(np.int8),
            "p_click": p,
            "band_signs": signs,
            "logit_memory": memory,
            "logit_noise": noise,
        }

    def events_today(self, line: Timeline, shown: Exposures) -> npt.NDArray[np.int64]:
        """Give each request's number of organic events since midnight, 1 or more, (R,)."""
        found: npt.NDArray[np.int64] = shown.last - line.first_today[shown.rows] + 1
        return found

    def _of_requests(self, line: Timeline, shown: Exposures) -> Floats:
        hours = (shown.at_ms % MS_PER_DAY).astype(np.float32) / np.float32(MS_PER_HOUR)
        daily = np.sin((hours - 14) * np.float32(2 * np.pi / 24))
        fatigue = self._fatigue[np.minimum(self.events_today(line, shown), 255)]
        found: Floats = line.users.effect[shown.rows] + fatigue
        found += np.float32(self._config.hour_logit) * daily
        return found

    def _of_ads(self, line: Timeline, shown: Exposures) -> Floats:
        config, catalogue = self._config, self._catalogue
        topic = catalogue.topic[shown.ads]
        from_ms = config.start_ms + line.tick * config.tick_ms
        stage = line.users.stages(config, from_ms)[shown.rows][shown.request]
        logit = self._base[shown.surface[shown.request], catalogue.objective[shown.ads]]
        logit = logit + np.float32(config.taste_logit_sd) * shown.affinity
        logit += catalogue.effect[shown.ads] + self._position[shown.position]
        logit += self._topics.trend[line.day][topic] + self._topics.stage_logit[stage, topic]
        logit += np.float32(config.intent_logit) * self.is_wanted(line, shown)
        found: Floats = logit
        return found

    def is_wanted(self, line: Timeline, shown: Exposures) -> npt.NDArray[np.bool_]:
        """Tell whether the ad's topic is one that the user has an intent for, (N,)."""
        topic = self._catalogue.topic[shown.ads]
        found = np.zeros(len(topic), dtype=bool)
        for slot in range(self._config.num_intents):
            wanted = line.intents.wanted(shown.rows, slot, shown.at_ms)
            found |= wanted[shown.request] == topic
        return found


def base_logit(frac: float, spread_sd: float) -> float:
    """Give b so that the mean of sigmoid(b + N(0, spread_sd^2)) is about `frac`.

    Source: MacKay 1992, "The evidence framework applied to classification networks", eq. 10.
    """
    return float(np.log(frac / (1 - frac)) * np.sqrt(1 + np.pi * spread_sd**2 / 8))


def _spread(config: WorldConfig) -> float:
    parts = (config.memory_logit_sd, config.taste_logit_sd, config.ad_logit_sd, 0.4)
    return float(np.sqrt(sum(part**2 for part in parts)))


def _fall(logit: float, places: Numbers) -> Floats:
    return (-logit * np.log2(places)).astype(np.float32)
