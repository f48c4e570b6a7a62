"""Filling a store from a transfer log, and that it agrees with the worker."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from features.dataset import LogDataset
from features.errors import DataError
from features.histories import HistoryIndex
from features.packed import quantise
from features.store import MemoryStore
from features.transferlog import RowKind, TransferLog, TransferMeta, TransferRows
from features.vectorstore import VectorStore
from precompute.backfill import load_transfer_log_into_store
from precompute.scoring import EventScorer
from precompute.sources.dataset import DatasetSource, history_events
from precompute.worker import Worker
from precompute.writing import VectorStoreSink
from tests.precompute.fakes import DIM, SPACE_ID, FakeLog, FakeModel, vector_of
from tests.precompute.rig import content
from tests.precompute.tinylog import DAY_MS, START_MS, TEST_START_MS, tiny_log

END_MS = START_MS + 30 * DAY_MS
META = TransferMeta(
    schema_id="0" * 16,
    encoder_id="1" * 16,
    space_id=SPACE_ID,
    fm_version="fake",
    dim=DIM,
    dtype="int4",
    objectives=("bought",),
)


def vector_store(store: MemoryStore, **changes: object) -> VectorStore:
    settings = {"space_id": SPACE_ID, "dim": DIM, "dtype": "int4", "memory_length": 6}
    settings |= {"hard_ttl_ms": 60 * DAY_MS, "max_pairs": 9, "item_memory_length": 3}
    return VectorStore(store, **(settings | changes))  # type: ignore[arg-type]


def transfer_log(user_keys, item_keys, *, at_ms, kinds) -> TransferLog:
    z = np.stack(
        [
            vector_of(int(u), int(i), int(t))
            for u, i, t in zip(user_keys, item_keys, at_ms, strict=True)
        ]
    )
    rows = TransferRows(
        example_ids=np.arange(len(at_ms)),
        kinds=np.asarray(kinds, dtype=np.int8),
        request_ids=np.zeros(len(at_ms), dtype=np.int64),
        user_keys=np.asarray(user_keys),
        item_keys=np.asarray(item_keys),
        at_ms=np.asarray(at_ms),
        p={"bought": np.full(len(at_ms), 0.5, dtype=np.float32)},
        packed=quantise(z, "int4"),
        dim=DIM,
        dtype="int4",
    )
    return TransferLog(meta=META, rows=rows)


def log_of(dataset: LogDataset) -> TransferLog:
    """What the fake model would have logged of a data set."""
    shown, bought = dataset.impressions, dataset.events["purchase"]
    kinds = np.repeat([RowKind.IMPRESSION, RowKind.ENGAGEMENT], [len(shown), len(bought)])
    return transfer_log(
        np.concatenate([shown.user_keys, bought.user_keys]),
        np.concatenate([shown.item_keys, bought.item_keys]),
        at_ms=np.concatenate([shown.at_ms, bought.at_ms]),
        kinds=kinds,
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> LogDataset:
    return tiny_log(tmp_path_factory.mktemp("tiny"))


def filled(log: TransferLog, **window: int) -> dict[str, object]:
    store = MemoryStore(clock_ms=lambda: 0)
    load_transfer_log_into_store(log, vector_store(store), **window)
    return content(store)


def worked(dataset: LogDataset, until_ms: int) -> dict[str, object]:
    """What the worker leaves in the store, working from the log's first record."""
    histories = HistoryIndex.build(history_events(dataset, known_before_ms=0))
    store = MemoryStore(clock_ms=lambda: 0)
    worker = Worker(
        DatasetSource(dataset, from_ms=0),
        EventScorer(
            FakeModel(), schema=dataset.schema, histories=histories, memory_source="purchase"
        ),
        sink=VectorStoreSink(vector_store(store)),
        histories=histories,
        dead_letters=FakeLog([]),
    )
    worker.run_until(until_ms)
    return content(store)


