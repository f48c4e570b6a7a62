"""Which events of a block's users fall into a tick, and when: all else hangs on it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foundation.datasets.world.clock import Clock, Doubles, jitters, numbers_before
from foundation.datasets.world.config import WorldConfig
from foundation.datasets.world.latent import Intents, UserBlock, draw_intents
from foundation.datasets.world.randomness import Hashes, hash_events

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Timeline:
    """The organic events of a tick and a block, N of them, by user and time.

    Attributes:
        tick, block, day: where this is.
        users: of the block.
        intents: of the tick.
        rows: (N,), place of the event's user in the block.
        numbers: (N,), the event's number on its user's line.
        hashes: (N,), of the events.
        x: (N,), activity time; at_ms: (N,).
        first_today: (U,), number of each user's first event of the day.
    """

    tick: int
    block: int
    day: int
    users: UserBlock
    intents: Intents
    rows: Longs
    numbers: Longs
    hashes: Hashes
    x: Doubles
    at_ms: Longs
    first_today: Longs


def draw_timeline(
    config: WorldConfig, clock: Clock, users: UserBlock, *, tick: int, block: int
) -> Timeline:
    """Give the events of a tick and a block.

    Cost: O(U + N), whatever came before the tick.
    """
    day = tick // config.ticks_per_day
    from_ms = config.start_ms + tick * config.tick_ms
    first = _numbers_at(clock, users, from_ms)
    counts = _numbers_at(clock, users, from_ms + config.tick_ms) - first
    rows = np.repeat(np.arange(len(users)), counts)
    ends = np.cumsum(counts)
    numbers = np.arange(len(rows)) + np.repeat(first - ends + counts, counts)
    hashes = hash_events(users.keys[rows], numbers)
    x = (numbers + jitters(hashes) - users.phase[rows]) / users.rate[rows]
    is_midnight = tick % config.ticks_per_day == 0
    midnight_ms = from_ms - tick % config.ticks_per_day * config.tick_ms
    return Timeline(
        tick=tick,
        block=block,
        day=day,
        users=users,
        intents=draw_intents(config, users, from_ms),
        rows=rows,
        numbers=numbers,
        hashes=hashes,
        x=x,
        at_ms=clock.moments(x, tick),
        first_today=first if is_midnight else _numbers_at(clock, users, midnight_ms),
    )


def _numbers_at(clock: Clock, users: UserBlock, at_ms: int) -> Longs:
    return numbers_before(users.keys, users.rate * clock.activity(at_ms) + users.phase)
