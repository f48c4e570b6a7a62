"""When a failing store is left alone, and when it is tried again."""

from ranking.runtime.breaker import Breaker
from tests.ranking.runtime.fakes import FakeClock


def opened(clock: FakeClock) -> Breaker:
    breaker = Breaker(max_failures=3, open_ms=1000, clock=clock)
    for _ in range(3):
        assert breaker.admit()
        breaker.record(is_success=False)
    return breaker


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    breaker = opened(FakeClock())
    assert breaker.is_open
    assert not breaker.admit()


def test_a_success_between_failures_keeps_it_closed() -> None:
    breaker = Breaker(max_failures=2, open_ms=1000, clock=FakeClock())
    for is_success in (False, True, False):
        breaker.record(is_success=is_success)
    assert breaker.admit()


def test_one_call_tries_when_the_time_is_over() -> None:
    clock = FakeClock()
    breaker = opened(clock)
    clock.now_s += 1.1
    assert [breaker.admit() for _ in range(3)] == [True, False, False]


def test_a_failed_trial_keeps_it_open_and_a_good_one_closes_it() -> None:
    clock = FakeClock()
    breaker = opened(clock)
    clock.now_s += 1.1
    assert breaker.admit()
    breaker.record(is_success=False)
    assert not breaker.admit()
    clock.now_s += 1.1
    assert breaker.admit()
    breaker.record(is_success=True)
    assert all(breaker.admit() for _ in range(3))
