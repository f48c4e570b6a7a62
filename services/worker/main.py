"""The precompute worker: ``python -m services.worker.main --help`` says what it does and how.

It puts the parts together, answers signals and turns errors into exit codes; the work and its
commit order are in `precompute.worker`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Protocol

from features.dataset import LogDataset, load_dataset
from features.errors import DataError, GemcutterError, StoreError
from features.histories import HistoryIndex
from features.log import Splits
from features.packed import VectorDtype
from features.schema import VerticalSpec
from features.store import Store, open_store
from features.vectorstore import VectorStore
from foundation.frozen import FrozenFm
from foundation.training.checkpoint import CheckpointError
from precompute.deadletters import DeadLetterFile
from precompute.decoding import EventDecoder
from precompute.events import SourceError
from precompute.incarnation import StoreReplaced, store_incarnation
from precompute.profiles import load_profiles_into_store
from precompute.scoring import EventScorer, FoundationModel, MicroBatchBudget
from precompute.sources.dataset import DatasetSource, history_events
from precompute.sources.lines import LinesSource
from precompute.sources.source import Source
from precompute.worker import Worker, WorkerConfig
from precompute.writing import VectorStoreSink
from services.lifeline import end_with_owner
from services.logs import start_logging
from services.worker.config import WorkerSettings, parse_settings
from services.worker.metrics import serve_metrics

DONE, REFUSED, SOURCE_FAILED, STORE_FAILED = 0, 3, 4, 5
_PROGRESS_S = 30.0
_LOG = logging.getLogger("gemcutter.worker")


class PackingModel(FoundationModel, Protocol):
    """A foundation model that says how its vectors are packed."""

    @property
    def dtype(self) -> VectorDtype:
        """Part of what the space_id stands for."""


ModelOpener = Callable[[Path, LogDataset, HistoryIndex], PackingModel]


def open_model(folder: Path, dataset: LogDataset, histories: HistoryIndex) -> PackingModel:
    """Load the frozen foundation model over histories that the worker adds to.

    Raises:
        DataError: there is none, or it is of other data.
    """
    try:
        return FrozenFm.load(folder, dataset, histories=histories)
    except CheckpointError as error:
        raise DataError(f"foundation model in {folder}: {error}") from error


def main(arguments: Sequence[str] | None = None, *, model_opener: ModelOpener = open_model) -> int:
    """Run the worker; gives the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    settings = parse_settings(given, os.environ)
    start_logging()
    _LOG.info("starting", extra={"settings": settings.shown()})
    end_with_owner()
    try:
        return _run_until_done(settings, model_opener)
    except SourceError as error:
        return _fail(SOURCE_FAILED, error)
    except StoreError as error:
        return _fail(STORE_FAILED, error)
    except GemcutterError as error:
        return _fail(REFUSED, error)


def _run_until_done(settings: WorkerSettings, model_opener: ModelOpener) -> int:
    """Run; over a store that was emptied meanwhile, start over, so that it fills again."""
    while True:
        try:
            with ExitStack() as stack:
                return _run(settings, model_opener, stack)
        except StoreReplaced as error:
            _LOG.warning("starting over", extra={"reason": str(error)})


def _fail(code: int, error: GemcutterError) -> int:
    problem = f"{type(error).__name__}: {error}"
    _LOG.error("failed", extra={"error": problem, "exit_code": code})
    return code


