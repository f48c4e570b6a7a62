"""The log in the order in which it became known, tick by tick: what a live system would have seen.

An event is known from the later of its time and its arrival on, so late rows and conversions wait
in a calendar of ticks until theirs comes; adding and taking out a row costs the same however many
wait. Impressions carry no outcomes: clicks and conversions are events of their own. What is not
known by the end of the log never comes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from foundation.datasets.world.organic import Columns
from foundation.datasets.world.randomness import Numbers
from foundation.datasets.world.ticks import IMPRESSIONS, World

OUTCOMES = ("click", "convert")


class Calendar:
    """Rows that wait for their tick.

    Args:
        num_ticks: of the log; rows of later ones are dropped.
    """

    def __init__(self, num_ticks: int) -> None:
        self._num_ticks = num_ticks
        self._waiting: dict[int, dict[str, list[Columns]]] = {}

    def add(self, table: str, columns: Columns, ticks: Numbers) -> None:
        """Put rows under the ticks in which they become known, (N,)."""
        if not len(ticks):
            return
        order = np.argsort(ticks, kind="stable")
        found, starts = np.unique(ticks[order], return_index=True)
        for tick, rows in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            if tick < self._num_ticks:
                day = self._waiting.setdefault(tick, {})
                day.setdefault(table, []).append({n: c[rows] for n, c in columns.items()})

    def take(self, tick: int) -> dict[str, Columns]:
        """Take out the rows of a tick, by table."""
        return {
            table: {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            for table, parts in self._waiting.pop(tick, {}).items()
        }


def known_ms(columns: Columns) -> Numbers:
    """Give the moment from which each row can be known, (N,)."""
    if "arrived_ms" not in columns:
        return columns["at_ms"]
    found: Numbers = np.maximum(columns["at_ms"], columns["arrived_ms"])
    return found


def stream(world: World, blocks: range) -> Iterator[dict[str, Columns]]:
    """Give, for each tick, the rows that became known in it, each table in that order."""
    config = world.config
    calendar = Calendar(config.num_ticks)
    for tick in range(config.num_ticks):
        for block in blocks:
            for table, columns in world.piece(tick, block).tables.items():
                if table == IMPRESSIONS:
                    columns = {n: c for n, c in columns.items() if n not in OUTCOMES}
                ticks = (known_ms(columns) - config.start_ms) // config.tick_ms
                # A clock that is slow may put a row before its tick, even before the log.
                calendar.add(table, columns, np.maximum(ticks, tick))
        found = {}
        for table, columns in calendar.take(tick).items():
            order = np.argsort(known_ms(columns), kind="stable")
            found[table] = {name: column[order] for name, column in columns.items()}
        yield found
