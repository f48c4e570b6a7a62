"""Which table is what, and which of its columns are ids, times, labels and surfaces.

Names are hints; values decide where they can: ids of one kind occur in several tables, labels are
0 or 1, moments lie between 1990 and 2100. What neither tells is left open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from features.schemadraft import words
from features.schemadraft.columns import ColumnSample
from features.schemadraft.samples import TableSample

_MIN_SCORE = 2.0
_MIN_OVERLAP_FRAC, _MIN_DISTINCT = 0.5, 5
_MAX_SURFACES = 50
_MIN_LATE_FRAC = 0.99
_MAX_CHANCE = 1e-6


@dataclass(frozen=True, kw_only=True)
class ImpressionRoles:
    """The table of impressions; None where nothing was found."""

    table: TableSample
    user: ColumnSample | None
    item: ColumnSample | None
    time: ColumnSample
    request: ColumnSample | None
    example: ColumnSample | None
    surface: ColumnSample | None
    labels: tuple[ColumnSample, ...]
    is_label_named: bool

    @property
    def taken(self) -> set[str]:
        """Columns that have a role."""
        found = (self.user, self.item, self.time, self.request, self.example, self.surface)
        return {c.name for c in (*found, *self.labels) if c is not None}


@dataclass(frozen=True, kw_only=True)
class EventRoles:
    """A table of events."""

    table: TableSample
    user: ColumnSample
    item: ColumnSample | None
    time: ColumnSample
    arrival: ColumnSample | None

    @property
    def taken(self) -> set[str]:
        """Columns that have a role."""
        found = (self.user, self.item, self.time, self.arrival)
        return {column.name for column in found if column is not None}


@dataclass(frozen=True, kw_only=True)
class EntityRoles:
    """A table with one row for each user or item."""

    table: TableSample
    key: ColumnSample


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Roles of all tables; `left` have none."""

    impressions: ImpressionRoles | None
    users: EntityRoles | None
    items: EntityRoles | None
    events: tuple[EventRoles, ...]
    left: tuple[TableSample, ...]


def find_roles(tables: list[TableSample]) -> Roles:
    """Give each table a role."""
    shown_table = _impressions_table(tables)
    if shown_table is None:
        return Roles(impressions=None, users=None, items=None, events=(), left=tuple(tables))
    others = [table for table in tables if table is not shown_table]
    shown = _impression_roles(shown_table, others)
    items = _entity(others, shown.item, words.ITEM)
    rest = [table for table in others if items is None or table is not items.table]
    users = _entity(rest, shown.user, words.USER)
    rest = [table for table in rest if users is None or table is not users.table]
    events = [roles for table in rest if (roles := _event_roles(table, shown)) is not None]
    known = [roles.table for roles in events]
    return Roles(
        impressions=shown,
        users=users,
        items=items,
        events=tuple(events),
        left=tuple(table for table in rest if table not in known),
    )


def time_columns(table: TableSample) -> list[ColumnSample]:
    """Give the columns that may tell the time, best named first."""
    found = [c for c in table.columns.values() if c.time is not None and not c.num_null]
    return sorted(found, key=lambda c: -len(words.words_of(c.name) & words.TIME))


def could_be_id(column: ColumnSample) -> bool:
    """Whether a column could hold ids: whole numbers or text, and no moments."""
    is_kind = column.kind in {"integer", "text"} and column.num_null < column.num_rows
    return is_kind and column.time is None and not column.is_binary


def _impressions_table(tables: list[TableSample]) -> TableSample | None:
    scored = [(score, table) for table in tables if (score := _shown_score(table)) > 0]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def _shown_score(table: TableSample) -> float:
    labels, _ = _labels(table)
    if not labels or not time_columns(table):
        return 0.0
    named = sum(len(words.words_of(c.name) & words.LABEL) > 0 for c in labels)
    score = 1.0 + 2.0 * min(named, 2) + 3.0 * bool(words.words_of(table.name) & words.SHOWN)
    for kind in (words.REQUEST, words.EXAMPLE, words.SURFACE):
        score += any(words.words_of(name) & kind for name in table.columns)
    return score


