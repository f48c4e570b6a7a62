"""Answers calls for both transports: finds the model, admits by permit, counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ranking.bundle import Bundle
from ranking.runtime.answer import RankAnswer
from ranking.runtime.deadline import Clock, Deadline
from ranking.runtime.errors import NotReady, UnknownVertical
from ranking.runtime.loader import RankerSlot
from ranking.runtime.pipeline import Ranker
from ranking.runtime.request import RankCall
from services.ranker.admission import Permits
from services.ranker.faults import Fault, fault_of
from services.ranker.metrics import OTHER_VERTICAL, RankerMetrics

T = TypeVar("T")

CallReader = Callable[[Bundle, int], RankCall]
"""Gives the call for a bundle's schema, and for the moment (Unix ms) if it names none."""


class RankCalls:
    """What both transports call.

    Args:
        slots: of the bundles.
        permits: to compute.
        metrics: to count in.
        max_deadline_ms: bound on every call.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        slots: Sequence[RankerSlot],
        *,
        permits: Permits,
        metrics: RankerMetrics,
        max_deadline_ms: float,
        clock: Clock = time.monotonic,
    ) -> None:
        self._slots = slots
        self._permits = permits
        self._metrics = metrics
        self._max_deadline_ms = max_deadline_ms
        self._clock = clock

    def deadline(self, timeout_ms: float | None, is_cancelled: Callable[[], bool]) -> Deadline:
        """Give the deadline of a call that starts now."""
        return Deadline.after(self.bound_ms(timeout_ms), self._clock, is_cancelled=is_cancelled)

    def bound_ms(self, timeout_ms: float | None) -> float:
        """Give the time that a call gets: what its caller allows, and never more than our own."""
        return (
            self._max_deadline_ms if timeout_ms is None else min(timeout_ms, self._max_deadline_ms)
        )

    def rank(
        self,
        vertical: str,
        read: CallReader,
        write: Callable[[RankAnswer], T],
        *,
        deadline: Deadline,
        transport: str,
    ) -> T | Fault:
        """Answer a call, or say what is wrong.

        Args:
            vertical: whom to ask.
            read: gives the call.
            write: gives the transport's form of the answer.
            deadline: of the call.
            transport: for the metrics.
        """
        known = OTHER_VERTICAL
        try:
            ranker = self._find(vertical)
            known = ranker.bundle.manifest.vertical
            with self._permits.admitted(deadline):
                call = read(ranker.bundle, time.time_ns() // 1_000_000)
                answer = ranker.rank(call, deadline)
            written = write(answer)
            self._metrics.observe(answer)
        except Exception as error:  # noqa: BLE001 (outermost of a call: nothing may escape)
            fault = fault_of(error)
            if fault.is_ours:
                self._metrics.count_fault()
            self._metrics.count_call(known, transport, fault.code)
            return fault
        self._metrics.count_call(known, transport, "OK")
        return written

    def refuse(self, error: Exception, *, transport: str) -> Fault:
        """Give and count the fault of a call that could not be read."""
        fault = fault_of(error)
        self._metrics.count_call(OTHER_VERTICAL, transport, fault.code)
        return fault

    def _find(self, vertical: str) -> Ranker:
        rankers = [slot.ranker for slot in self._slots]
        loaded = [ranker for ranker in rankers if ranker is not None]
        for ranker in loaded:
            if ranker.bundle.manifest.vertical == vertical:
                return ranker
        if not loaded or len(loaded) < len(rankers):
            raise NotReady("a model is not loaded yet")
        known = sorted(ranker.bundle.manifest.vertical for ranker in loaded)
        raise UnknownVertical(f"vertical: expected one of {known}, got {vertical!r}")
