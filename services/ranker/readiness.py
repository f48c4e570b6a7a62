"""Whether this process should get traffic: one object, which gRPC, HTTP and metrics all show.

It is computed in the background and only read by those who ask, so that asking takes no time
whatever the store or a model does. Ready means: at least one bundle is wanted, every wanted one is
loaded, and each model just computed a known request with finite scores. A store that is away is no
reason: answers are flagged then. Being alive is something else and is always true here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ranking.runtime.loader import RankerSlot, probe


@dataclass(frozen=True, kw_only=True)
class State:
    """What is ready.

    Attributes:
        problem: why the process is not ready; None when it is.
        verticals: loaded verticals and whether each is ready.
    """

    problem: str | None
    verticals: dict[str, bool] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether the process should get traffic."""
        return self.problem is None


Listener = Callable[[State], None]


class Readiness:
    """The state, and those who are told when it was looked at again.

    Args:
        slots: of the wanted bundles.
    """

    def __init__(self, slots: Sequence[RankerSlot]) -> None:
        self._slots = slots
        self._listeners: list[Listener] = []
        self._lock = threading.Lock()
        self._became_ready = threading.Event()
        self._is_stopping = False
        self._state = State(problem="starting")

    @property
    def state(self) -> State:
        """What was found last."""
        return self._state

    def subscribe(self, listener: Listener) -> None:
        """Tell a listener the state now and after every look."""
        with self._lock:
            self._listeners.append(listener)
            listener(self._state)

    def wait_until_ready(self, timeout_s: float) -> bool:
        """Wait for the first time that the process is ready."""
        return self._became_ready.wait(timeout_s)

    def refresh(self) -> None:
        """Load what is new, probe every model, and tell the listeners."""
        problems, verticals = [], {}
        for slot in self._slots:
            slot.refresh()
            ranker = slot.ranker
            if ranker is None:
                problems.append(f"{slot.folder.name}: {slot.problem}")
                continue
            problem = probe(ranker)
            verticals[ranker.bundle.manifest.vertical] = problem is None
            if problem is not None:
                problems.append(problem)
        if not self._slots:
            problems.append("no bundle is configured")
        self._publish(State(problem="; ".join(problems) or None, verticals=verticals))

    def stop(self) -> None:
        """Be not ready for good."""
        self._is_stopping = True
        self._publish(self._state)

    def _publish(self, state: State) -> None:
        with self._lock:
            if self._is_stopping:
                state = State(problem="stopping", verticals=dict.fromkeys(state.verticals, False))
            self._state = state
            for listener in self._listeners:
                listener(state)
        if state.is_ready:
            self._became_ready.set()
