"""The world: any piece of its log, the whole of it, or a stream of it in the order of knowing.

A piece is a tick and a block, made from nothing but the configuration and these two numbers. Its
tables are the log's: `impressions`, one for each organic source, `ad_click` and `conversion`; what
nobody is meant to know is apart, in `oracle`. Conversions are in the piece of their click, though
they happen later: :func:`stream` holds them back until they are known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from features.errors import DataError
from foundation.datasets.world.catalogue import Catalogue
from foundation.datasets.world.clock import NUMBER_BITS, Clock
from foundation.datasets.world.config import MS_PER_DAY, MS_PER_HOUR, WorldConfig
from foundation.datasets.world.conversions import Conversions
from foundation.datasets.world.exposure import Exposer, Exposures
from foundation.datasets.world.latent import Topics, UserBlock, draw_users, surface_matrices
from foundation.datasets.world.organic import Columns, OrganicEvents, organic_sources
from foundation.datasets.world.outcomes import Clicks
from foundation.datasets.world.randomness import Numbers
from foundation.datasets.world.timeline import Timeline, draw_timeline

IMPRESSIONS, AD_CLICK, CONVERSION = "impressions", "ad_click", "conversion"
POSITION_BITS = 4
_CLICK_LATENCY_MS = 3000


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """A tick of a block.

    Attributes:
        tables: columns by name, of the log's tables.
        oracle: columns, one row for each impression, in the same order.
    """

    tick: int
    block: int
    tables: dict[str, Columns]
    oracle: Columns

    @property
    def num_rows(self) -> int:
        """Events of all tables; the oracle's rows are not counted again."""
        return sum(len(columns["user_id"]) for columns in self.tables.values())

    def digest(self) -> str:
        """Give a SHA-256 of every value, oracle included."""
        found = hashlib.sha256()
        for name, columns in sorted({**self.tables, "oracle": self.oracle}.items()):
            for column, values in sorted(columns.items()):
                found.update(f"{name}.{column}:{values.dtype.str}".encode())
                found.update(np.ascontiguousarray(values).tobytes())
        return found.hexdigest()


