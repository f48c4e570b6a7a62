"""One call through the pipeline: scores, flags, and what it does when something is missing."""

from typing import Any

import numpy as np
import pytest

from features.errors import StoreError, StoreTimeout
from features.keys import memory_key, user_features_key
from features.lookup import Tier
from features.profiles import pack_profile
from features.store import MemoryStore
from features.vectorstore import VectorStore
from ranking.bundle import Bundle
from ranking.calibration import calibrate
from ranking.runtime.answer import Degraded
from ranking.runtime.deadline import Deadline
from ranking.runtime.errors import CallerGone, DeadlineExceeded, InvalidRequest
from ranking.runtime.value import MAX_BID_MICROS
from tests.ranking.runtime.fakes import (
    BrokenStore,
    FakeClock,
    FakeEngine,
    make_call,
    make_ranker,
    no_deadline,
)
from tests.ranking.tiny_bundle import AT_MS, CALIBRATION, DIM, PRIOR, SPACE_ID

HOUR_MS = 3_600_000


def filled_store(user: int = 1) -> MemoryStore:
    store = MemoryStore()
    vectors = VectorStore(
        store, space_id=SPACE_ID, dim=DIM, dtype="int8", memory_length=4, hard_ttl_ms=10**10
    )
    at_ms = np.array([AT_MS - HOUR_MS])
    z = np.full((1, DIM), 0.5, dtype=np.float32)
    vectors.add_memory(user, at_ms, item_keys=np.array([105]), z=z)
    vectors.add_pairs(user, np.array([101]), at_ms=AT_MS - HOUR_MS, z=z)
    store.put({user_features_key(user): pack_profile({"age": "30s"}, at_ms=AT_MS - HOUR_MS)})
    return store


def test_a_full_store_gives_an_answer_without_flags(bundle: Bundle) -> None:
    answer = make_ranker(bundle, store=filled_store()).rank(make_call(101, 102), no_deadline())
    assert answer.degraded == ()
    assert answer.tier.tolist() == [Tier.EXACT_PAIR, Tier.SAME_USER_SIMILAR_ITEM]
    assert answer.pair_age_ms.tolist() == [HOUR_MS, HOUR_MS]
    assert answer.stage_times.total_us == 0  # the clock of this test stands still


def test_stored_vectors_change_the_scores(bundle: Bundle) -> None:
    with_store = make_ranker(bundle, store=filled_store()).rank(make_call(101), no_deadline())
    without = make_ranker(bundle).rank(make_call(101), no_deadline())
    assert with_store.p[0, 0] > without.p[0, 0]


def test_an_empty_store_and_an_unknown_user_give_flagged_answers(bundle: Bundle) -> None:
    answer = make_ranker(bundle).rank(make_call(101, 999, user=77), no_deadline())
    assert set(answer.degraded) == {
        Degraded.USER_MEMORY_MISSING,
        Degraded.USER_FEATURES_MISSING,
    }
    assert answer.is_cold_item.tolist() == [False, True]
    assert answer.tier.tolist() == [Tier.DEFAULT, Tier.DEFAULT]
    assert np.isfinite(answer.score).all()


def test_features_of_the_call_take_the_place_of_the_stored_ones(bundle: Bundle) -> None:
    ranker = make_ranker(bundle, store=filled_store())
    stored = ranker.rank(make_call(101), no_deadline())
    overridden = ranker.rank(make_call(101, user_features={"age": "40s"}), no_deadline())
    same = ranker.rank(make_call(101, user_features={"age": "30s"}), no_deadline())
    assert overridden.p[0, 0] != stored.p[0, 0]
    assert same.p[0, 0] == stored.p[0, 0]


def test_a_damaged_memory_is_refused_flagged_and_counted(bundle: Bundle) -> None:
    store = filled_store()
    store.put({memory_key(1, SPACE_ID): b"not a memory"})
    answer = make_ranker(bundle, store=store).rank(make_call(101), no_deadline())
    assert answer.degraded == (Degraded.USER_MEMORY_REFUSED,)
    assert sum(answer.num_refused.values()) == 1


def test_a_store_that_is_down_gives_flagged_answers_and_is_left_alone(bundle: Bundle) -> None:
    store, clock = BrokenStore(), FakeClock()
    ranker = make_ranker(bundle, store=store, clock=clock)
    for _ in range(5):
        answer = ranker.rank(make_call(101), Deadline.after(None, clock))
        assert Degraded.STORE_UNAVAILABLE in answer.degraded
    assert len(store.timeouts_ms) == 2  # the breaker opened
    store.is_broken = False
    clock.now_s += 2
    answer = ranker.rank(make_call(101), Deadline.after(None, clock))
    assert Degraded.STORE_UNAVAILABLE not in answer.degraded


