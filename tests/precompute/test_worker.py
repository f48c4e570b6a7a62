"""The commit order: each step failing, crash and resume, any order and any batching."""

import itertools

import numpy as np
import pytest

from features.errors import StoreUnavailable
from features.memory import snap
from precompute.events import SourceError
from tests.precompute.fakes import (
    CRASH,
    START_MS,
    Crash,
    FakeLog,
    Fuse,
    ask,
    bad,
    buy,
    vector_of,
)
from tests.precompute.rig import Rig, vector_store

STREAM = [
    buy(1, 10, 100),
    buy(2, 20, 110),
    ask(1, [10, 11, 12], 120),
    buy(1, 11, 130),
    bad("half a record"),
    buy(1, 12, 130),  # the same moment as the one before
    ask(2, [20, 10], 140),
    buy(1, 13, 90, arrival=150),  # late: happened before, known now
    ask(1, [11, 13], 160),
    buy(2, 21, 170),
    ask(1, [10, 14], 180),
    buy(1, 10, 190),
    ask(2, [20], 200),
]
BEFORE_COMMIT = [
    "poll", "score", "before store", "middle of store", "after store", "dead letters",
]  # fmt: skip


def uninterrupted() -> Rig:
    return Rig(FakeLog(STREAM)).run()


@pytest.fixture(scope="module")
def expected() -> Rig:
    return uninterrupted()


def test_vectors_of_what_a_user_did_and_asked_for_are_in_the_store(expected: Rig) -> None:
    found = vector_store(expected.store).read_request(1, np.array([11, 14, 99]))
    assert found.memory.keys.tolist() == [10, 11, 12, 10, 13]  # newest first, five at most
    assert (found.memory.at_ms - START_MS).tolist() == [190, 130, 130, 100, 90]
    pairs = dict(zip(found.pairs.item_keys.tolist(), found.pairs.at_ms - START_MS, strict=True))
    assert pairs == {10: 180, 11: 160, 12: 120, 13: 160, 14: 180}
    assert found.user_aggregate[1] == START_MS + 180
    assert (found.item_aggregates[1] - START_MS).tolist()[:2] == [160, 180]
    assert found.item_aggregates[1][2] == -1


def test_the_stored_vector_is_the_one_the_model_gave() -> None:
    rig = Rig(FakeLog(STREAM), shows_histories=False).run()
    found = vector_store(rig.store).read_request(2, np.array([20]))
    row = found.pairs.item_keys.tolist().index(20)
    z = vector_of(2, 20, START_MS + 200)[None]
    np.testing.assert_array_equal(found.pairs.z[row], snap(z, "int4")[0])


@pytest.mark.parametrize("step", [*BEFORE_COMMIT, "commit"])
@pytest.mark.parametrize("at_call", [1, 2, 3])
def test_a_crash_at_any_step_changes_nothing_once_the_worker_is_back(
    step: str, at_call: int, expected: Rig
) -> None:
    log = FakeLog(STREAM)
    first = Rig(log, fuse=Fuse(step=step, at_call=at_call))
    with pytest.raises(Crash):
        first.run()
    again = Rig(log, store=first.store, max_events=4).run()
    assert again.content() == expected.content()
    assert log.letters.keys() == expected.log.letters.keys()
    assert log.committed == len(STREAM)


@pytest.mark.parametrize("place", range(len(STREAM) + 1))
def test_a_crash_in_the_middle_of_the_stream_changes_nothing(place: int, expected: Rig) -> None:
    log = FakeLog([*STREAM[:place], CRASH, *STREAM[place:]])
    store = expected.store.__class__(clock_ms=lambda: 0)
    with pytest.raises(Crash):
        Rig(log, store=store).run()
    assert Rig(log, store=store).run().content() == expected.content()


@pytest.mark.parametrize("step", BEFORE_COMMIT)
def test_a_step_that_fails_leaves_its_batch_uncommitted(step: str) -> None:
    log = FakeLog(STREAM)
    with pytest.raises(Crash):
        Rig(log, fuse=Fuse(step=step, at_call=1)).run()
    assert log.committed == 0


def test_a_commit_that_fails_stops_the_worker_and_the_next_one_repeats_the_batch(
    expected: Rig,
) -> None:
    log = FakeLog(STREAM)
    first = Rig(log, fuse=Fuse(step="commit", at_call=2, error=SourceError("disk full")))
    with pytest.raises(SourceError, match="disk full"):
        first.run()
    assert log.committed == 3
    assert Rig(log, store=first.store).run().content() == expected.content()


def test_the_same_worker_can_go_on_after_a_step_failed(expected: Rig) -> None:
    rig = Rig(FakeLog(STREAM), fuse=Fuse(step="dead letters", at_call=2, error=SourceError("x")))
    with pytest.raises(SourceError):
        rig.run()
    assert rig.run().content() == expected.content()
    assert rig.worker.counters.num_late == expected.worker.counters.num_late == 1


@pytest.mark.parametrize("max_events", [1, 2, 5, 100])
def test_the_outcome_does_not_depend_on_where_batches_are_cut(
    max_events: int, expected: Rig
) -> None:
    # The fake model's vectors are a function of the visible history: equal vectors, equal inputs.
    assert Rig(FakeLog(STREAM), max_events=max_events).run().content() == expected.content()


def test_an_event_sees_earlier_ones_of_its_own_batch_and_not_itself_or_its_own_moment() -> None:
    log = FakeLog([buy(1, 10, 100), buy(1, 11, 130), buy(1, 12, 130)])
    rig = Rig(log, max_events=3).run()
    memory = vector_store(rig.store).read_request(1, np.array([10])).memory
    seen = str(([START_MS + 100], [10]))
    z = np.stack([vector_of(1, item, START_MS + 130, seen) for item in (11, 12)])
    np.testing.assert_array_equal(memory.z[:2], snap(z, "int4"))


