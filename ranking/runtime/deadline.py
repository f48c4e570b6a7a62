"""Until when an answer is worth having, and whether anybody still waits for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ranking.runtime.errors import CallerGone, DeadlineExceeded

Clock = Callable[[], float]
"""Seconds of a clock that never goes back."""


def _never() -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """A moment of a clock after which nobody waits.

    Attributes:
        at_s: the moment; infinite for no bound.
        clock: that the moment is of.
        is_cancelled: tells whether the caller has gone.
    """

    at_s: float
    clock: Clock
    is_cancelled: Callable[[], bool] = _never

    @classmethod
    def after(
        cls,
        timeout_ms: float | None,
        clock: Clock,
        *,
        is_cancelled: Callable[[], bool] = _never,
    ) -> Deadline:
        """Give the moment this many milliseconds from now; None is no bound."""
        at_s = math.inf if timeout_ms is None else clock() + timeout_ms / 1000
        return cls(at_s=at_s, clock=clock, is_cancelled=is_cancelled)

    def left_ms(self) -> float:
        """Milliseconds left; 0 or less when there are none."""
        return (self.at_s - self.clock()) * 1000

    def require_time(self, stage: str) -> None:
        """Go on only if there is time left and somebody waits.

        Raises:
            DeadlineExceeded: there is none, before `stage`.
            CallerGone: the caller went away.
        """
        if self.is_cancelled():
            raise CallerGone(f"before {stage}: the caller has gone")
        if self.left_ms() <= 0:
            raise DeadlineExceeded(f"before {stage}: no time left, {-self.left_ms():.0f} ms over")
