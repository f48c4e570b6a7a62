"""What a check of a log found, as plain values that become JSON, a page or lines of text.

Shares are of 1; None stands for a share of nothing. Dates are of UTC.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Span:
    """First and last moment of some rows, as ISO 8601 dates in UTC; None without rows."""

    first: str | None
    last: str | None


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """Rows that stop the load: file and column, what is wrong, how many, and the first few.

    Rows are counted from 0 in their file, a CSV header not counted.
    """

    place: str
    problem: str
    num_rows: int
    first_rows: tuple[int, ...]
    example: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class LabelRate:
    """How often an objective's label is 1, in one window and on one surface ("" means all)."""

    window: str
    surface: str
    objective: str
    num_rows: int
    num_positive: int
    rate_frac: float | None


@dataclass(frozen=True, kw_only=True)
class RateSeries:
    """Rows and positives of an objective on a surface ("" means all), one for each time step."""

    surface: str
    objective: str
    num_rows: tuple[int, ...]
    num_positive: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Rows by time, from the start of the history to the last impression.

    Attributes:
        starts_ms: where each step begins, Unix ms.
        width_ms: of a step.
        num_impressions: one for each step.
        num_events: the same by source; events outside the steps are not in it.
    """

    starts_ms: tuple[int, ...]
    width_ms: int
    num_impressions: tuple[int, ...]
    num_events: dict[str, tuple[int, ...]]
    rates: tuple[RateSeries, ...]


@dataclass(frozen=True, kw_only=True)
class FeatureShares:
    """How much of a categorical feature says nothing.

    Attributes:
        of: user, item, context, or the source's name.
        num_codes: of its vocabulary, the three reserved ones included.
        null_frac, unknown_frac: of the impressions; of the events for a source's column. An
            impression whose user has no row in its table counts as null, one whose item has none
            as unknown.
        unseen_frac: of the test impressions, whose value no impression before the test window
            had, or which is not in the vocabulary; None for a source's column.
    """

    of: str
    feature: str
    vocabulary: str
    num_codes: int
    null_frac: float | None
    unknown_frac: float | None
    unseen_frac: float | None = None


@dataclass(frozen=True, kw_only=True)
class ColumnCounts:
    """What a feature's column held when its table was read.

    Attributes:
        table: impressions, users, items, or the source's name.
        num_rows: of the table.
        num_null: missing values.
        num_unknown: values not in the vocabulary.
        num_clipped: numbers moved to a bound, as the schema asked.
        null_frac: of the rows.
    """

    table: str
    feature: str
    column: str
    num_rows: int
    num_null: int
    num_unknown: int
    num_clipped: int
    null_frac: float | None


@dataclass(frozen=True, kw_only=True)
class Unseen:
    """Test impressions whose user or item no impression before the test window had."""

    user_frac: float | None
    item_frac: float | None


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """How many events impressions of a window may see, at most the source's max_length.

    Attributes:
        num_rows: impressions that were looked at, spread evenly over the window.
        empty_frac: of them, those that see none.
        percentiles: "p50" to a number of events; empty without impressions.
        upper, num_by_upper: histogram; lengths from above the upper edge before to this one.
    """

    window: str
    num_rows: int
    empty_frac: float | None
    percentiles: dict[str, int]
    upper: tuple[int, ...]
    num_by_upper: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """Rows that are there more than once; the first of each is not counted.

    Attributes:
        num_exact: equal in every column. Rows with a value outside its vocabulary are not counted:
            two of them look alike whatever they held.
        num_same_key: of the same user, moment and item (and request and surface).
    """

    num_exact: int
    num_same_key: int


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Whether the times of a source make sense.

    Attributes:
        num_late: events that arrived after they happened.
        num_early: that arrived before they happened, which no event does.
        num_after: later than the last impression: nothing can see them.
        num_before: earlier than the start of the history.
        delay_ms: percentile to arrival minus event time, of events spread evenly.
        num_by_hour: events by hour of the day, UTC.
        commonest_time: the second of the day with the most events, "HH:MM:SS" in UTC.
        commonest_time_frac: share of the events in that second.
    """

    num_late: int
    num_early: int
    num_after: int
    num_before: int
    delay_ms: dict[str, int]
    num_by_hour: tuple[int, ...]
    commonest_time: str
    commonest_time_frac: float | None