@pytest.mark.parametrize("until_ms", [TEST_START_MS, END_MS])
def test_a_fill_leaves_the_same_bytes_as_the_worker(dataset: LogDataset, until_ms: int) -> None:
    offline, online = filled(log_of(dataset), until_ms=until_ms), worked(dataset, until_ms)
    assert offline.keys() == online.keys()
    assert offline == online
    kinds = {key[-1] for key in offline}
    assert kinds == {"h", "p", "a", "m"}


def test_only_rows_before_the_moment_are_visible(dataset: LogDataset) -> None:
    store = MemoryStore(clock_ms=lambda: 0)
    at_ms = int(dataset.impressions.at_ms[-1])
    load_transfer_log_into_store(log_of(dataset), vector_store(store), until_ms=at_ms)
    user = int(dataset.impressions.user_keys[-1])
    found = vector_store(store).read_request(user, dataset.impressions.item_keys[-3:])
    assert found.memory.at_ms.max() < at_ms
    assert found.pairs.at_ms.max() < at_ms
    assert found.item_aggregates[1].max() < at_ms


def test_filling_in_pieces_or_twice_gives_the_same_as_at_once(dataset: LogDataset) -> None:
    log = log_of(dataset)
    store = MemoryStore(clock_ms=lambda: 0)
    edges = [START_MS, START_MS + 5 * DAY_MS, START_MS + 6 * DAY_MS, END_MS]
    pieces = [*pairwise(edges)]
    for from_ms, until_ms in [pieces[2], pieces[0], pieces[1], pieces[0]]:
        load_transfer_log_into_store(log, vector_store(store), from_ms=from_ms, until_ms=until_ms)
    assert content(store) == filled(log, until_ms=END_MS)


def test_the_report_counts_what_was_inside_the_window(dataset: LogDataset) -> None:
    store = MemoryStore(clock_ms=lambda: 0)
    report = load_transfer_log_into_store(
        log_of(dataset), vector_store(store), from_ms=START_MS, until_ms=START_MS + DAY_MS
    )
    assert (report.num_engagements, report.num_impressions, report.num_users) == (4, 12, 4)
    assert report.num_items == len(np.unique(dataset.impressions.item_keys[:12]))


def test_many_entries_at_the_limit_moment_leave_what_the_store_would_keep() -> None:
    # Ten purchases at one moment, and a memory of six: the store's own rule must choose.
    items = [9, 3, 7, 1, 8, 2, 6, 4, 5, 0]
    kinds = [RowKind.ENGAGEMENT] * 10
    log = transfer_log([1] * 10, items, at_ms=[START_MS] * 10, kinds=kinds)
    one_by_one = MemoryStore(clock_ms=lambda: 0)
    for place in range(10):
        row = TransferLog(meta=META, rows=log.rows.take(np.array([place])))
        load_transfer_log_into_store(row, vector_store(one_by_one), until_ms=END_MS)
    assert content(one_by_one) == filled(log, until_ms=END_MS)


def test_an_entry_that_is_logged_twice_takes_the_place_of_no_other() -> None:
    # Two rows a purchase, as where a product stands twice in a basket, and a memory of six.
    items = [item for item in range(8) for _ in range(2)]
    at_ms = [START_MS + item for item in items]
    log = transfer_log([1] * 16, items, at_ms=at_ms, kinds=[RowKind.ENGAGEMENT] * 16)
    single = TransferLog(meta=META, rows=log.rows.take(np.arange(0, 16, 2)))
    assert filled(log, until_ms=END_MS) == filled(single, until_ms=END_MS)
    assert filled(single, until_ms=END_MS)


@pytest.mark.parametrize(
    "changes", [{"space_id": "f" * 16}, {"dim": DIM + 1}, {"dtype": "int8"}], ids=str
)
def test_a_log_of_another_space_is_refused_by_name(
    dataset: LogDataset, changes: dict[str, object]
) -> None:
    (name,) = changes
    with pytest.raises(DataError, match=f"transfer log, {name}: expected the store's"):
        load_transfer_log_into_store(
            log_of(dataset), vector_store(MemoryStore(), **changes), until_ms=END_MS
        )


def test_an_empty_window_writes_nothing(dataset: LogDataset, tmp_path: Path) -> None:
    assert filled(log_of(dataset), until_ms=0) == {}
