"""Times of events that cannot be, arrivals, and rows that are there twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from features.arrays import IntArray
from features.datacheck.parts import ROWS_PER_PART, evenly_spaced, parts, share
from features.datacheck.report import Clock, Repeats
from features.encoding import UNKNOWN
from features.log import Events, Impressions
from features.schema import SURFACE
from features.segments import named_columns

_DAY_S = 86_400
_DELAYS = (0, 50, 90, 99, 100)
_MAX_DELAYS = 1 << 20  # whose percentiles are taken, 8 MB


def measure_clock(events: Events, *, first_ms: int, last_ms: int) -> Clock:
    """Look at the times of one source.

    Args:
        events: sorted by user, then time.
        first_ms: where the history starts.
        last_ms: the last impression.

    Cost: one pass; memory for one part and a million delays.
    """
    by_second = _by_second(events.at_ms)
    num_late = num_early = num_after = num_before = 0
    for part in parts(len(events)):
        at_ms, arrival_ms = np.asarray(events.at_ms[part]), events.arrival_ms[part]
        num_late += int(np.count_nonzero(arrival_ms > at_ms))
        num_early += int(np.count_nonzero(arrival_ms < at_ms))
        num_after += int(np.count_nonzero(at_ms > last_ms))
        num_before += int(np.count_nonzero(at_ms < first_ms))
    commonest = int(by_second.argmax())
    return Clock(
        num_late=num_late,
        num_early=num_early,
        num_after=num_after,
        num_before=num_before,
        delay_ms=_delays(events),
        num_by_hour=_in_hours(by_second),
        commonest_time=f"{commonest // 3600:02}:{commonest // 60 % 60:02}:{commonest % 60:02}",
        commonest_time_frac=share(int(by_second[commonest]), len(events)),
    )


def by_hour(at_ms: IntArray) -> tuple[int, ...]:
    """Count moments by hour of the day, UTC."""
    return _in_hours(_by_second(at_ms))


def repeated_events(events: Events) -> Repeats:
    """Count events that are there again.

    Args:
        events: in the order of histories, so that equal ones are neighbours.

    Cost: one pass; memory for one part.
    """
    columns = named_columns(events)
    names: tuple[str, ...] = ("user_keys", "at_ms", "item_keys")
    keys = {name: columns[name] for name in names if name in columns}
    num_exact = num_same_key = 0
    for part in parts(max(len(events) - 1, 0)):
        is_known = ~np.any([events.codes[name][part] == UNKNOWN for name in events.codes], axis=0)
        num_exact += int(np.count_nonzero(_is_repeated(columns, part) & is_known))
        if len(keys) < 3:
            num_same_key += int(np.count_nonzero(_is_repeated(keys, part)))
    if len(keys) == 3:
        num_same_key = _same_items(events)
    return Repeats(num_exact=num_exact, num_same_key=num_same_key)


def repeated_impressions(shown: Impressions) -> Repeats:
    """Count impressions of the same request, user, item, surface and moment.

    An impression that is there again in every column is an error of its own: its example id is.

    Cost: one pass; memory for one part, or for one moment's rows.
    """
    num_same_key, start = 0, 0
    while start < len(shown):
        stop = _end_of_moment(shown.at_ms, start)
        rows = shown.take(slice(start, stop))
        keys = [rows.item_keys, rows.user_keys, rows.codes[SURFACE], rows.request_ids, rows.at_ms]
        num_same_key += _num_repeated(keys)
        start = stop
    return Repeats(num_exact=0, num_same_key=num_same_key)


def _by_second(at_ms: IntArray) -> IntArray:
    counts = np.zeros(_DAY_S, dtype=np.int64)
    for part in parts(len(at_ms)):
        counts += np.bincount(at_ms[part] // 1000 % _DAY_S, minlength=_DAY_S)
    return counts


def _in_hours(by_second: IntArray) -> tuple[int, ...]:
    return tuple(by_second.reshape(24, -1).sum(axis=1).tolist())


def _delays(events: Events) -> dict[str, int]:
    if events.arrival_ms is events.at_ms or not len(events):
        return {}
    rows = evenly_spaced(len(events), _MAX_DELAYS)
    delays = events.arrival_ms[rows] - events.at_ms[rows]
    found = np.percentile(delays, _DELAYS, method="inverted_cdf")
    return {f"p{p}": int(delay) for p, delay in zip(_DELAYS, found, strict=True)}


def _is_repeated(columns: dict[str, npt.NDArray[Any]], part: slice) -> npt.NDArray[np.bool_]:
    """Whether the row after each of the part's rows is equal to it."""
    is_same = np.ones(part.stop - part.start, dtype=bool)
    for column in columns.values():
        rows = column[part.start : part.stop + 1]
        # By bits: a missing number is equal to another.
        rows = rows.view(np.int32) if rows.dtype == np.float32 else rows
        is_same &= rows[1:] == rows[:-1]
    return is_same


def _same_items(events: Events) -> int:
    """Arrival sorts before item, so events of one user and moment are put in order of item."""
    num_same, start = 0, 0
    assert events.item_keys is not None
    while start < len(events):
        stop = _end_of_moment(events.at_ms, start)
        part = slice(start, stop)
        num_same += _num_repeated(
            [events.item_keys[part], events.at_ms[part], events.user_keys[part]]
        )
        start = stop
    return num_same


def _end_of_moment(at_ms: IntArray, start: int) -> int:
    """End of a part that does not cut through rows of one moment."""
    stop = min(start + ROWS_PER_PART, len(at_ms))
    while stop < len(at_ms):
        more = np.flatnonzero(np.diff(at_ms[stop - 1 : stop + 4096]))
        if len(more):
            return stop + int(more[0])
        stop = min(stop + 4096, len(at_ms))
    return stop


def _num_repeated(keys: list[IntArray]) -> int:
    order = np.lexsort(keys)
    is_same = np.ones(max(len(order) - 1, 0), dtype=bool)
    for key in keys:
        in_order = key[order]
        is_same &= in_order[1:] == in_order[:-1]
    return int(np.count_nonzero(is_same))