def _labels(table: TableSample) -> tuple[tuple[ColumnSample, ...], bool]:
    """Give the columns of 0 and 1 that are named like an outcome; of none, all that there are."""
    binary = [c for c in table.columns.values() if c.is_binary or _is_spoilt_label(c)]
    named = [c for c in binary if words.words_of(c.name) & words.LABEL]
    return tuple(named or binary), bool(named)


def _is_spoilt_label(column: ColumnSample) -> bool:
    """Text of 0, 1 and a few marks for a missing value."""
    if column.kind != "text" or column.num_distinct > 5:
        return False
    marks = {"", "na", "nan", "null", "none", "n/a", "-"}
    values = {str(value).strip().lower() for value in column.distinct.to_pylist()}
    return {"0", "1"} <= values <= {"0", "1"} | marks


def _impression_roles(table: TableSample, others: list[TableSample]) -> ImpressionRoles:
    labels, is_named = _labels(table)
    labels += tuple(_later_outcomes(table, labels))
    time = time_columns(table)[0]
    taken = {time.name, *(label.name for label in labels)}

    def take(column: ColumnSample | None) -> ColumnSample | None:
        if column is not None:
            taken.add(column.name)
        return column

    def free() -> list[ColumnSample]:
        return [c for c in table.columns.values() if c.name not in taken]

    user = take(_key(free(), others, words.USER))
    item = take(_key(free(), others, words.ITEM))
    if user is None:
        user = take(_shared(free(), others))
    if item is None:
        item = take(_shared(free(), others))
    example = take(_example(free()))
    return ImpressionRoles(
        table=table,
        user=user,
        item=item,
        time=time,
        request=take(_request(free())),
        example=example,
        surface=take(_surface(free())),
        labels=labels,
        is_label_named=is_named,
    )


def _key(
    columns: Iterable[ColumnSample], others: list[TableSample], kind: frozenset[str]
) -> ColumnSample | None:
    """Give the column that is named for users or items; one that other tables have comes first."""
    scored = []
    for column in columns:
        found = words.words_of(column.name)
        if could_be_id(column) and found & kind:
            is_id = bool(found & words.ID) or column.name.lower() in kind
            scored.append((2.0 * is_id + _overlap_anywhere(column, others), column))
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def _shared(columns: Iterable[ColumnSample], others: list[TableSample]) -> ColumnSample | None:
    """Give a column whose values most other tables have too: an id, whatever it is called."""
    scored = [
        (_overlap_anywhere(column, others), column)
        for column in columns
        if could_be_id(column) and column.kind == "text" and column.num_distinct >= _MIN_DISTINCT
    ]
    best = max(scored, key=lambda pair: pair[0], default=None)
    return best[1] if best is not None and best[0] > 0 else None


def _overlap_anywhere(column: ColumnSample, others: list[TableSample]) -> int:
    """In how many other tables a column has the same values."""
    return sum(
        any(_overlap(other, column) >= _MIN_OVERLAP_FRAC for other in table.columns.values())
        for table in others
    )


def _overlap(column: ColumnSample, other: ColumnSample) -> float:
    """Share of the values of the column with fewer that the other has too."""
    few, many = sorted((column.distinct, other.distinct), key=len)
    if not could_be_id(column) or not could_be_id(other) or len(few) < _MIN_DISTINCT:
        return 0.0
    return float(pc.mean(pc.is_in(few, value_set=many)).as_py() or 0.0)


def _example(columns: Iterable[ColumnSample]) -> ColumnSample | None:
    unique = [c for c in columns if c.kind == "integer" and c.is_unique and not c.time]
    named = [c for c in unique if words.words_of(c.name) & (words.EXAMPLE | words.ID)]
    return next(iter(named or unique), None)


def _request(columns: Iterable[ColumnSample]) -> ColumnSample | None:
    named = [c for c in columns if could_be_id(c) and words.words_of(c.name) & words.REQUEST]
    return next(iter(named), None)


def _surface(columns: Iterable[ColumnSample]) -> ColumnSample | None:
    named = [
        c
        for c in columns
        if c.kind in {"text", "integer"}
        and not c.num_null
        and 1 <= c.num_distinct <= _MAX_SURFACES
        and words.words_of(c.name) & words.SURFACE
    ]
    return min(
        named,
        key=lambda c: ("surface" not in words.words_of(c.name), c.kind != "text", c.num_distinct),
        default=None,
    )


