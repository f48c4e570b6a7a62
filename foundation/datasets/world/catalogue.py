"""The ads: topic, content, style, price, advertiser, life.

A slot always holds an ad of its topic and advertiser; the ad in it is replaced once in
1 / churn days, at midnight, so that a fixed share of all ads is new each day. Ad number
generation * num_ads + slot is item number + 1. The content of an ad is
a = sqrt(.8) topic + sqrt(.2) own; what the log shows of it is `semantic`, a with noise on its first
dimensions. The effect of the ad itself is not shown.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foundation.datasets.world.config import NUM_STYLES, WorldConfig
from foundation.datasets.world.latent import Floats, Topics
from foundation.datasets.world.randomness import Numbers, Stream, generator

FORMATS = ("image", "video", "carousel", "story")
OBJECTIVES = ("traffic", "purchase", "install")
SEMANTIC_DIMS = 8
_OWN_SHARE = 0.2
_ADS_PER_ADVERTISER = 8
_POPULAR_ENTRIES = 1 << 16


class Catalogue:
    """Every ad that lives in the log, by number.

    Attributes:
        topic, style, format, objective, advertiser: (G A,) for G generations of A slots.
        content: (G A, K); semantic: (G A, 8).
        effect, log_price, log_bid: (G A,).
    """

    def __init__(self, config: WorldConfig, topics: Topics) -> None:
        self._config = config
        rng = generator(config.seed, Stream.ADS)
        num = config.num_ads
        weights = np.exp(topics.log_popularity)
        edges = np.cumsum(weights / weights.sum())
        slot_topic = np.minimum(np.searchsorted(edges, rng.random(num)), config.num_topics - 1)
        # Every topic has an ad where there are enough slots; sorted, so a topic is a range.
        if num >= config.num_topics:
            slot_topic[: config.num_topics] = np.arange(config.num_topics)
        slot_topic = np.sort(slot_topic)
        self._starts = np.searchsorted(slot_topic, np.arange(config.num_topics + 1))
        self._slot_age = rng.random(num)
        order = rng.permutation(num)
        ranks = (1.0 + np.arange(num)) ** -config.zipf_exponent
        edges = np.cumsum(ranks / ranks.sum())
        places = (np.arange(_POPULAR_ENTRIES) + 0.5) / _POPULAR_ENTRIES
        self._popular = order[np.minimum(np.searchsorted(edges, places), num - 1)]
        num_generations = self._generations(config.num_days - 1).max() + 1
        drawn = [self._draw(topics, slot_topic, g) for g in range(num_generations)]
        for name in drawn[0]:
            setattr(self, name, np.concatenate([part[name] for part in drawn]))

    topic: npt.NDArray[np.int16]
    style: npt.NDArray[np.uint8]
    format: npt.NDArray[np.int8]
    objective: npt.NDArray[np.int8]
    advertiser: npt.NDArray[np.int32]
    content: Floats
    semantic: Floats
    effect: Floats
    log_price: Floats
    log_bid: Floats

    def __len__(self) -> int:
        """Number of ads, those that the log is too short to show included."""
        return len(self.topic)

    def alive(self, day: int) -> npt.NDArray[np.int64]:
        """Give the number of the ad in each slot on a day, (A,)."""
        num = self._config.num_ads
        found: npt.NDArray[np.int64] = self._generations(day) * num + np.arange(num)
        return found

    def born_on_day(self) -> npt.NDArray[np.int64]:
        """Give the first day of each ad, (G A,); 0 for those older than the log."""
        num, churn = self._config.num_ads, self._config.ad_churn_frac
        generations = np.arange(len(self)) // num
        if not churn:
            return np.zeros(len(self), dtype=np.int64)
        days = np.ceil(generations / churn - np.tile(self._slot_age, len(self) // num) / churn)
        found: npt.NDArray[np.int64] = np.maximum(days, 0).astype(np.int64)
        return found

    def slots_of_topics(self, topics: Numbers, even: Numbers) -> npt.NDArray[np.int64]:
        """Give a slot with an ad of each topic, any slot where there is none.

        Shapes:
            topics: (N,); even: (N,), uint16, what decides.
        """
        starts = self._starts[topics]
        counts = self._starts[topics + 1] - starts
        picked: npt.NDArray[np.int64] = starts + (even.astype(np.int64) * counts >> 16)
        if (self._starts[1:] == self._starts[:-1]).any():
            picked = np.where(counts > 0, picked, even.astype(np.int64) % self._config.num_ads)
        return picked

    def popular_slots(self, even: Numbers) -> npt.NDArray[np.int64]:
        """Give a slot by popularity for each even uint16."""
        found: npt.NDArray[np.int64] = self._popular[even]
        return found

    def _generations(self, day: int) -> npt.NDArray[np.int64]:
        return np.floor(day * self._config.ad_churn_frac + self._slot_age).astype(np.int64)

    def _draw(self, topics: Topics, slot_topic: Numbers, generation: int) -> dict[str, Numbers]:
        config, num = self._config, self._config.num_ads
        rng = generator(config.seed, Stream.ADS, tick=1 + generation)
        own = rng.standard_normal((num, config.num_dims)) / np.sqrt(config.num_dims)
        mixed = np.sqrt(1 - _OWN_SHARE) * topics.vectors[slot_topic] + np.sqrt(_OWN_SHARE) * own
        dims = min(SEMANTIC_DIMS, config.num_dims)
        noise = rng.standard_normal((num, dims)) / np.sqrt(config.num_dims)
        semantic = mixed[:, :dims] + config.semantic_noise_sd * noise
        normal = rng.standard_normal((3, num))
        return {
            "topic": slot_topic.astype(np.int16),
            "content": mixed.astype(np.float32),
            "semantic": semantic.astype(np.float32),
            "style": rng.integers(1, NUM_STYLES, num, dtype=np.uint8),
            "format": rng.integers(0, len(FORMATS), num, dtype=np.int8),
            "objective": rng.integers(0, len(OBJECTIVES), num, dtype=np.int8),
            "advertiser": (np.arange(num) // _ADS_PER_ADVERTISER).astype(np.int32),
            "effect": (config.ad_logit_sd * normal[0]).astype(np.float32),
            "log_price": (np.log(30.0) + 0.8 * normal[1]).astype(np.float32),
            "log_bid": (np.log(500_000.0) + 0.5 * normal[2]).astype(np.float32),
        }
