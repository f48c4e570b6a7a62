"""Shares, repeats, clocks and counts are those of the tables, also when read in small parts."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from features.datacheck import check_dataset, parts
from features.datacheck.clocks import measure_clock, repeated_events
from features.encoding import FIRST, UNKNOWN
from features.log import Events
from features.segments import Segment
from tests.features.logfiles import Columns, edit_table
from tests.features.tiny_log import DAY_MS, START_MS, write_tiny_log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_log(tmp_path / "log", num_days=20)


def test_unseen_shares_are_of_test_impressions_and_what_came_before_them(folder: Path) -> None:
    start, end = yaml.safe_load((folder / "splits.yaml").read_text())["test"]

    def renew(columns: Columns) -> None:
        for row, at_ms in enumerate(columns["ts"]):
            if start <= at_ms < end and row % 4 == 0:
                columns["item_id"][row] = 119
                columns["slot"][row] = "new"
            elif columns["item_id"][row] == 119:
                columns["item_id"][row] = 118

    raw = edit_table(folder, "impressions", renew)
    is_test = [start <= at_ms < end for at_ms in raw["ts"]]
    is_new = [test and item == 119 for test, item in zip(is_test, raw["item_id"], strict=True)]

    report = check_dataset(folder)

    assert report.unseen.user_frac == 0.0
    assert report.unseen.item_frac == pytest.approx(sum(is_new) / sum(is_test))
    shares = {(s.of, s.feature): s.unseen_frac for s in report.features}
    assert shares["context", "slot"] == pytest.approx(sum(is_new) / sum(is_test))
    assert shares["user", "age"] == 0.0
    assert shares["contact", "channel"] is None


def test_nulls_are_counted_for_every_column_numbers_too(folder: Path) -> None:
    edit_table(folder, "purchase", lambda c: c["quantity"].__setitem__(slice(0, 24), [None] * 24))

    columns = {(c.table, c.feature): c for c in check_dataset(folder).columns}

    assert columns["purchase", "quantity"].num_null == 24
    assert columns["purchase", "quantity"].null_frac == pytest.approx(0.1)
    assert columns["items", "price"].num_null == 1
    assert columns["users", "age"].num_null == 1
    assert columns["impressions", "slot"].null_frac == 0.0


def test_events_that_are_there_twice_are_counted(folder: Path) -> None:
    def twice(columns: Columns) -> None:
        for values in columns.values():
            values += values[:10]

    edit_table(folder, "purchase", twice)
    report = check_dataset(folder)

    assert report.sources[0].repeats.num_exact == 10
    assert any("10 events repeat another in every column" in w for w in report.warnings)


def test_impressions_that_are_there_twice_under_new_ids_are_counted(folder: Path) -> None:
    before = check_dataset(folder).repeats

    def twice(columns: Columns) -> None:
        num_rows = len(columns["ts"])
        for values in columns.values():
            values += list(values)
        columns["example_id"] = list(range(2 * num_rows))

    edit_table(folder, "impressions", twice)
    report = check_dataset(folder)

    assert before is not None
    assert report.repeats is not None
    assert report.repeats.num_same_key == before.num_same_key + 480
    assert any("was something logged twice?" in warning for warning in report.warnings)


def test_impossible_and_late_arrivals_are_told(folder: Path) -> None:
    def shift(columns: Columns) -> None:
        columns["arrived"] = [at_ms + 7_200_000 for at_ms in columns["ts"]]
        columns["arrived"][5] = columns["ts"][5] - 1

    edit_table(folder, "purchase", shift)
    report = check_dataset(folder)
    clock = report.sources[0].clock

    assert (clock.num_early, clock.num_late) == (1, 239)
    assert clock.delay_ms["p0"] == -1
    assert clock.delay_ms["p50"] == 7_200_000
    assert any("1 events arrived before they happened" in w for w in report.warnings)


def test_events_that_nothing_can_see_are_told(folder: Path) -> None:
    edit_table(folder, "contact", lambda c: c.update(ts=[at + 300 * DAY_MS for at in c["ts"]]))

    report = check_dataset(folder)

    assert report.sources[1].clock.num_after == report.sources[1].num_events == 36
    assert any("100% of its events are later" in warning for warning in report.warnings)
    assert report.sources[1].lengths[-1].empty_frac == 1.0


def test_events_known_by_the_day_only_are_told(folder: Path) -> None:
    midnight = START_MS // DAY_MS * DAY_MS
    edit_table(folder, "contact", lambda c: c.update(ts=[midnight for _ in c["ts"]]))

    report = check_dataset(folder)

    assert report.sources[1].clock.commonest_time == "00:00:00"
    assert any("dates without a time?" in warning for warning in report.warnings)


def test_labels_of_one_class_leave_nothing_to_learn(folder: Path) -> None:
    edit_table(folder, "impressions", lambda c: c.update(click=[0] * len(c["click"])))

    report = check_dataset(folder)

    assert report.errors == tuple(
        f"window {window}: every label of click is 0; there is nothing to learn"
        for window in ("fm_train", "vm_train")
    )
    assert sum("AUC is undefined" in warning for warning in report.warnings) >= 2


def test_steps_of_time_hold_every_impression_and_their_positives(folder: Path) -> None:
    report = check_dataset(folder)
    timeline = report.timeline

    assert timeline is not None
    assert sum(timeline.num_impressions) == 480
    whole = next(r for r in timeline.rates if r.objective == "click" and not r.surface)
    parts_of = [r for r in timeline.rates if r.objective == "click" and r.surface]
    assert sum(whole.num_positive) == sum(sum(r.num_positive) for r in parts_of) > 0
    assert whole.num_rows == timeline.num_impressions
    assert sum(report.num_by_hour) == 480
    assert len(timeline.starts_ms) == len(timeline.num_events["purchase"])


def test_a_length_is_in_the_bin_that_holds_it(folder: Path) -> None:
    for lengths in check_dataset(folder).sources[0].lengths:
        assert lengths.upper == (0, 1, 2, 4, 8, 16)
        assert sum(lengths.num_by_upper) == lengths.num_rows > 0


def test_the_report_is_the_same_when_columns_are_read_in_small_parts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = check_dataset(folder)
    monkeypatch.setattr(parts.parts, "__kwdefaults__", {"rows_per_part": 7})
    monkeypatch.setattr(parts, "_MAX_DISTINCT", 5)
    monkeypatch.setattr("features.datacheck.clocks.ROWS_PER_PART", 7)

    assert check_dataset(folder) == whole


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9), max_size=60))
def test_distinct_keys_are_counted_in_as_many_passes_as_it_takes(keys: list[int]) -> None:
    column = np.array(keys, dtype=np.int64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "_MAX_DISTINCT", 8)
        assert parts.num_distinct(column) == len(set(keys))
        assert parts.distinct(column).tolist() == sorted(set(keys))


@given(st.lists(st.integers(0, 5), min_size=1), st.sampled_from([0, 1, 50, 99, 100]))
def test_percentiles_are_those_of_the_values(counts: list[int], p: int) -> None:
    values = np.repeat(np.arange(len(counts)), counts)

    found = parts.percentiles(np.array(counts), (p,))

    expected = np.percentile(values, p, method="inverted_cdf") if len(values) else None
    assert found == ({} if expected is None else {f"p{p}": int(expected)})


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)))
)
def test_repeats_are_those_of_a_count_by_hand(rows: list[tuple[int, int, int, int]]) -> None:
    user, at, item, code = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    codes = {"c": FIRST + code}
    events = Events(
        user_keys=user, at_ms=at, arrival_ms=at, item_keys=item, codes=codes, numeric={}
    )

    found = repeated_events(Segment.sort("source", events).events)

    assert found.num_exact == len(rows) - len(set(rows))
    assert found.num_same_key == len(rows) - len({row[:3] for row in rows})


def test_events_with_values_outside_a_vocabulary_are_no_exact_repeats() -> None:
    ones = np.ones(2, dtype=np.int64)
    codes = {"c": np.array([UNKNOWN, UNKNOWN])}
    events = Events(
        user_keys=ones, at_ms=ones, arrival_ms=ones, item_keys=None, codes=codes, numeric={}
    )

    found = repeated_events(events)

    assert (found.num_exact, found.num_same_key) == (0, 1)


def test_a_source_without_events_has_no_clock_to_be_wrong() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    events = Events(
        user_keys=nothing, at_ms=nothing, arrival_ms=nothing, item_keys=None, codes={}, numeric={}
    )

    clock = measure_clock(events, first_ms=0, last_ms=1)

    assert (clock.num_late, clock.num_early, clock.delay_ms) == (0, 0, {})
    assert clock.commonest_time_frac is None