def _run(settings: WorkerSettings, model_opener: ModelOpener, stack: ExitStack) -> int:
    dataset = load_dataset(settings.dataset)
    vertical = _vertical(dataset, settings.vertical)
    store = _open_store(settings.store)
    stack.callback(store.close)
    _make_state_folder(settings.state)
    incarnation = store_incarnation(store)
    position_path = settings.state / f"position-{incarnation}.json"
    # The users' own features are as the table has them now; the log's end is their moment.
    load_profiles_into_store(dataset.folder, dataset.schema, store, at_ms=dataset.splits.test[1])
    source, histories = open_source(settings, dataset, position_path)
    stack.callback(source.close)
    model = model_opener(settings.fm, dataset, histories)
    vector_store = VectorStore(
        store,
        space_id=model.space_id,
        dim=model.dim,
        dtype=model.dtype,
        memory_length=vertical.memory_length,
        hard_ttl_ms=vertical.hard_ttl_ms,
    )
    scorer = EventScorer(
        model,
        schema=dataset.schema,
        histories=histories,
        memory_source=vertical.memory_source,
        budget=MicroBatchBudget(max_rows=settings.max_rows, max_tokens=settings.max_tokens),
    )
    worker = Worker(
        source,
        scorer,
        sink=VectorStoreSink(vector_store, incarnation),
        histories=histories,
        dead_letters=DeadLetterFile(settings.state / "deadletter.jsonl"),
        config=WorkerConfig(
            max_events=settings.max_events, store_patience_ms=settings.store_patience_s * 1e3
        ),
    )
    stack.enter_context(_stopping_on_signals(worker))
    stack.enter_context(_progress(worker))
    announcement = {"event": "started", "source": source.name, "space_id": model.space_id}
    _work(worker, settings, stack, announcement)
    return DONE


def _open_store(url: str) -> Store:
    try:
        return open_store(url)
    except ValueError as error:
        raise DataError(f"--store: {error}") from error


def _work(
    worker: Worker, settings: WorkerSettings, stack: ExitStack, announcement: dict[str, str]
) -> None:
    """Say that the worker runs, and run it."""
    if settings.prometheus_port is not None:
        port, stop = serve_metrics(worker.counters, settings.prometheus_port)
        stack.callback(stop)
        announcement["metrics"] = f"http://127.0.0.1:{port}/metrics"
    sys.stdout.write(json.dumps(announcement) + "\n")
    sys.stdout.flush()
    worker.run(is_following=settings.is_following)
    _LOG.info("stopped", extra=worker.counters.to_dict())


def _make_state_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SourceError(f"--state {folder}: cannot be made ({error})") from error


def open_source(
    settings: WorkerSettings, dataset: LogDataset, position_path: Path
) -> tuple[Source, HistoryIndex]:
    """Give the source of events, and histories of what was known before its first record.

    Raises:
        SourceError: the event file or its position cannot be used.
    """
    start_ms = _moment(settings.start, dataset.splits, edge=0)
    end_ms = _moment(settings.end, dataset.splits, edge=1)
    if settings.events is not None:
        decoder = EventDecoder(dataset.schema, dataset.encoder)
        known = (
            dataset.events
            if start_ms is None
            else history_events(dataset, known_before_ms=start_ms)
        )
        lines = LinesSource(settings.events, decoder, position_path=position_path)
        return lines, HistoryIndex.build(known)
    from_ms = dataset.splits.test[0] if start_ms is None else start_ms
    replay = DatasetSource(dataset, from_ms=from_ms, until_ms=end_ms, position_path=position_path)
    return replay, HistoryIndex.build(history_events(dataset, known_before_ms=from_ms))


def _vertical(dataset: LogDataset, name: str | None) -> VerticalSpec:
    return dataset.schema.verticals[0] if name is None else dataset.schema.vertical(name)


def _moment(when: int | str | None, splits: Splits, *, edge: int) -> int | None:
    if isinstance(when, str):
        window: tuple[int, int] = getattr(splits, when)
        return window[edge]
    return when


@contextmanager
def _stopping_on_signals(worker: Worker) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        worker.stop()

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _progress(worker: Worker) -> Iterator[None]:
    """Log the counters now and then while the worker runs."""
    is_over = threading.Event()

    def report() -> None:
        while not is_over.wait(_PROGRESS_S):
            _LOG.info("progress", extra=worker.counters.to_dict())

    thread = threading.Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


if __name__ == "__main__":
    raise SystemExit(main())