@pytest.mark.parametrize(("left_ms", "expected_ms"), [(4.0, 4.0), (500.0, 10.0)])
def test_the_store_may_take_no_longer_than_the_call(
    bundle: Bundle, left_ms: float, expected_ms: float
) -> None:
    store, clock = BrokenStore(), FakeClock()
    make_ranker(bundle, store=store, clock=clock).rank(
        make_call(101), Deadline.after(left_ms, clock)
    )
    assert store.timeouts_ms == [pytest.approx(expected_ms)]


def test_calls_in_a_hurry_do_not_open_the_breaker(bundle: Bundle) -> None:
    store, clock = BrokenStore(StoreTimeout("slow")), FakeClock()
    ranker = make_ranker(bundle, store=store, clock=clock)
    for _ in range(5):
        ranker.rank(make_call(101), Deadline.after(1, clock))
    assert len(store.timeouts_ms) == 5


def test_a_key_of_the_wrong_type_does_not_open_the_breaker(bundle: Bundle) -> None:
    store = BrokenStore(StoreError("wrong type"))
    ranker = make_ranker(bundle, store=store)
    for _ in range(5):
        ranker.rank(make_call(101), no_deadline())
    assert len(store.timeouts_ms) == 5


def test_scores_that_are_no_numbers_become_the_prior(bundle: Bundle) -> None:
    engine = FakeEngine([0.2, np.nan, 0.9, 0.1, np.inf])
    answer = make_ranker(bundle, engine=engine).rank(
        make_call(101, 102, 103, 104, 105), no_deadline()
    )
    assert answer.is_fallback.tolist() == [False, True, False, False, True]
    assert answer.num_fallback == 2
    assert Degraded.SCORE_FALLBACK in answer.degraded
    assert answer.p[1].tolist() == pytest.approx([PRIOR["click"], PRIOR["order"]])
    finite = [place for place in answer.places.tolist() if not answer.is_fallback[place]]
    assert finite == [2, 0, 3]
    assert np.isfinite(answer.score).all()


def test_no_candidates_give_an_empty_answer_without_asking_the_model(bundle: Bundle) -> None:
    engine, store = FakeEngine(), BrokenStore()
    answer = make_ranker(bundle, engine=engine, store=store).rank(make_call(), no_deadline())
    assert len(answer.places) == 0
    assert answer.degraded == ()
    assert (engine.num_runs, store.timeouts_ms) == (0, [])


def test_duplicates_stay_with_equal_scores_in_the_order_asked(bundle: Bundle) -> None:
    noise = FakeEngine([0.3, 0.5, 0.3000001, 0.2999999])
    answer = make_ranker(bundle, engine=noise).rank(make_call(101, 102, 101, 101), no_deadline())
    assert answer.score[0] == answer.score[2] == answer.score[3]
    assert answer.places.tolist() == [1, 0, 2, 3]


def test_the_same_item_in_two_places_is_two_candidates(bundle: Bundle) -> None:
    call = make_call(101, 101, context={}, columns={"slot": ["slot0", "slot1"]})
    answer = make_ranker(bundle).rank(call, no_deadline())
    assert answer.score[0] != answer.score[1]


def test_scores_are_bid_times_calibrated_probability_of_a_thousand(bundle: Bundle) -> None:
    engine = FakeEngine([0.5, 1.0])
    bids = np.array([3_000_000, 1_000_000])
    answer = make_ranker(bundle, engine=engine).rank(
        make_call(101, 102, bid_micros=bids), no_deadline()
    )
    logits = np.array([[0.5, 0.0], [1.0, 0.0]], dtype=np.float32)
    p = calibrate(logits, ("click", "order"), CALIBRATION)
    assert answer.p == pytest.approx(p)
    assert answer.score == pytest.approx(bids * p[:, 0].astype(float) * 1000)
    assert answer.rank.tolist() == [1, 2]


def test_top_k_and_request_order(bundle: Bundle) -> None:
    ranker = make_ranker(bundle, engine=FakeEngine([0.1, 0.9, 0.5]))
    best = ranker.rank(make_call(101, 102, 103, top_k=2), no_deadline())
    asked = ranker.rank(make_call(101, 102, 103, is_in_request_order=True), no_deadline())
    assert best.places.tolist() == [1, 2]
    assert asked.places.tolist() == [0, 1, 2]
    assert asked.rank.tolist() == [3, 1, 2]


