"""The open loop: intended send times, outcomes that add up, phases, its own limits."""

import asyncio
import json

import pytest

from loadtests.arrivals import even_arrivals, poisson_arrivals
from loadtests.generator import Hook, drive
from loadtests.report import Answer, LoadReport, Outcome, Window
from tests.loadtests.simulated import FakeService, simulate

OK = Answer(outcome=Outcome.OK)


def window(**changes: object) -> Window:
    settings = {
        "target": "fake", "rate_qps": 100.0, "duration_s": 10.0, "warmup_s": 0.0,
        "deadline_ms": 10_000.0, "seed": None, "cuts": (),
    }  # fmt: skip
    return Window(**(settings | changes))  # type: ignore[arg-type]


def run(service: FakeService, asked: Window, **options: object) -> LoadReport:
    length_s = asked.warmup_s + asked.duration_s
    arrivals_s = even_arrivals(rate_qps=asked.rate_qps, length_s=length_s)
    options = {"cpu_clock_s": lambda: 0.0} | options
    return simulate(drive(asked, arrivals_s, service, **options))


def freezing_service(freeze_s: float, thaw_s: float) -> FakeService:
    """Serve one request at a time in 1 ms, and nothing while frozen."""
    turn = asyncio.Lock()

    async def answer(_: int) -> Answer:
        async with turn:
            now_s = asyncio.get_running_loop().time() - 0.05  # the generator's lead
            if freeze_s <= now_s < thaw_s:
                await asyncio.sleep(thaw_s - now_s)
            await asyncio.sleep(0.001)
            return OK

    return FakeService(answer, heeds_timeout=False)


async def slow(seconds: float, answer: Answer) -> Answer:
    await asyncio.sleep(seconds)
    return answer


def test_a_stall_is_felt_by_every_request_planned_during_it() -> None:
    report = run(freezing_service(5.0, 7.0), window())
    latency = report.overall.latency
    assert report.overall.planned == 1_000
    assert latency["p99_ms"] == pytest.approx(1_900, rel=0.02)
    assert latency["max_ms"] == pytest.approx(2_001, abs=1.5)
    assert latency["p50_ms"] == pytest.approx(1.0, abs=0.01)


def test_the_number_of_requests_a_stall_delays_is_the_planned_one() -> None:
    in_time = run(freezing_service(5.0, 7.0), window(deadline_ms=10.0))
    # 200 planned during the freeze, 22 more while its queue drains at one per millisecond.
    assert in_time.overall.late == pytest.approx(222, abs=2)
    assert in_time.overall.ok + in_time.overall.late == 1_000


def test_fast_refusals_do_not_flatter_the_latency() -> None:
    async def answer(index: int) -> Answer:
        if index % 10 < 7:
            return await slow(0.040, OK)
        return await slow(0.001, Answer(outcome=Outcome.REFUSED, reasons=("resource_exhausted",)))

    overall = run(FakeService(answer), window(deadline_ms=100.0)).overall
    assert overall.latency["p50_ms"] == pytest.approx(40.0, rel=0.002)
    assert overall.latency["p99_ms"] == pytest.approx(40.0, rel=0.002)
    assert overall.error_frac == pytest.approx(0.3)
    assert overall.ok_frac == pytest.approx(0.7)
    assert overall.reasons == {"resource_exhausted": 300}


def test_every_planned_request_is_counted_under_exactly_one_outcome() -> None:
    kinds = [
        (0.001, OK),
        (0.001, Answer(outcome=Outcome.DEGRADED, reasons=("user_memory_missing",))),
        (0.200, OK),  # answered, but after the deadline of 100 ms
        (0.001, Answer(outcome=Outcome.REFUSED)),
        (0.001, Answer(outcome=Outcome.FAILED, reasons=("unavailable",))),
    ]

    async def answer(index: int) -> Answer:
        return await slow(*kinds[index % 5])

    overall = run(FakeService(answer), window(deadline_ms=100.0)).overall
    counts = (overall.ok, overall.degraded, overall.late, overall.refused, overall.failed)
    assert counts == (200, 200, 200, 200, 200)
    assert sum(counts) == overall.planned == 1_000
    assert overall.goodput_frac == pytest.approx(0.4)
    assert overall.latency["count"] == 600  # the late ones are in, at least at their deadline
    assert overall.latency["max_ms"] == pytest.approx(100.0, rel=0.01)


