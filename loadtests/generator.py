"""Open-loop load: requests leave on a clock that was fixed beforehand, whatever the answers do.

A closed loop waits for the server and so stops counting exactly when the server stalls
(coordinated omission). Here a request's latency runs from the moment it was *meant* to leave, so
a stall is felt by every request planned during it. The clock is the running event loop's, so a
test can run hours of load in no time on a loop with a simulated clock.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import selectors
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from loadtests.arrivals import Seconds, poisson_arrivals
from loadtests.report import LoadReport, Recording, Window, make_report
from loadtests.transports import Transport, open_transport
from protos import ranking_pb2

# Between building the tasks and the first intended send.
_LEAD_S = 0.05


@dataclass(frozen=True, kw_only=True)
class Hook:
    """Something to do to the system under load, for example to stop a worker.

    Attributes:
        at_s: seconds from the end of the warm-up; percentiles are cut here.
        name: for the phases, "before <name>" and "after <name>".
        call: a coroutine function, or a function, which runs in a thread of its own.
    """

    at_s: float
    name: str
    call: Callable[[], object] | Callable[[], Awaitable[object]]


def run_load(
    target: str,
    requests: Sequence[ranking_pb2.RankRequest],
    *,
    rate_qps: float,
    duration_s: float,
    warmup_s: float = 5.0,
    seed: int = 0,
    deadline_ms: float = 100.0,
    hooks: Sequence[Hook] = (),
) -> LoadReport:
    """Send Poisson arrivals to a ranking service and report what came back.

    Requests are sent in the order given, over and over. The percentiles cover duration_s, which
    starts when warmup_s is over.

    Args:
        target: "grpc://host:port" (or "host:port"), or "http://host:port".
        requests: built beforehand, so that building costs the run nothing.
        rate_qps: planned requests per second.
        duration_s: measured seconds.
        warmup_s: seconds before them, sent at the same rate and reported apart.
        seed: of the arrivals.
        deadline_ms: from the intended send; a later answer counts as late.
        hooks: see Hook; each must lie inside the measured seconds.

    Raises:
        ValueError: no requests, a rate or duration that is not positive, a hook outside the run.
    """
    arrivals_s = poisson_arrivals(rate_qps=rate_qps, length_s=warmup_s + duration_s, seed=seed)
    ordered = sorted(hooks, key=lambda hook: hook.at_s)
    window = Window(
        target=target,
        rate_qps=rate_qps,
        duration_s=duration_s,
        warmup_s=warmup_s,
        deadline_ms=deadline_ms,
        seed=seed,
        cuts=tuple((hook.at_s, hook.name) for hook in ordered),
    )

    async def run() -> LoadReport:
        transport = open_transport(target, requests)
        try:
            return await drive(window, arrivals_s, transport, hooks=ordered)
        finally:
            await transport.close()

    # Prebuilt requests live through the run: keep the collector from walking them meanwhile.
    gc.collect()
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=_precise_loop) as runner:
            return runner.run(run())
    finally:
        gc.unfreeze()


async def drive(
    window: Window,
    arrivals_s: Seconds,
    transport: Transport,
    *,
    hooks: Sequence[Hook] = (),
    cpu_clock_s: Callable[[], float] = time.process_time,
) -> LoadReport:
    """Send one request at each arrival through a transport, on the running loop's clock.

    Raises:
        ValueError: the transport holds no requests, or a hook lies outside the measured seconds.
    """
    if not transport.num_requests:
        raise ValueError("requests: expected at least one, got none")
    for hook in hooks:
        if not 0 <= hook.at_s < window.duration_s:
            raise ValueError(
                f"hook {hook.name!r}, at_s: expected within the measured [0, "
                f"{window.duration_s:g}) s, got {hook.at_s:g}"
            )
    recording = Recording(arrivals_s)
    start_s = asyncio.get_running_loop().time() + _LEAD_S
    async with asyncio.TaskGroup() as group:
        group.create_task(_measure_cpu(recording, window, start_s, cpu_clock_s))
        for hook in hooks:
            group.create_task(_run_hook(hook, start_s + window.warmup_s + hook.at_s))
        sender = _Sender(transport, recording, start_s, window.deadline_ms / 1e3)
        for index, arrival_s in enumerate(arrivals_s.tolist()):
            await _sleep_until(start_s + arrival_s)
            group.create_task(sender.send(index))
    return make_report(recording, window)


@dataclass(frozen=True)
class _Sender:
    transport: Transport
    recording: Recording
    start_s: float
    deadline_s: float

    async def send(self, index: int) -> None:
        loop = asyncio.get_running_loop()
        sent_s = loop.time() - self.start_s
        left_s = self.deadline_s - (sent_s - float(self.recording.due_s[index]))
        # A generator far behind still sends, so that the server sees the planned load.
        answer = await self.transport.send(
            index % self.transport.num_requests, timeout_s=max(left_s, 0.001)
        )
        done_s = loop.time() - self.start_s
        self.recording.put(index, sent_s=sent_s, done_s=done_s, answer=answer)


async def _measure_cpu(
    recording: Recording, window: Window, start_s: float, cpu_clock_s: Callable[[], float]
) -> None:
    loop = asyncio.get_running_loop()
    await _sleep_until(start_s + window.warmup_s)
    from_s, cpu_from_s = loop.time(), cpu_clock_s()
    await _sleep_until(start_s + window.warmup_s + window.duration_s)
    recording.client_cpu_frac = (cpu_clock_s() - cpu_from_s) / max(loop.time() - from_s, 1e-9)


async def _run_hook(hook: Hook, at_s: float) -> None:
    await _sleep_until(at_s)
    if inspect.iscoroutinefunction(hook.call):
        await hook.call()
    else:
        await asyncio.to_thread(hook.call)


async def _sleep_until(at_s: float) -> None:
    # Also when late: a generator behind its clock must still read answers.
    await asyncio.sleep(max(at_s - asyncio.get_running_loop().time(), 0.0))


def _precise_loop() -> asyncio.AbstractEventLoop:
    """Give a loop whose timers are good to some 0.1 ms; epoll and uvloop round up to 1 ms."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())
