"""Who may compute now, who may wait, and who is sent away.

A call that waits behind many others is answered too late anyway; refusing it at once costs nothing
and tells the caller to go elsewhere.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ranking.runtime.deadline import Deadline
from ranking.runtime.errors import NotReady, Overloaded

# Of one wait on a lock; Python takes no infinite one.
_MAX_WAIT_S = 3600.0


class Permits:
    """At most max_running calls at once, at most max_waiting behind them.

    Safe to use from many threads.
    """

    def __init__(self, *, max_running: int, max_waiting: int) -> None:
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._is_closed = False
        self._num_running = 0
        self._num_waiting = 0
        self._changed = threading.Condition()

    @property
    def num_running(self) -> int:
        """Calls that hold a permit."""
        return self._num_running

    @property
    def num_waiting(self) -> int:
        """Calls that wait for one."""
        return self._num_waiting

    def close(self) -> None:
        """Admit nobody from now on; who waits already may finish."""
        with self._changed:
            self._is_closed = True

    @contextmanager
    def admitted(self, deadline: Deadline) -> Iterator[None]:
        """Hold a permit for the block, after waiting for it if need be.

        Raises:
            Overloaded: as many wait as may.
            NotReady: the process is stopping.
            DeadlineExceeded, CallerGone: while it waited.
        """
        self._take(deadline)
        try:
            yield
        finally:
            with self._changed:
                self._num_running -= 1
                self._changed.notify()

    def _take(self, deadline: Deadline) -> None:
        with self._changed:
            if self._is_closed:
                raise NotReady("the process is stopping")
            if self._num_running >= self._max_running:
                if self._num_waiting >= self._max_waiting:
                    raise Overloaded(
                        f"{self._num_running} calls run and {self._num_waiting} wait; "
                        f"expected fewer than {self._max_waiting} waiting"
                    )
                self._wait(deadline)
            self._num_running += 1

    def _wait(self, deadline: Deadline) -> None:
        self._num_waiting += 1
        try:
            while self._num_running >= self._max_running:
                deadline.require_time("a permit")
                left_s = deadline.left_ms() / 1000
                self._changed.wait(min(left_s, _MAX_WAIT_S) if math.isfinite(left_s) else None)
        finally:
            self._num_waiting -= 1