@dataclass(frozen=True, kw_only=True)
class SourceReport:
    """One source of events.

    Attributes:
        num_events: rows of its table.
        num_late: of them arrived after they happened.
        visible_at_test: percentile to the number of events that an impression of the test window
            may see, at most the source's max_length; empty without such impressions.
        lengths: the same in full, of the windows fm_train and test.
    """

    source: str
    num_events: int
    num_users: int
    span: Span
    num_late: int
    visible_at_test: dict[str, int]
    lengths: tuple[Lengths, ...]
    repeats: Repeats
    clock: Clock


@dataclass(frozen=True, kw_only=True)
class SingleFeature:
    """How well one feature alone tells a label, learned on one half of a sample, on the other.

    Attributes:
        of: user, item, context, or the source's name.
        auc: of the rate of its value, or of the number itself if that is better; None where the
            half holds too few rows of a class.
        ne: normalised entropy of that rate; near 0 says that the feature is the label.
        is_likely_leak: it tells the label better than a feature can.
    """

    objective: str
    of: str
    feature: str
    auc: float | None
    ne: float | None
    is_likely_leak: bool = False


@dataclass(frozen=True, kw_only=True)
class OwnItem:
    """How often the impression's own item is among its user's events close to its moment.

    Attributes:
        when: "before" counts events that the impression may see; "same moment" and "after" those
            that are hidden from it.
        within_ms: distance.
        positive_frac, negative_frac: of the impressions with label 1 and 0.
    """

    source: str
    objective: str
    when: str
    within_ms: int
    positive_frac: float | None
    negative_frac: float | None


@dataclass(frozen=True, kw_only=True)
class LeakReport:
    """Whether impressions could know their own label.

    Attributes:
        num_rows: impressions in the sample.
        features: single features, best first for each objective.
        own_item: by source with items, objective, and distance.
        num_rebuilt: histories of test impressions that were built again without any event that
            was not known at their moment.
        num_different: of them, those that did not come out the same to the last bit.
        likely: what to look at, one line each.
    """

    num_rows: int
    features: tuple[SingleFeature, ...]
    own_item: tuple[OwnItem, ...]
    num_rebuilt: int
    num_different: int
    likely: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """What a log holds, or why it cannot be read.

    Attributes:
        folder: that was checked.
        errors: what stops a load (everything else is then empty), leaves nothing to learn from,
            or is a likely leak.
        warnings: what a load accepts and a person should look at.
        rejected: what the load would not accept, by file and column.
        num_dropped: objective to impressions left out for their label, as the schema asked.
        num_impressions: rows, each with an example id of its own (a repeated one is an error).
        num_users, num_items: distinct ids among the impressions.
        rows_by_window: impressions of each window of `splits.yaml`, and of none.
        windows_ms: where each window begins and ends, Unix ms.
        num_by_hour: impressions by hour of the day, UTC.
        cold_user_frac, cold_item_frac: of the impressions, whose user or item has no row.
        collision_frac: hashed vocabulary to the estimated share of values that share a code.
    """

    folder: str
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    num_dropped: dict[str, int] | None = None
    schema_id: str = ""
    encoder_id: str = ""
    num_impressions: int = 0
    num_requests: int = 0
    num_users: int = 0
    num_items: int = 0
    cold_user_frac: float | None = None
    cold_item_frac: float | None = None
    unseen: Unseen = Unseen(user_frac=None, item_frac=None)
    span: Span = Span(first=None, last=None)
    rows_by_window: dict[str, int] | None = None
    windows_ms: dict[str, tuple[int, int]] | None = None
    num_by_hour: tuple[int, ...] = ()
    label_rates: tuple[LabelRate, ...] = ()
    timeline: Timeline | None = None
    features: tuple[FeatureShares, ...] = ()
    columns: tuple[ColumnCounts, ...] = ()
    collision_frac: dict[str, float] | None = None
    repeats: Repeats | None = None
    sources: tuple[SourceReport, ...] = ()
    leaks: LeakReport | None = None
