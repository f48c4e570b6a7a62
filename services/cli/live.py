"""The live half of a run: a store, a ranker process, and the worker stepped through the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from features.dataset import LogDataset
from features.histories import HistoryIndex
from features.schema import VerticalSpec
from features.store import Store
from features.transferlog import TransferLog, read_transfer_log
from features.vectorstore import VectorStore
from foundation.frozen import FrozenFm
from precompute.backfill import load_transfer_log_into_store
from precompute.deadletters import DeadLetterFile
from precompute.profiles import load_profiles_into_store
from precompute.scoring import EventScorer
from precompute.sources.dataset import DatasetSource, history_events
from precompute.worker import Worker
from precompute.writing import VectorStoreSink
from protos import ranking_pb2, ranking_pb2_grpc
from ranking.bundle import load_manifest
from services.cli.processes import Child
from services.cli.run_folder import RunFolder

_RANK_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Ranker:
    """A running ranker process and where it listens."""

    child: Child

    @property
    def grpc_address(self) -> str:
        """Host and port of gRPC."""
        return str(self.child.announcement["grpc"])

    @property
    def http_url(self) -> str:
        """URL of HTTP."""
        return str(self.child.announcement["http"])

    @property
    def engine(self) -> str:
        """The engine that computes."""
        return str(self.child.announcement["engine"])


@contextmanager
def running_ranker(
    bundle: Path, store_url: str, *, log: Path, grpc_port: int = 0, http_port: int = 0
) -> Iterator[Ranker]:
    """Run a ranker process on free ports, or on those given, until the block ends."""
    arguments = ["--bundle", str(bundle), "--store", store_url]
    arguments += ["--grpc-port", str(grpc_port), "--http-port", str(http_port)]
    with Child("services.ranker.main", arguments, log=log) as child:
        yield Ranker(child)


class RankClient:
    """Calls one ranker over gRPC."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._stub = ranking_pb2_grpc.RankServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def rank(self, request: ranking_pb2.RankRequest) -> ranking_pb2.RankResponse:
        """Rank one request."""
        answer: ranking_pb2.RankResponse = self._stub.Rank(request, timeout=_RANK_TIMEOUT_S)
        return answer

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


@dataclass(frozen=True)
class Filler:
    """Puts a run's vectors and profiles into a store."""

    dataset: LogDataset
    log: TransferLog
    vertical: VerticalSpec
    store: Store

    @classmethod
    def of_run(cls, run: RunFolder, dataset: LogDataset, store: Store) -> Filler:
        """Give the filler of a finished run's served vertical."""
        log = read_transfer_log(run.transfer_log, schema_id=dataset.schema.schema_id)
        vertical = dataset.schema.vertical(load_manifest(run.bundle).vertical)
        return cls(dataset, log, vertical, store)

    @property
    def vectors(self) -> VectorStore:
        """The store as vectors of the log's space."""
        meta = self.log.meta
        return VectorStore(
            self.store,
            space_id=meta.space_id,
            dim=meta.dim,
            dtype=meta.dtype,
            memory_length=self.vertical.memory_length,
            hard_ttl_ms=self.vertical.hard_ttl_ms,
        )

    def refill(self, until_ms: int) -> None:
        """Empty the store and fill it as it would be at a moment."""
        self.store.flush()
        folder, schema = self.dataset.folder, self.dataset.schema
        load_profiles_into_store(folder, schema, self.store, at_ms=until_ms)
        self.advance(None, until_ms)

    def advance(self, from_ms: int | None, until_ms: int) -> None:
        """Add what became known in a window."""
        load_transfer_log_into_store(self.log, self.vectors, from_ms=from_ms, until_ms=until_ms)


def make_worker(filler: Filler, fm_folder: Path, *, from_ms: int, dead_letters: Path) -> Worker:
    """Give a worker over the log's own events from a moment on, to be stepped by `run_until`."""
    dataset = filler.dataset
    histories = HistoryIndex.build(history_events(dataset, known_before_ms=from_ms))
    scorer = EventScorer(
        FrozenFm.load(fm_folder, dataset, histories=histories),
        schema=dataset.schema,
        histories=histories,
        memory_source=filler.vertical.memory_source,
    )
    return Worker(
        DatasetSource(dataset, from_ms=from_ms),
        scorer,
        sink=VectorStoreSink(filler.vectors),
        histories=histories,
        dead_letters=DeadLetterFile(dead_letters),
    )