def test_the_outcome_does_not_depend_on_the_order_of_events() -> None:
    events = [buy(1, 10, 30), buy(1, 11, 20), buy(1, 12, 10), ask(1, [10, 11], 25), ask(1, [10], 5)]
    outcomes = []
    for order in itertools.permutations(events):
        for max_events in (2, 5):
            rig = Rig(FakeLog([*order]), max_events=max_events, shows_histories=False)
            outcomes.append(rig.run().content())
    assert all(outcome == outcomes[0] for outcome in outcomes)
    assert outcomes[0]


def test_older_events_are_late_whatever_the_batch_and_never_replace_newer_ones() -> None:
    rig = Rig(FakeLog([ask(1, [10], at) for at in (30, 20, 10, 25)]), max_events=3).run()
    found = vector_store(rig.store).read_request(1, np.array([10]))
    assert (found.pairs.at_ms - START_MS).tolist() == [30]
    assert rig.worker.counters.num_late == 3


def test_records_delivered_twice_are_counted_and_change_nothing(expected: Rig) -> None:
    rig = Rig(FakeLog(STREAM))
    rig.worker.run_until(START_MS + 150)
    rig.source.rewind(0)
    rig.run()
    assert rig.content() == expected.content()
    assert rig.worker.counters.num_duplicates == 10  # seven dealt with, three more polled
    assert rig.source.commits == sorted(rig.source.commits), "a commit never goes back"


def test_bad_records_are_set_aside_with_their_reason_and_the_stream_goes_on(expected: Rig) -> None:
    log = FakeLog([buy(1, 10, 1), bad("FF 00"), bad("{"), bad("3 MB"), buy(1, 11, 2)])
    rig = Rig(log, max_events=2).run()
    assert [letter.reason for letter in log.letters.values()] == ["FF 00", "{", "3 MB"]
    assert log.committed == 5
    assert rig.worker.counters.num_dead_letters == 3
    assert vector_store(rig.store).read_request(1, np.array([10])).memory.keys.tolist() == [11, 10]


@pytest.mark.parametrize("kind", ["poison", "nan"])
def test_a_record_the_model_refuses_is_tried_alone_then_set_aside(kind: str, expected: Rig) -> None:
    rig = Rig(FakeLog(STREAM), max_events=5)
    getattr(rig.model, kind).add(14)
    rig.run()
    (letter,) = (x for x in rig.log.letters.values() if "half" not in x.reason)
    assert letter.position.offset == 10
    assert "refused" in letter.reason or "finite" in letter.reason
    assert b'"item_keys": [10, 14]' in letter.payload
    assert rig.log.committed == len(STREAM)
    pairs = vector_store(rig.store).read_request(1, np.array([10])).pairs.item_keys
    assert sorted(pairs.tolist()) == [10, 11, 12, 13]


def test_a_short_store_outage_is_ridden_out_with_growing_jittered_waits(expected: Rig) -> None:
    rig = Rig(FakeLog(STREAM))
    rig.fuse.step, rig.fuse.at_call = "before store", 1
    rig.fuse.error = StoreUnavailable("connection refused")
    rig.run()
    assert rig.content() == expected.content()
    assert rig.worker.counters.num_store_retries == 1
    assert 0.025 <= rig.waits_s[0] <= 0.075


def test_a_long_store_outage_stops_the_worker_without_a_commit() -> None:
    log = FakeLog(STREAM)
    rig = Rig(log)

    def is_down(scored: object) -> None:
        raise StoreUnavailable("connection refused")

    rig.worker._sink.write = is_down
    with pytest.raises(StoreUnavailable):
        rig.run()
    assert log.committed == 0
    assert len(rig.waits_s) == 3  # four attempts
    assert rig.waits_s[2] > rig.waits_s[0]


def test_working_up_to_a_moment_leaves_the_rest_for_later(expected: Rig) -> None:
    rig = Rig(FakeLog(STREAM))
    assert rig.worker.run_until(START_MS + 140) == 6
    assert rig.log.committed == 6
    found = vector_store(rig.store).read_request(2, np.array([20]))
    assert len(found.pairs.item_keys) == 0
    assert rig.worker.run_until(START_MS + 140) == 0
    assert rig.worker.run_until(START_MS + 10_000) == 7
    assert rig.content() == expected.content()


def test_asked_to_stop_the_worker_finishes_the_batch_in_hand() -> None:
    rig = Rig(FakeLog(STREAM))
    score = rig.model.score

    def stop_while_scoring(examples: object) -> object:
        rig.worker.stop()
        return score(examples)

    rig.model.score = stop_while_scoring
    rig.run()
    assert rig.log.committed == 3
    assert vector_store(rig.store).read_request(1, np.array([10])).memory.keys.tolist() == [10]


def test_the_counters_tell_what_was_done(expected: Rig) -> None:
    counters = expected.worker.counters
    assert counters.num_polled == len(STREAM)
    assert (counters.num_engagements, counters.num_requests) == (7, 5)
    assert counters.num_dead_letters == 1
    assert counters.num_memory_vectors == 7
    assert counters.num_pair_vectors == 10
    assert counters.num_fm_samples == 17
    assert counters.num_commits == len(expected.source.commits) == 5
    assert counters.newest_known_at_ms == START_MS + 200


def test_micro_batches_stay_within_the_budget(expected: Rig) -> None:
    assert max(expected.model.batch_sizes) <= 4