class World:
    """Everything that is shared by the pieces of one configuration; built in a second or so."""

    def __init__(self, config: WorldConfig) -> None:
        self.config = config
        self.clock = Clock(config)
        self.topics = Topics(config, self.clock.is_shock)
        self.matrices = surface_matrices(config)
        self.catalogue = Catalogue(config, self.topics)
        self._organic = OrganicEvents(config, self.catalogue)
        self._exposer = Exposer(config, self.clock, self.catalogue)
        self._clicks = Clicks(config, self.topics, self.catalogue)
        self._conversions = Conversions(config, self.catalogue)
        self._users: dict[int, UserBlock] = {}
        self._day: tuple[int, Numbers, Numbers] | None = None

    @property
    def source_names(self) -> tuple[str, ...]:
        """Event sources of the log, organic ones first."""
        return (*(spec.name for spec in organic_sources(self.config)), AD_CLICK, CONVERSION)

    def users(self, block: int) -> UserBlock:
        """Give the users of a block; they are kept, about 500 bytes a user."""
        if block not in self._users:
            self._users[block] = draw_users(self.config, block, self.topics, self.matrices)
        return self._users[block]

    def piece(self, tick: int, block: int) -> Piece:
        """Give one piece: always the same, whatever was made before."""
        line = draw_timeline(self.config, self.clock, self.users(block), tick=tick, block=block)
        popular, alive = self._of_day(line.day)
        tables = self._organic.draw(line, popular, alive)
        shown = self._exposer.draw(line, alive)
        outcome = self._clicks.draw(line, shown)
        is_wanted = self._clicks.is_wanted(line, shown)
        p, mean_ms = self._conversions.probabilities(line, shown, is_wanted)
        outcome |= self._conversions.draw(line, outcome["click"] > 0, p, mean_ms)
        seen = self._impressions(line, shown, outcome)
        tables = {IMPRESSIONS: seen, **tables}
        tables[AD_CLICK] = self._ad_clicks(seen, outcome)
        tables[CONVERSION] = self._conversion_events(seen, outcome, shown)
        counted = self._conversions.counted_frac(mean_ms, seen["at_ms"])
        oracle = {
            "example_id": seen["example_id"],
            "user_id": seen["user_id"],
            "p_click": outcome["p_click"],
            "p_conversion_of_click": p,
            "p_convert": (outcome["p_click"] * p * counted).astype(np.float32),
            "propensity": shown.propensity,
            "delay_true_ms": outcome["delay_ms"],
            "delay_mean_ms": mean_ms.astype(np.float32),
            "band_signs": outcome["band_signs"],
            "logit_memory": outcome["logit_memory"],
            "logit_noise": outcome["logit_noise"],
            "event_number": shown.last[shown.request],
        }
        return Piece(tick=tick, block=block, tables=tables, oracle=oracle)

    def pieces(self, blocks: range | None = None) -> Iterator[Piece]:
        """Give the pieces of some blocks, or of all, in the order of ticks."""
        for tick in range(self.config.num_ticks):
            for block in blocks if blocks is not None else range(self.config.num_blocks):
                yield self.piece(tick, block)

    def _of_day(self, day: int) -> tuple[Numbers, Numbers]:
        if self._day is None or self._day[0] != day:
            self._day = (day, self.topics.popular(day), self.catalogue.alive(day))
        return self._day[1], self._day[2]

    def _impressions(self, line: Timeline, shown: Exposures, outcome: Columns) -> Columns:
        config = self.config
        user_id = (line.users.first + shown.rows)[shown.request]
        request_id = (user_id << NUMBER_BITS) | shown.last[shown.request]
        at_ms = shown.at_ms[shown.request]
        today = np.minimum(self._clicks.events_today(line, shown), 255)
        delay_ms, window_ms = outcome["delay_ms"], config.attribution_days * MS_PER_DAY
        is_counted = (delay_ms >= 0) & (delay_ms <= window_ms) & (outcome["refund_ms"] < 0)
        is_counted &= at_ms + delay_ms < config.end_ms
        days = at_ms // MS_PER_DAY
        return {
            "example_id": (request_id << POSITION_BITS) | shown.position,
            "request_id": request_id,
            "user_id": user_id,
            "item_id": shown.ads + 1,
            "at_ms": at_ms,
            "surface": shown.surface[shown.request],
            "position": shown.position,
            "hour": (at_ms // MS_PER_HOUR % 24).astype(np.int8),
            "weekday": ((days + 3) % 7).astype(np.int8),
            "events_today": np.log2(today).astype(np.int8)[shown.request],
            "price_micros": shown.price_micros,
            "click": outcome["click"],
            "convert": is_counted.astype(np.int8),
        }

    def _ad_clicks(self, seen: Columns, outcome: Columns) -> Columns:
        places = np.flatnonzero(outcome["click"])
        names = ("example_id", "user_id", "item_id", "surface")
        found = {name: seen[name][places] for name in names}
        # Those who look further down click later.
        position = seen["position"][places].astype(np.int64)
        found["at_ms"] = seen["at_ms"][places] + 1 + 2000 * position
        return {**found, "arrived_ms": found["at_ms"] + _CLICK_LATENCY_MS}

    def _conversion_events(self, seen: Columns, outcome: Columns, shown: Exposures) -> Columns:
        """Give sales, and refunds after them, that happen before the log ends."""
        sold = np.flatnonzero(outcome["delay_ms"] >= 0)
        back = sold[outcome["refund_ms"][sold] >= 0]
        places = np.concatenate([sold, back])
        is_refund = np.arange(len(places)) >= len(sold)
        at_ms = seen["at_ms"][places] + outcome["delay_ms"][places]
        at_ms = at_ms + np.where(is_refund, outcome["refund_ms"][places], 0)
        kept = np.flatnonzero(at_ms < self.config.end_ms)
        places, is_refund, at_ms = places[kept], is_refund[kept], at_ms[kept]
        value = np.exp(self.catalogue.log_price[shown.ads[places]])
        found = {name: seen[name][places] for name in ("example_id", "user_id", "item_id")}
        return {
            **found,
            "at_ms": at_ms,
            "arrived_ms": at_ms + _CLICK_LATENCY_MS,
            "is_refund": is_refund.astype(np.int8),
            "value": value.astype(np.float32),
        }


def shard_blocks(config: WorldConfig, shard: int, num_shards: int) -> range:
    """Give the blocks of a shard; shards are user ranges, as equal as whole blocks allow.

    Raises:
        DataError: there is no such shard, or there are more shards than blocks.
    """
    if not 0 <= shard < num_shards:
        raise DataError(f"shard: expected i/n with i from 0 to n - 1, got {shard}/{num_shards}")
    num = config.num_blocks
    if num_shards > num:
        raise DataError(
            f"shard: {num_shards} shards of {num} blocks; expected fewer, or a smaller "
            f"users_per_block than {config.users_per_block}"
        )
    return range(shard * num // num_shards, (shard + 1) * num // num_shards)
