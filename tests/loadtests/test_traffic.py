"""Requests made from a log."""

from pathlib import Path

import numpy as np
import pytest

from features.errors import DataError, SchemaError
from loadtests.traffic import TrafficPlan, build_requests, logged_requests
from protos import ranking_pb2
from tests.precompute.tinylog import DAY_MS, TEST_START_MS, tiny_log, write_tiny_log

PLAN = TrafficPlan(
    vertical="shelf", num_requests=12, num_candidates=10, start_ms=TEST_START_MS, seed=3
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_log(tmp_path_factory.mktemp("tiny"))


def changed(**changes: object) -> TrafficPlan:
    return TrafficPlan(**(vars(PLAN) | changes))  # type: ignore[arg-type]


def items(request: ranking_pb2.RankRequest) -> list[int]:
    return np.frombuffer(request.candidates.item_ids_le, "<i8").tolist()


def columns(request: ranking_pb2.RankRequest) -> dict[str, ranking_pb2.FeatureColumn]:
    return {column.name: column for column in request.candidates.columns}


def test_a_request_asks_for_a_logged_basket_first_then_for_others(folder: Path) -> None:
    log = tiny_log(folder).impressions
    for request in build_requests(folder, PLAN):
        own = log.item_keys[(log.user_keys == request.user_id_int) & (log.at_ms == request.at_ms)]
        assert items(request)[:3] == own.tolist()
        assert len(set(items(request))) == len(items(request)) == 10


def test_only_the_surfaces_of_the_vertical_in_the_window_are_asked_for(folder: Path) -> None:
    requests = build_requests(
        folder, changed(end_ms=TEST_START_MS + DAY_MS, num_requests=3, num_candidates=5)
    )
    assert sorted(request.user_id_int for request in requests) == [1, 2, 3]  # 4 is on mailers
    assert all(TEST_START_MS <= r.at_ms < TEST_START_MS + DAY_MS for r in requests)


def test_what_differs_between_items_comes_as_a_column_and_the_rest_once(folder: Path) -> None:
    request = build_requests(folder, PLAN)[0]
    assert set(columns(request)) == {"spot", "price"}
    assert {*request.context} == {"shop", "surface"}
    assert request.context["surface"].text == "shelf"
    assert request.context["shop"].text == f"shop {request.user_id_int % 2}"
    # The price of an item is a function of the item in this log: it came along with it.
    assert list(columns(request)["price"].numbers) == [1.0 + i % 7 for i in items(request)]
    assert len(columns(request)["spot"].texts) == 10
    assert set(columns(request)["spot"].texts) <= {"", "front", "rear"}


def test_bids_are_positive_lognormal_around_one_unit_and_differ(folder: Path) -> None:
    requests = build_requests(folder, changed(num_requests=200))
    bids = np.concatenate([np.frombuffer(r.candidates.bid_micros_le, "<i8") for r in requests])
    assert bids.min() > 0
    assert np.median(bids) == pytest.approx(1_000_000, rel=0.05)
    assert np.log(bids).std() == pytest.approx(0.7, rel=0.05)


def test_the_same_plan_gives_the_same_requests_and_another_seed_others(folder: Path) -> None:
    assert build_requests(folder, PLAN) == build_requests(folder, PLAN)
    assert build_requests(folder, PLAN) != build_requests(folder, changed(seed=4))


def test_more_requests_than_the_log_has_come_again_filled_up_differently(folder: Path) -> None:
    requests = build_requests(folder, changed(num_requests=30))  # the window has 12
    assert len({request.request_id for request in requests}) == 30
    first = requests[0]
    again = next(
        r for r in requests[12:] if (r.user_id_int, r.at_ms) == (first.user_id_int, first.at_ms)
    )
    assert items(again)[:3] == items(first)[:3]
    assert items(again) != items(first)


def test_fewer_candidates_than_the_basket_cut_it(folder: Path) -> None:
    assert all(len(items(r)) == 2 for r in build_requests(folder, changed(num_candidates=2)))


def test_logged_requests_are_those_of_the_window_as_they_were_in_time_order(folder: Path) -> None:
    log = tiny_log(folder).impressions
    end_ms = TEST_START_MS + 2 * DAY_MS
    logged = logged_requests(folder, "shelf", start_ms=TEST_START_MS, end_ms=end_ms)
    assert [entry.request.user_id_int for entry in logged] == [1, 2, 3, 1, 2, 3]
    assert [entry.at_ms for entry in logged] == sorted(entry.at_ms for entry in logged)
    for entry in logged:
        rows = np.searchsorted(log.example_ids, entry.example_ids)
        assert items(entry.request) == log.item_keys[rows].tolist()
        assert (log.at_ms[rows] == entry.at_ms).all()
        assert entry.request.at_ms == entry.at_ms
        assert not entry.request.candidates.bid_micros_le


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"num_candidates": 1000}, DataError, "different items in the window"),
        ({"start_ms": TEST_START_MS + 99 * DAY_MS}, DataError, "no impression on"),
        ({"vertical": "feed"}, SchemaError, "vertical 'feed'"),
        ({"num_requests": 0}, ValueError, "num_requests: expected 1 or more"),
    ],
)
def test_a_plan_that_cannot_be_met_is_refused(
    folder: Path, changes: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        build_requests(folder, changed(**changes))
