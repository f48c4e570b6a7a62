"""Histories built again from what was known at one moment only: they must be the same bytes."""

from __future__ import annotations

import numpy as np

from features.datacheck.parts import evenly_spaced
from features.dataset import LogDataset
from features.histories import HistoryIndex, HistorySlice
from features.log import Events
from features.segments import named_columns

_MAX_IMPRESSIONS = 200


def count_different(dataset: LogDataset, index: HistoryIndex) -> tuple[int, int]:
    """Build histories of test impressions again, and compare.

    Of each impression's user, only the events that had happened before it and had arrived are
    taken; an index of them alone must give the history that the index of the whole log gives.

    Returns:
        Histories that were built, and those of them that differ.

    Cost: O(T log T) for each of 200 impressions, T events of its user.
    """
    test = dataset.impressions.between(*dataset.splits.test)
    rows = evenly_spaced(len(test), _MAX_IMPRESSIONS)
    users, moments = np.asarray(test.user_keys[rows]), np.asarray(test.at_ms[rows])
    num_built = num_different = 0
    for source in dataset.schema.sources:
        events = dataset.events[source.name]
        for row in range(len(rows)):
            user, at_ms = users[row : row + 1], moments[row : row + 1]
            known = _known(events, int(user[0]), int(at_ms[0]))
            alone = HistoryIndex.build({source.name: known})
            slices = [
                of.visible(source.name, user, at_ms, max_length=source.max_length)
                for of in (alone, index)
            ]
            num_built += 1
            num_different += not _is_same(*slices)
    return num_built, num_different


def _known(events: Events, user: int, at_ms: int) -> Events:
    low, high = np.searchsorted(events.user_keys, [user, user + 1])
    of_user = events.take(slice(int(low), int(high)))
    is_known = (of_user.at_ms < at_ms) & (of_user.arrival_ms <= at_ms)
    return of_user.take(np.flatnonzero(is_known))


def _is_same(one: HistorySlice, other: HistorySlice) -> bool:
    columns, others = ({**named_columns(part), "": part.offsets} for part in (one, other))
    return columns.keys() == others.keys() and all(
        column.dtype == others[name].dtype and column.tobytes() == others[name].tobytes()
        for name, column in columns.items()
    )
