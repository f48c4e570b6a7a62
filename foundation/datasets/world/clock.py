"""When things happen: activity over the hours, and the moment of any event of any user.

Time that runs with activity, x, counts days of mean activity: its speed is

    (1 + daily_cycle sin) (1 +- weekly_cycle) (2 on a shock day), scaled to a mean of 1.

Event n of a user is at x = (n + jitter - phase) / rate, the jitter even over 0 to 1, so events keep
their order, and the moment of any event, and the number of events before any moment, are known
without going through the others. Phases are above twice the largest horizon, so that every user
has a past when the log begins.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foundation.datasets.world.config import MS_PER_DAY, MS_PER_HOUR, WorldConfig
from foundation.datasets.world.randomness import Hashes, Numbers, Stream, generator, hash_events

NUMBER_BITS = 24
"""Of an event's number beside the user's id; `config` keeps numbers below 2^23 or so."""
_JITTER_SHIFT, _JITTER_MASK = np.uint64(8), np.uint64(2**24 - 1)
_EXTRA_DAYS = 8

Doubles = npt.NDArray[np.float64]


class Clock:
    """Turns moments into activity time and back.

    Attributes:
        is_shock: (days,), bool; some more days than the log has.
    """

    def __init__(self, config: WorldConfig) -> None:
        self._config = config
        num_days = config.num_days + _EXTRA_DAYS
        # Drawn day by day, so that a longer world begins with a shorter one.
        drawn = generator(config.seed, Stream.DAYS).random(num_days)
        self.is_shock = drawn < config.shock_day_frac
        hours = np.arange(num_days * 24)
        speed = 1 + config.daily_cycle_frac * np.sin((hours % 24 - 10) * (2 * np.pi / 24))
        weekday = (hours // 24 + config.start_ms // MS_PER_DAY + 3) % 7
        speed *= np.where(weekday >= 5, 1 + config.weekly_cycle_frac, 1.0)
        speed *= np.where(self.is_shock[hours // 24], 2.0, 1.0)
        mean = (1 + config.weekly_cycle_frac * 2 / 7) * (1 + config.shock_day_frac)
        self._x = np.concatenate([[0.0], np.cumsum(speed / (24 * mean))])
        self._ms = (np.arange(len(self._x)) * MS_PER_HOUR).astype(np.float64)

    def activity(self, at_ms: int) -> float:
        """Give the activity time of a moment."""
        return float(np.interp(at_ms - self._config.start_ms, self._ms, self._x))

    def moments(self, x: Doubles, tick: int) -> npt.NDArray[np.int64]:
        """Give moments of activity times in or soon after a tick, Unix ms."""
        first = tick * self._config.tick_ms // MS_PER_HOUR
        last = first + self._config.tick_ms // MS_PER_HOUR + 24 * (_EXTRA_DAYS - 1)
        since = np.interp(x, self._x[first:last], self._ms[first:last])
        return self._config.start_ms + since.astype(np.int64)


def jitters(hashes: Hashes) -> Doubles:
    """Give the jitter of each event from its hash, 0 to 1."""
    return ((hashes >> _JITTER_SHIFT) & _JITTER_MASK).astype(np.float64) * 2.0**-24


def numbers_before(keys: Hashes, places: Doubles) -> npt.NDArray[np.int64]:
    """Give the number of the first event at or after each place on its user's line.

    Args:
        keys: of the users.
        places: rate x + phase.
    """
    floors: Numbers = np.floor(places)
    numbers = floors.astype(np.int64)
    numbers += jitters(hash_events(keys, numbers)) < places - floors
    return numbers
