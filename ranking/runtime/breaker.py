"""Stops asking a store that keeps failing, and finds out by itself when it is back."""

from __future__ import annotations

import threading

from ranking.runtime.deadline import Clock


class Breaker:
    """Closed: every call may ask. Open: none may. Half-open: one may, and its outcome decides.

    Without it every request waits the whole time-out for a store that will not answer. Safe to use
    from many threads.

    Args:
        max_failures: in a row before it opens.
        open_ms: how long it stays open before one call may try.
        clock: seconds, never going back.
    """

    def __init__(self, *, max_failures: int, open_ms: float, clock: Clock) -> None:
        self._max_failures = max_failures
        self._open_s = open_ms / 1000
        self._clock = clock
        self._lock = threading.Lock()
        self._num_failures = 0
        self._may_try_at_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether calls are kept away."""
        return self._num_failures >= self._max_failures

    def admit(self) -> bool:
        """Say whether to ask now; a caller that may must `record` what came of it."""
        with self._lock:
            if not self.is_open:
                return True
            now_s = self._clock()
            if now_s < self._may_try_at_s:
                return False
            # One probe at a time: the next may try when this one had its turn.
            self._may_try_at_s = now_s + self._open_s
            return True

    def record(self, *, is_success: bool) -> None:
        """Say what came of an admitted call."""
        with self._lock:
            if is_success:
                self._num_failures = 0
                return
            self._num_failures += 1
            self._may_try_at_s = self._clock() + self._open_s
