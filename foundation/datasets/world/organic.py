"""What users do by themselves: events of several sources, each as well recorded as it is.

Event n of a user has the topic of an intent, if one is present and followed (half of the time);
else mostly one of the user's 64 slots, else what is popular that day. Its kind of occasion and its
style are of `bands`. A source of quality q records topic and style as they are with probability q,
and an even topic and style in their place otherwise; it drops, doubles and delays rows, and its
clock is off by a normal error. The occasion is always recorded right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foundation.datasets.world.bands import occasions, styles
from foundation.datasets.world.catalogue import Catalogue
from foundation.datasets.world.clock import NUMBER_BITS
from foundation.datasets.world.config import WorldConfig
from foundation.datasets.world.latent import NUM_SLOTS
from foundation.datasets.world.randomness import Numbers, Stream, generator, shorts
from foundation.datasets.world.timeline import Timeline

Columns = dict[str, Numbers]

_EVEN16 = 1 << 16
_FOLLOWED = _EVEN16 // 2
_OF_SLOTS = int(0.75 * _EVEN16)
QUERIES_PER_TOPIC = 8
_SLOT_MASK = np.uint64(NUM_SLOTS - 1)
_LATENCY_MS = 2000.0


@dataclass(frozen=True, kw_only=True)
class OrganicSource:
    """How one kind of event happens and is recorded.

    Attributes:
        share: of all events, before the sources of a world are scaled to 1.
        quality: probability that topic and style are recorded as they were.
        drop_frac, duplicate_frac, late_frac: of rows, at `fault_scale` 1.
        late_mean_ms: of the late ones; the others arrive within seconds.
        skew_ms: SD of the clock's error.
        has_item: whether it names an item.
        measure: numeric column of its own, with its median; None for none.
    """

    name: str
    share: float
    quality: float
    drop_frac: float
    duplicate_frac: float
    late_frac: float
    late_mean_ms: float
    skew_ms: float
    has_item: bool
    measure: tuple[str, float] | None


def _source(
    name: str, share: float, quality: float, faults: tuple[float, float, float], **more: object
) -> OrganicSource:
    drop, duplicate, late = faults
    given = {"late_mean_ms": 1_800_000.0, "skew_ms": 2000.0, "has_item": False, "measure": None}
    return OrganicSource(
        name=name,
        share=share,
        quality=quality,
        drop_frac=drop,
        duplicate_frac=duplicate,
        late_frac=late,
        **{**given, **more},  # type: ignore[arg-type]
    )


# A world with fewer sources has the first of these.
ORGANIC_SOURCES = (
    _source("view", 0.44, 0.7, (0.02, 0.01, 0.01), has_item=True, measure=("dwell_s", 12.0)),
    _source("search", 0.16, 0.95, (0.005, 0.0, 0.0)),
    _source("cart", 0.08, 0.9, (0.002, 0.005, 0.01), has_item=True, measure=("price", 30.0)),
    _source(
        "purchase",
        0.04,
        1.0,
        (0.0, 0.0, 0.3),
        late_mean_ms=21_600_000.0,
        has_item=True,
        measure=("price", 30.0),
    ),
    _source("like", 0.1, 0.95, (0.005, 0.01, 0.0)),
    _source("video", 0.1, 0.5, (0.05, 0.02, 0.05), skew_ms=20_000.0, measure=("watch_s", 25.0)),
    _source("save", 0.05, 0.95, (0.002, 0.002, 0.0), has_item=True),
    _source("share", 0.03, 0.85, (0.01, 0.02, 0.02)),
)


def organic_sources(config: WorldConfig) -> tuple[OrganicSource, ...]:
    """Give the organic sources of a world."""
    return ORGANIC_SOURCES[: config.num_sources]


def source_shares(config: WorldConfig) -> npt.NDArray[np.float64]:
    """Give each source's share of events, (sources,)."""
    shares = np.array([source.share for source in organic_sources(config)])
    found: npt.NDArray[np.float64] = shares / shares.sum()
    return found


def visible_quality(config: WorldConfig) -> float:
    """Give the share of memory's variance that recorded styles still explain: the mean of q^2."""
    qualities = np.array([source.quality for source in organic_sources(config)])
    return float(np.sum(source_shares(config) * qualities**2))