def test_an_engine_that_was_not_the_wanted_one_is_flagged(bundle: Bundle) -> None:
    answer = make_ranker(bundle, fallback_reason="no").rank(make_call(101), no_deadline())
    assert Degraded.ENGINE_FALLBACK in answer.degraded


def test_an_expired_call_is_not_started(bundle: Bundle) -> None:
    engine, store, clock = FakeEngine(), BrokenStore(), FakeClock()
    ranker = make_ranker(bundle, engine=engine, store=store, clock=clock)
    with pytest.raises(DeadlineExceeded, match="admission"):
        ranker.rank(make_call(101), Deadline.after(0, clock))
    assert (engine.num_runs, store.timeouts_ms) == (0, [])


def test_a_call_that_ran_out_of_time_at_the_store_is_not_computed(bundle: Bundle) -> None:
    engine, clock = FakeEngine(), FakeClock()

    class SlowStore(BrokenStore):
        def read(self, *arguments: object, **options: object):  # type: ignore[no-untyped-def]
            clock.now_s += 1
            raise self.error

    ranker = make_ranker(bundle, engine=engine, store=SlowStore(), clock=clock)
    with pytest.raises(DeadlineExceeded, match="engine"):
        ranker.rank(make_call(101), Deadline.after(500, clock))
    assert engine.num_runs == 0


def test_a_call_whose_caller_has_gone_is_not_started(bundle: Bundle) -> None:
    engine = FakeEngine()
    deadline = Deadline.after(None, FakeClock(), is_cancelled=lambda: True)
    with pytest.raises(CallerGone):
        make_ranker(bundle, engine=engine).rank(make_call(101), deadline)
    assert engine.num_runs == 0


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"context": {"nonsense": 1}}, "context.nonsense"),
        ({"context": {"surface": "moon"}}, "context.surface"),
        ({"context": {"slot": 1.5}}, "context.slot"),
        ({"user_features": {"slot": "x"}}, "user_features.slot"),
        ({"user_features": {"age": 1.5}}, "user_features.age"),
        ({"columns": {"slot": ["a"]}, "context": {}}, "candidates.columns.slot"),
        ({"columns": {"slot": ["a", "b"]}}, "context.slot"),
        ({"bid_micros": np.array([1])}, "candidates.bid_micros"),
        ({"bid_micros": np.array([1, -1])}, "candidates.bid_micros[1]"),
        ({"bid_micros": np.array([MAX_BID_MICROS + 1, 1])}, "candidates.bid_micros[0]"),
    ],
)
def test_a_wrong_call_is_refused_with_its_field(
    bundle: Bundle, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make_ranker(bundle).rank(make_call(101, 102, **changes), no_deadline())
    assert caught.value.field.startswith(field)


def test_too_many_candidates_are_refused_with_limit_and_count(bundle: Bundle) -> None:
    with pytest.raises(InvalidRequest, match="at most 50, got 51"):
        make_ranker(bundle).rank(make_call(*range(51)), no_deadline())


def test_a_stored_value_that_cannot_be_read_is_a_null(bundle: Bundle) -> None:
    store = filled_store()
    store.put({user_features_key(1): pack_profile({"age": 1.5}, at_ms=AT_MS)})
    odd = make_ranker(bundle, store=store).rank(make_call(101), no_deadline())
    store.put({user_features_key(1): pack_profile({"age": None}, at_ms=AT_MS)})
    null = make_ranker(bundle, store=store).rank(make_call(101), no_deadline())
    assert odd.p[0, 0] == null.p[0, 0]


def test_the_warm_up_computes_without_the_store(bundle: Bundle) -> None:
    engine, store = FakeEngine(), BrokenStore()
    make_ranker(bundle, engine=engine, store=store).warm_up()
    assert (engine.num_runs, store.timeouts_ms) == (1, [])


def test_values_that_say_nothing_are_counted_by_feature(bundle: Bundle) -> None:
    context = {"surface": "feed"}
    slots = {"slot": ["slot1", "zzz", "yyy"]}
    call = make_call(101, 102, 999, context=context, columns=slots)
    answer = make_ranker(bundle).rank(call, no_deadline())

    counts = answer.code_counts
    assert counts.num_unknown["slot"] == 2
    assert counts.num_unknown["kind"] == 1  # of the item without a row
    assert "slot" not in counts.num_null
    nothing_sent = make_ranker(bundle).rank(make_call(101, 102, context=context), no_deadline())
    assert nothing_sent.code_counts.num_null["slot"] == 2
    assert nothing_sent.code_counts.num_null["age"] == 1
