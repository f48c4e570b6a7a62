"""Engines, stores and clocks that do what a test says."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from features.arrays import FloatArray
from features.errors import StoreError, StoreUnavailable
from features.store import MemoryStore, Reply
from ranking.bundle import Bundle
from ranking.runtime.breaker import Breaker
from ranking.runtime.deadline import Deadline
from ranking.runtime.engines import Choice
from ranking.runtime.engines.protocol import Arrays
from ranking.runtime.pipeline import Ranker
from ranking.runtime.request import RankCall
from tests.ranking.tiny_bundle import AT_MS, tiny_logits


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class FakeEngine:
    """Gives the tiny model's logits, or those a test wants for the click."""

    name, precision = "fake-fp32", "fp32"

    def __init__(self, clicks: Sequence[float] | None = None) -> None:
        self.clicks = clicks
        self.num_runs = 0

    def run(self, inputs: Arrays) -> FloatArray:
        self.num_runs += 1
        if self.clicks is None:
            return tiny_logits(inputs)
        click = np.array(self.clicks, dtype=np.float32)
        return np.stack([click, np.zeros_like(click)], axis=1)


class BrokenStore(MemoryStore):
    """Fails to read as long as it has an error."""

    def __init__(self, error: StoreError | None = None) -> None:
        super().__init__()
        self.error = StoreUnavailable("down") if error is None else error
        self.is_broken = True
        self.timeouts_ms: list[float | None] = []

    def read(
        self, keys: Sequence[str], hashes: Sequence[str] = (), *, timeout_ms: float | None = None
    ) -> Reply:
        self.timeouts_ms.append(timeout_ms)
        if self.is_broken:
            raise self.error
        return super().read(keys, hashes)


def make_ranker(
    bundle: Bundle,
    *,
    engine: FakeEngine | None = None,
    store: MemoryStore | None = None,
    clock: FakeClock | None = None,
    fallback_reason: str | None = None,
) -> Ranker:
    clock = clock or FakeClock()
    return Ranker(
        bundle,
        Choice(engine=engine or FakeEngine(), fallback_reason=fallback_reason),
        store=store or MemoryStore(),
        breaker=Breaker(max_failures=2, open_ms=1000, clock=clock),
        store_timeout_ms=10,
        clock=clock,
    )


def make_call(*items: int, user: int = 1, **changes: Any) -> RankCall:
    options: dict[str, Any] = {"context": {"surface": "feed", "slot": "slot1"}, **changes}
    return RankCall(
        request_id="r",
        user_key=user,
        at_ms=AT_MS,
        item_ids=list(items),
        item_keys=np.array(items, dtype=np.int64),
        **options,
    )


def no_deadline() -> Deadline:
    return Deadline.after(None, FakeClock())