class OrganicEvents:
    """Makes and records the events of a tick: tables of what sources do, made once a world."""

    def __init__(self, config: WorldConfig, catalogue: Catalogue) -> None:
        self._config, self._catalogue = config, catalogue
        self._sources = organic_sources(config)
        edges = np.cumsum(source_shares(config))
        places = (np.arange(_EVEN16) + 0.5) / _EVEN16
        self._source_of = np.searchsorted(edges, places).astype(np.uint8)
        scale = config.fault_scale
        self._quality = _thresholds([source.quality for source in self._sources])
        self._drop = _thresholds([scale * source.drop_frac for source in self._sources])
        self._double = _thresholds([scale * source.duplicate_frac for source in self._sources])
        self._late = _thresholds([scale * source.late_frac for source in self._sources])
        self._late_ms = np.array([s.late_mean_ms for s in self._sources], dtype=np.float32)
        self._skew_ms = np.array([scale * s.skew_ms for s in self._sources], dtype=np.float32)

    def draw(self, line: Timeline, popular: Numbers, alive: Numbers) -> dict[str, Columns]:
        """Give the recorded rows of each source, by user and time, doubled ones last.

        Args:
            line: the events.
            popular: inverse popularity of topics of the day.
            alive: number of the ad in each slot.
        """
        config = self._config
        rng = generator(config.seed, Stream.ORGANIC, tick=line.tick, block=line.block)
        num = len(line.rows)
        even = shorts(rng, num, 12)
        source = self._source_of[even[0]]
        topic = self._true_topics(line, even[1:5], popular)
        is_right = even[5] < self._quality[source]
        other_topic = (even[6].astype(np.int32) * config.num_topics >> 16).astype(np.int16)
        latency_ms = rng.standard_exponential(num, dtype=np.float32)
        latency_ms *= np.where(even[7] < self._late[source], self._late_ms[source], _LATENCY_MS)
        skew_ms = rng.standard_normal(num, dtype=np.float32) * self._skew_ms[source]
        copies = (even[8] >= self._drop[source]).astype(np.int8)
        copies += copies * (even[9] < self._double[source])
        events = {
            "event_id": (line.users.first + line.rows) << NUMBER_BITS | line.numbers,
            "user_id": line.users.first + line.rows,
            "at_ms": line.at_ms + skew_ms.astype(np.int64),
            "arrived_ms": line.at_ms + latency_ms.astype(np.int64),
            "occasion": occasions(config, line.numbers),
            "topic": np.where(is_right, topic, other_topic),
            "style": np.where(is_right, styles(line.hashes), (even[10] & 0xF).astype(np.uint8)),
            "even": even[11],
        }
        measures = rng.standard_normal(num, dtype=np.float32)
        order = np.argsort(source, kind="stable")
        ends = np.searchsorted(source[order], np.arange(len(self._sources) + 1))
        tables = {}
        for place, spec in enumerate(self._sources):
            own = order[ends[place] : ends[place + 1]]
            rows = np.repeat(own, copies[own])
            tables[spec.name] = self._recorded(spec, events, measures, rows, alive)
        return tables

    def _true_topics(self, line: Timeline, even: Numbers, popular: Numbers) -> Numbers:
        topic = line.users.slots[line.rows, (line.hashes & _SLOT_MASK).astype(np.int64)]
        topic = np.where(even[0] >= _OF_SLOTS, popular[even[1] >> 4], topic)
        if not self._config.num_intents:
            return topic
        wanted = line.intents.wanted(line.rows, even[2] % self._config.num_intents, line.at_ms)
        return np.where((wanted >= 0) & (even[3] < _FOLLOWED), wanted, topic)

    def _recorded(
        self, spec: OrganicSource, events: Columns, measures: Numbers, rows: Numbers, alive: Numbers
    ) -> Columns:
        """Give a source's table: the columns that it has, of its rows."""
        found = {name: column[rows] for name, column in events.items() if name != "even"}
        even = events["even"][rows]
        if spec.name == "search":
            topic = found.pop("topic").astype(np.int32)
            found["query"] = topic * QUERIES_PER_TOPIC + even % QUERIES_PER_TOPIC
        if spec.has_item:
            slots = self._catalogue.slots_of_topics(found["topic"], even)
            found["item_id"] = alive[slots] + 1
        if spec.measure is not None:
            name, median = spec.measure
            if name == "price":
                centre = np.exp(self._catalogue.log_price[found["item_id"] - 1])
                found[name] = (centre * np.exp(0.2 * measures[rows])).astype(np.float32)
            else:
                found[name] = np.float32(median) * np.exp(np.float32(0.7) * measures[rows])
        return found


def _thresholds(fractions: list[float]) -> npt.NDArray[np.uint32]:
    """Give what an even 16-bit number must be below."""
    found: npt.NDArray[np.uint32] = (np.clip(fractions, 0, 1) * _EVEN16).astype(np.uint32)
    return found
