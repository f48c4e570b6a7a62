"""The worker process with a fake foundation model, to be run as a process of its own."""

import sys
from pathlib import Path

from features.dataset import LogDataset
from features.errors import DataError
from features.histories import HistoryIndex
from services.worker.main import main
from tests.precompute.fakes import FakeModel


def open_fake_model(folder: Path, dataset: LogDataset, histories: HistoryIndex) -> FakeModel:
    if not folder.exists():
        raise DataError(f"{folder}: no foundation model")
    return FakeModel(histories)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], model_opener=open_fake_model))