def _entity(
    tables: list[TableSample], key: ColumnSample | None, kind: frozenset[str]
) -> EntityRoles | None:
    scored = []
    for table in tables:
        for column in table.columns.values():
            if key is not None and could_be_id(column) and column.is_unique:
                score = _match(column, key, kind) + bool(words.words_of(table.name) & kind)
                scored.append((score - bool(time_columns(table)), table, column))
    best = max(scored, key=lambda found: found[0], default=None)
    if best is None or best[0] < _MIN_SCORE:
        return None
    return EntityRoles(table=best[1], key=best[2])


def _match(column: ColumnSample, key: ColumnSample, kind: frozenset[str]) -> float:
    """How likely a column holds the same ids as the impressions' key."""
    found = words.words_of(column.name)
    overlap = _overlap(column, key) >= _MIN_OVERLAP_FRAC
    # Whole numbers from 0 overlap by chance; text does not.
    score = (2.5 if column.kind == "text" else 1.0) * overlap
    score += 3.0 * (column.name == key.name and column.kind == key.kind)
    return score + 1.5 * bool(found & kind)


def _best_match(
    table: TableSample, key: ColumnSample | None, kind: frozenset[str], taken: set[str]
) -> ColumnSample | None:
    if key is None:
        return None
    free = [c for c in table.columns.values() if could_be_id(c) and c.name not in taken]
    best = max(free, key=lambda c: _match(c, key, kind), default=None)
    return best if best is not None and _match(best, key, kind) >= _MIN_SCORE else None


def _event_roles(table: TableSample, shown: ImpressionRoles) -> EventRoles | None:
    moments = time_columns(table)
    if not moments:
        return None
    time, arrival = _time_and_arrival(moments)
    taken = {time.name}
    user = _best_match(table, shown.user, words.USER, taken)
    if user is None:
        return None
    item = _best_match(table, shown.item, words.ITEM, taken | {user.name})
    return EventRoles(table=table, user=user, item=item, time=time, arrival=arrival)


def _time_and_arrival(
    moments: list[ColumnSample],
) -> tuple[ColumnSample, ColumnSample | None]:
    arrivals = [c for c in moments if words.words_of(c.name) & words.ARRIVAL]
    times = [c for c in moments if c not in arrivals] or moments
    for arrival in arrivals:
        if arrival is not times[0] and _is_after(arrival, times[0]):
            return times[0], arrival
    return times[0], None


def _is_after(arrival: ColumnSample, time: ColumnSample) -> bool:
    """Whether arrivals are not before the events, as far as the sample can say."""
    if arrival.time is None or time.time is None or arrival.time.unit != time.time.unit:
        return True
    if arrival.time.unit == "text":
        return True
    return bool(np.mean(arrival.numbers() >= time.numbers()) >= _MIN_LATE_FRAC)


def outcomes(shown: ImpressionRoles) -> Iterator[str]:
    """Give columns that hold something only where a label is 1: written after the outcome."""
    for column in shown.table.columns.values():
        is_known = column.name in shown.taken or column.kind not in {"integer", "number", "text"}
        if not is_known and any(_only_with(column, label) for label in shown.labels):
            yield column.name


def _later_outcomes(table: TableSample, labels: tuple[ColumnSample, ...]) -> Iterator[ColumnSample]:
    """Give columns of 0 and 1 that are 1 only where a label is: outcomes of an outcome."""
    for column in table.columns.values():
        is_candidate = column not in labels and column.is_binary and column.kind != "boolean"
        if is_candidate and any(_only_with(column, label) for label in labels):
            yield column


def _only_with(column: ColumnSample, label: ColumnSample) -> bool:
    if not label.is_binary:
        return False
    is_set = ~np.asarray(pc.is_null(column.values).combine_chunks(), dtype=bool)
    if column.kind != "text":
        is_set &= np.nan_to_num(column.numbers()) != 0
    is_positive = label.numbers() == 1
    if is_set[~is_positive].any():
        return False
    # How likely that is by chance.
    return bool(np.mean(is_positive) ** np.count_nonzero(is_set) < _MAX_CHANCE)