def test_an_answer_without_a_local_timeout_is_late_by_the_intended_send_time() -> None:
    deaf = FakeService(lambda _: slow(0.150, OK), heeds_timeout=False)
    assert run(deaf, window(deadline_ms=100.0)).overall.late == 1_000


def test_the_warm_up_is_reported_apart_and_not_in_the_percentiles() -> None:
    async def answer(index: int) -> Answer:
        return await slow(5.0 if index < 200 else 0.001, OK)

    report = run(FakeService(answer), window(warmup_s=2.0))
    assert report.warmup.planned == 200
    assert report.warmup.latency["p50_ms"] == pytest.approx(5_000, rel=0.002)
    assert report.overall.planned == 1_000
    assert report.achieved_qps == pytest.approx(100.0)
    assert report.overall.latency["max_ms"] == pytest.approx(1.0, abs=0.01)


def test_percentiles_are_cut_where_a_hook_ran() -> None:
    broken = []

    async def answer(_: int) -> Answer:
        return await slow(0.080 if broken else 0.002, OK)

    async def break_it() -> None:
        broken.append(True)

    hooks = [Hook(at_s=4.0, name="worker killed", call=break_it)]
    asked = window(warmup_s=1.0, cuts=((4.0, "worker killed"),))
    before, after = run(FakeService(answer), asked, hooks=hooks).phases
    assert (before.name, after.name) == ("before worker killed", "after worker killed")
    assert (before.planned, after.planned) == (400, 600)
    assert before.latency["p99_ms"] == pytest.approx(2.0, abs=0.02)
    assert after.latency["p50_ms"] == pytest.approx(80.0, rel=0.002)


def test_a_hook_outside_the_measured_seconds_is_refused() -> None:
    async def answer(_: int) -> Answer:
        return OK

    with pytest.raises(ValueError, match=r"hook 'too late', at_s.*\[0, 10\) s, got 10"):
        run(
            FakeService(answer),
            window(),
            hooks=[Hook(at_s=10.0, name="too late", call=lambda: None)],
        )


def test_a_transport_without_requests_is_refused() -> None:
    service = FakeService(lambda _: slow(0.0, OK))
    service.num_requests = 0
    with pytest.raises(ValueError, match="requests: expected at least one"):
        run(service, window())


def test_a_client_out_of_cpu_marks_its_run_invalid() -> None:
    cpu_s = iter([0.0, 9.0])
    report = run(FakeService(lambda _: slow(0.001, OK)), window(), cpu_clock_s=lambda: next(cpu_s))
    assert report.client_cpu_frac == pytest.approx(0.9)
    assert not report.is_valid
    assert "90% of a core" in report.invalid_reasons[0]


def test_a_client_that_sends_late_marks_its_run_invalid() -> None:
    async def answer(index: int) -> Answer:
        # The send itself holds up the loop: the simulated clock moves while nothing else runs.
        asyncio.get_running_loop()._now_s += 0.015
        return OK

    report = run(FakeService(answer), window())
    assert report.send_delay_p99_ms > 1_000
    assert not report.is_valid
    assert any("send delay p99" in reason for reason in report.invalid_reasons)
    assert any("planned requests inside the window" in reason for reason in report.invalid_reasons)
    # And the delay is in the latency: it is the service's caller who waits.
    assert report.overall.latency["max_ms"] > 1_000


def test_a_run_that_keeps_up_is_valid_and_writes_json(tmp_path) -> None:
    asked = window(rate_qps=200.0, duration_s=20.0)
    arrivals_s = poisson_arrivals(rate_qps=200.0, length_s=20.0, seed=5)
    service = FakeService(lambda _: slow(0.004, OK))
    report = simulate(drive(asked, arrivals_s, service, cpu_clock_s=lambda: 0.0))
    assert report.is_valid
    assert report.invalid_reasons == ()
    assert report.achieved_frac == 1.0
    assert report.achieved_qps == pytest.approx(200.0, rel=0.05)
    report.write(tmp_path / "report.json")
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["phases"][0]["latency"]["p99_ms"] == pytest.approx(4.0, abs=0.01)
    assert written["overall"]["planned"] == len(arrivals_s)
