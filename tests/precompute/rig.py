"""A worker over fakes and a real in-memory store, put together and looked into."""

import random
from dataclasses import dataclass, field
from types import SimpleNamespace

from features.histories import HistoryIndex
from features.store.memory import MemoryStore
from features.vectorstore import VectorStore
from precompute.scoring import EventScorer, MicroBatchBudget
from precompute.worker import Worker, WorkerConfig
from precompute.writing import VectorStoreSink
from tests.precompute.fakes import (
    DIM,
    SPACE_ID,
    FakeLog,
    FakeModel,
    FakeSource,
    Fuse,
    FuseLetters,
    FuseSink,
    FuseStore,
    empty_histories,
)

SURFACE = SimpleNamespace(name="surface", kind="categorical", default=None)
PURCHASE = SimpleNamespace(name="purchase", max_length=100)
SCHEMA = SimpleNamespace(features_of=lambda of: (SURFACE,), sources=(PURCHASE,))


def vector_store(store: MemoryStore) -> VectorStore:
    return VectorStore(
        store, space_id=SPACE_ID, dim=DIM, dtype="int4", memory_length=5, hard_ttl_ms=10**12
    )


def content(store: MemoryStore) -> dict[str, object]:
    """Everything in the store, by key."""
    return {key: held.value for key, held in sorted(store._held.items())}


@dataclass
class Rig:
    """One life of a worker; the log and the store may come from an earlier one."""

    log: FakeLog
    store: MemoryStore = field(default_factory=lambda: MemoryStore(clock_ms=lambda: 0))
    fuse: Fuse = field(default_factory=Fuse)
    max_events: int = 3
    shows_histories: bool = True
    histories: HistoryIndex = field(default_factory=empty_histories)
    waits_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = FakeModel(self.histories if self.shows_histories else None, fuse=self.fuse)
        self.source = FakeSource(self.log, fuse=self.fuse)
        scorer = EventScorer(
            self.model,
            schema=SCHEMA,
            histories=self.histories,
            memory_source="purchase",
            budget=MicroBatchBudget(max_rows=4, max_tokens=40),
        )
        self.worker = Worker(
            self.source,
            scorer,
            sink=FuseSink(
                VectorStoreSink(vector_store(FuseStore(self.store, self.fuse))), self.fuse
            ),
            histories=self.histories,
            dead_letters=FuseLetters(self.log, self.fuse),
            config=WorkerConfig(max_events=self.max_events, store_patience_ms=350.0),
            sleep_s=self.waits_s.append,
            jitter=random.Random(1),
        )

    def run(self) -> "Rig":
        self.worker.run()
        return self

    def content(self) -> dict[str, object]:
        return content(self.store)
