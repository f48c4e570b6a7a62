"""With the real foundation model: what the worker stores is what the transfer log says."""

from pathlib import Path

import numpy as np
import pytest
import torch

from features.dataset import LogDataset
from features.histories import HistoryIndex
from features.store import MemoryStore
from features.transferlog import read_transfer_log
from features.vectorstore import StoredRequest, VectorStore
from foundation.assembly import build_model
from foundation.frozen import FrozenFm
from foundation.model.config import ModelConfig
from foundation.model.kunlun import KunlunConfig
from foundation.transfer import write_transfer_log
from precompute.backfill import load_transfer_log_into_store
from precompute.scoring import EventScorer, MicroBatchBudget
from precompute.sources.dataset import DatasetSource, history_events
from precompute.worker import Worker, WorkerConfig
from precompute.writing import VectorStoreSink
from tests.precompute.fakes import FakeLog
from tests.precompute.tinylog import DAY_MS, tiny_log

SMALL = ModelConfig(
    width=16, head_hidden=16, max_events=12, count_events=32, bottleneck_dim=8,
    bottleneck_prefixes=(4, 8), body=KunlunConfig(
        num_heads=2, num_layers=1, generated_width=8, summary_tokens=4, half_window=4,
        num_seeds=4, num_pooled=2, interaction_rank=4, interaction_hidden=16,
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> LogDataset:
    return tiny_log(tmp_path_factory.mktemp("tiny"))


def model_over(dataset: LogDataset, histories: HistoryIndex | None = None) -> FrozenFm:
    """An untrained model: its vectors depend on all it sees, which is what matters here."""
    torch.manual_seed(1)
    model = build_model(dataset, SMALL)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(2.0)
    return FrozenFm(model, dataset, histories=histories, vector_dtype="fp16")


def vector_store(fm: FrozenFm) -> VectorStore:
    return VectorStore(
        MemoryStore(clock_ms=lambda: 0),
        space_id=fm.space_id,
        dim=fm.dim,
        dtype=fm.dtype,
        memory_length=6,
        hard_ttl_ms=60 * DAY_MS,
    )


def from_transfer_log(dataset: LogDataset, folder: Path) -> VectorStore:
    fm = model_over(dataset)
    write_transfer_log(dataset, fm, folder)
    log = read_transfer_log(folder, schema_id=dataset.schema.schema_id)
    filled = vector_store(fm)
    start_ms, end_ms = dataset.splits.vm_train[0], dataset.splits.test[1]
    load_transfer_log_into_store(log, filled, from_ms=start_ms, until_ms=end_ms)
    return filled


def from_worker(dataset: LogDataset) -> VectorStore:
    start_ms = dataset.splits.vm_train[0]
    histories = HistoryIndex.build(history_events(dataset, known_before_ms=start_ms))
    fm = model_over(dataset, histories)
    filled = vector_store(fm)
    scorer = EventScorer(
        fm,
        schema=dataset.schema,
        histories=histories,
        memory_source="purchase",
        budget=MicroBatchBudget(max_rows=10, max_tokens=200),
    )
    worker = Worker(
        DatasetSource(dataset, from_ms=start_ms),
        scorer,
        sink=VectorStoreSink(filled),
        histories=histories,
        dead_letters=FakeLog([]),
        config=WorkerConfig(max_events=11),
    )
    worker.run()
    assert worker.counters.num_dead_letters == 0
    return filled


def test_the_worker_and_the_transfer_log_agree_on_every_vector(
    dataset: LogDataset, tmp_path: Path
) -> None:
    offline, online = from_transfer_log(dataset, tmp_path), from_worker(dataset)
    items = dataset.items.keys
    for user in (1, 2, 3, 4):
        logged, stored = offline.read_request(user, items), online.read_request(user, items)
        assert len(stored.memory) == 6
        _require_equal(logged, stored)
        assert np.ptp(stored.memory.z, axis=0).max() > 0.01, "vectors that say something"
        assert np.ptp(stored.pairs.z, axis=0).max() > 0.01


def _require_equal(logged: StoredRequest, stored: StoredRequest) -> None:
    for expected, got in ((logged.memory, stored.memory), (logged.pairs, stored.pairs)):
        np.testing.assert_array_equal(got.at_ms, expected.at_ms)
        np.testing.assert_allclose(got.z, expected.z, atol=2e-3)
    np.testing.assert_array_equal(stored.memory.keys, logged.memory.keys)
    np.testing.assert_array_equal(stored.pairs.item_keys, logged.pairs.item_keys)
    np.testing.assert_allclose(stored.user_aggregate[0], logged.user_aggregate[0], atol=2e-3)
    np.testing.assert_array_equal(stored.item_aggregates[1], logged.item_aggregates[1])
    np.testing.assert_allclose(stored.item_aggregates[0], logged.item_aggregates[0], atol=2e-3)
