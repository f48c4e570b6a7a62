"""Histories: what a moment may know, in one order, however the events came."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import DataError
from features.histories import HistoryIndex, HistorySlice, one_seq
from features.log import Events

Row = tuple[int, int, int, int, int, float]  # user, at, delay, item, code, number

rows_strategy = st.lists(
    st.tuples(
        st.integers(-2, 2),
        st.integers(0, 12),
        st.sampled_from([0, 0, 0, -1, 1, 5, 30]),
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from([0.0, -0.0, 1.5, float("nan")]),
    ),
    max_size=24,
)
queries_strategy = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 40)), max_size=8)


def events_of(rows: list[Row]) -> Events:
    def column(place: int, dtype: type) -> np.ndarray:
        return np.array([row[place] for row in rows], dtype=dtype)

    return Events(
        user_keys=column(0, np.int64),
        at_ms=column(1, np.int64),
        arrival_ms=column(1, np.int64) + column(2, np.int64),
        item_keys=column(3, np.int64),
        codes={"code": column(4, np.int64)},
        numeric={"number": column(5, np.float32)},
    )


def ask(index: HistoryIndex, queries: list[tuple[int, int]], max_length: int = 4) -> HistorySlice:
    users = np.array([user for user, _ in queries], dtype=np.int64)
    moments = np.array([at for _, at in queries], dtype=np.int64)
    return index.visible("purchase", users, moments, max_length=max_length)


def bytes_of(part: HistorySlice) -> list[bytes]:
    assert part.item_keys is not None
    arrays = [part.offsets, part.at_ms, part.item_keys, part.codes["code"], part.numeric["number"]]
    return [array.tobytes() for array in arrays]


def bits(number: float) -> int:
    return int(np.float32(number).view(np.int32))


def oracle(rows: list[Row], query: tuple[int, int], max_length: int) -> list[Row]:
    user, moment = query
    known = [r for r in rows if r[0] == user and r[1] < moment and r[1] + r[2] <= moment]
    known.sort(key=lambda r: (r[1], r[1] + r[2], r[3], r[4], bits(r[5])))
    return known[-max_length:]


@given(rows=rows_strategy, queries=queries_strategy, max_length=st.integers(1, 6))
def test_a_history_is_what_a_plain_loop_over_all_events_gives(rows, queries, max_length):
    part = ask(HistoryIndex.build({"purchase": events_of(rows)}), queries, max_length)
    for place, query in enumerate(queries):
        expected = oracle(rows, query, max_length)
        got = slice(part.offsets[place], part.offsets[place + 1])
        assert part.at_ms[got].tolist() == [row[1] for row in expected]
        assert part.item_keys is not None
        assert part.item_keys[got].tolist() == [row[3] for row in expected]
        assert part.codes["code"][got].tolist() == [row[4] for row in expected]
        assert part.numeric["number"][got].view(np.int32).tolist() == [
            bits(row[5]) for row in expected
        ]


@given(rows=rows_strategy, queries=queries_strategy)
def test_hidden_events_of_the_user_are_counted(rows, queries):
    part = ask(HistoryIndex.build({"purchase": events_of(rows)}), queries)
    future = [(q, r) for q in queries for r in rows if r[0] == q[0] and r[1] >= q[1]]
    late = [(q, r) for q in queries for r in rows if r[0] == q[0] and r[1] < q[1] < r[1] + r[2]]
    assert part.num_late == len(late)
    assert part.num_excluded == len(future) + len(late)


@given(data=st.data(), rows=rows_strategy, queries=queries_strategy)
def test_appending_one_by_one_in_any_order_equals_one_build(data, rows, queries):
    shuffled = data.draw(st.permutations(rows))
    built = data.draw(st.integers(0, len(rows)))
    index = HistoryIndex.build({"purchase": events_of(shuffled[:built])})
    for row in shuffled[built:]:
        index.append("purchase", events_of([row]))
    at_once = HistoryIndex.build({"purchase": events_of(rows)})
    assert bytes_of(ask(index, queries)) == bytes_of(ask(at_once, queries))
    assert ask(index, queries).num_excluded == ask(at_once, queries).num_excluded
    assert index.num_events("purchase") == len(rows)


@given(rows=rows_strategy, later=rows_strategy, queries=queries_strategy)
def test_events_from_the_moment_on_change_no_byte(rows, later, queries):
    index = HistoryIndex.build({"purchase": events_of(rows)})
    before = ask(index, queries)
    before_bytes = bytes_of(before)
    last = max((at for _, at in queries), default=0)
    index.append("purchase", events_of([(u, last + at, *rest) for u, at, *rest in later]))
    assert bytes_of(ask(index, queries)) == before_bytes
    assert bytes_of(before) == before_bytes


@settings(max_examples=10)
@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12), seed=st.integers(0, 9))
def test_appends_of_any_size_keep_every_event(sizes, seed):
    rng = np.random.default_rng(seed)
    index = HistoryIndex.build({"purchase": events_of([])})
    kept: list[Row] = []
    for size in sizes:
        fresh = [
            (int(u), int(at), 0, int(item), 0, 0.0) for u, at, item in rng.integers(0, 9, (size, 3))
        ]
        index.append("purchase", events_of(fresh))
        kept += fresh
    queries = [(user, moment) for user in range(9) for moment in (3, 9)]
    at_once = HistoryIndex.build({"purchase": events_of(kept)})
    assert bytes_of(ask(index, queries, 500)) == bytes_of(ask(at_once, queries, 500))


def test_the_label_event_later_events_and_late_arrivals_stay_hidden():
    rows = [(1, 90, 0, 7, 0, 0.0), (1, 100, 0, 8, 0, 0.0), (1, 110, 0, 9, 0, 0.0)]
    late = (1, 95, 25, 6, 0, 0.0)
    part = ask(HistoryIndex.build({"purchase": events_of([*rows, late])}), [(1, 100)])
    assert part.at_ms.tolist() == [90]
    assert part.item_keys is not None
    assert part.item_keys.tolist() == [7]
    assert (part.num_excluded, part.num_late) == (3, 1)
    changed = [rows[0], (1, 100, 0, 5, 2, 1.5), (1, 250, 0, 4, 1, 1.5), late]
    again = ask(HistoryIndex.build({"purchase": events_of(changed)}), [(1, 100)])
    assert bytes_of(again) == bytes_of(part)
    arrived = ask(HistoryIndex.build({"purchase": events_of([*rows, late])}), [(1, 120)])
    assert arrived.at_ms.tolist() == [90, 95, 100, 110]


@pytest.fixture
def machine_zone() -> Iterator[None]:
    before = os.environ.get("TZ")
    yield
    if before is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("machine_zone")
def test_the_time_zone_of_the_machine_changes_no_byte():
    rng = np.random.default_rng(3)
    rows = [(int(u), int(at), 0, int(i), 0, 0.0) for u, at, i in rng.integers(0, 30, (200, 3))]
    queries = [(user, 20) for user in range(30)]
    answers = []
    for zone in ("UTC", "Asia/Tokyo"):
        os.environ["TZ"] = zone
        time.tzset()
        answers.append(bytes_of(ask(HistoryIndex.build({"purchase": events_of(rows)}), queries)))
    assert answers[0] == answers[1]
    assert len(answers[0][1]) > 0


def test_a_slice_does_not_reach_into_the_index():
    index = HistoryIndex.build({"purchase": events_of([(1, 5, 0, 7, 0, 1.5)])})
    part = ask(index, [(1, 9)])
    part.at_ms[0] = 8
    assert ask(index, [(1, 9)]).at_ms.tolist() == [5]


def test_the_index_does_not_watch_the_arrays_it_was_built_from():
    events = events_of([(1, 5, 0, 7, 0, 1.5)])
    index = HistoryIndex.build({"purchase": events})
    events.at_ms[0] = 8
    assert ask(index, [(1, 9)]).at_ms.tolist() == [5]


def test_no_rows_and_no_events_give_an_empty_slice():
    part = ask(HistoryIndex.build({"purchase": events_of([])}), [])
    assert part.offsets.tolist() == [0]
    part = ask(HistoryIndex.build({"purchase": events_of([])}), [(1, 5), (2, 5)])
    assert part.offsets.tolist() == [0, 0, 0]


def test_a_column_of_another_length_is_named():
    events = events_of([(1, 5, 0, 7, 0, 1.5), (1, 6, 0, 7, 0, 1.5)])
    events.codes["code"] = events.codes["code"][:1]
    with pytest.raises(DataError, match=r"'purchase', column 'code': expected 2 .* got 1"):
        HistoryIndex.build({"purchase": events})


def test_a_slice_whose_offsets_disagree_with_a_column_is_refused():
    values = np.arange(5)
    with pytest.raises(DataError, match=r"'at_ms': expected 3 values .* got 5"):
        HistorySlice(
            offsets=np.array([0, 1, 3]),
            at_ms=values,
            item_keys=None,
            codes={},
            numeric={},
            num_excluded=0,
        )


def test_an_unknown_source_is_refused():
    index = HistoryIndex.build({"purchase": events_of([])})
    with pytest.raises(DataError, match=r"'click': expected one of \['purchase'\]"):
        index.visible("click", np.array([1]), np.array([5]), max_length=3)


def test_appending_other_columns_is_refused():
    index = HistoryIndex.build({"purchase": events_of([])})
    other = events_of([(1, 5, 0, 7, 0, 1.5)])
    other.codes["extra"] = other.codes["code"]
    with pytest.raises(DataError, match="expected columns"):
        index.append("purchase", other)


def test_a_length_below_one_is_refused():
    index = HistoryIndex.build({"purchase": events_of([])})
    with pytest.raises(ValueError, match="max_length: expected 1 or more, got 0"):
        ask(index, [(1, 5)], 0)


@given(first=rows_strategy, second=rows_strategy, queries=queries_strategy)
def test_merged_sources_are_ordered_by_time_then_source(first, second, queries):
    index = HistoryIndex.build({"a": events_of(first), "b": events_of(second)})
    users = np.array([user for user, _ in queries], dtype=np.int64)
    moments = np.array([at for _, at in queries], dtype=np.int64)
    slices = {name: index.visible(name, users, moments, max_length=4) for name in ("b", "a")}
    merged = one_seq(slices, max_length=5)
    for row in range(len(queries)):
        expected = sorted(
            (int(slices[name].at_ms[position]), source, position)
            for source, name in enumerate(("b", "a"))
            for position in range(slices[name].offsets[row], slices[name].offsets[row + 1])
        )[-5:]
        part = slice(merged.offsets[row], merged.offsets[row + 1])
        got = zip(
            merged.at_ms[part].tolist(),
            merged.source_index[part].tolist(),
            merged.position[part].tolist(),
            strict=True,
        )
        assert list(got) == expected


def test_merging_keeps_its_order_where_times_are_centuries_apart():
    rows = [(1, 0, 0, 1, 0, 0.0), (1, 2**62, 0, 2, 0, 0.0), (2, 5, 0, 3, 0, 0.0)]
    index = HistoryIndex.build({"purchase": events_of(rows)})
    part = ask(index, [(1, 2**62 + 1), (2, 2**62 + 1), (1, 7)])
    assert one_seq({"purchase": part}, max_length=9).at_ms.tolist() == [0, 2**62, 5, 0]


def test_merging_histories_of_different_rows_is_refused():
    index = HistoryIndex.build({"purchase": events_of([])})
    with pytest.raises(DataError, match="same number of rows"):
        one_seq({"a": ask(index, [(1, 5)]), "b": ask(index, [])}, max_length=3)
