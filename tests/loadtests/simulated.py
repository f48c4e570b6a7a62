"""A loop with a clock that jumps to the next timer, and services that live on it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from loadtests.report import Answer, Outcome


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Waits cost no time: the clock jumps to whatever is due next."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        select = self._selector.select

        def jump(timeout: float | None = None) -> list[Any]:
            assert timeout is not None, "everything waits for something that never comes"
            self._now_s += timeout
            return select(0)

        self._selector.select = jump

    def time(self) -> float:
        return self._now_s


def simulate(main: Awaitable[Any]) -> Any:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(main)


class FakeService:
    """A transport whose answers are made by a coroutine function of the request's index."""

    num_requests = 1_000_000

    def __init__(
        self, answer: Callable[[int], Awaitable[Answer]], *, heeds_timeout: bool = True
    ) -> None:
        self._answer = answer
        self._heeds_timeout = heeds_timeout

    async def send(self, index: int, *, timeout_s: float) -> Answer:
        try:
            async with asyncio.timeout(timeout_s if self._heeds_timeout else None):
                return await self._answer(index)
        except TimeoutError:
            return Answer(outcome=Outcome.LATE, reasons=("deadline_exceeded",))

    async def close(self) -> None:
        pass
