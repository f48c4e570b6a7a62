from pathlib import Path

import pytest

from features.dataset import LogDataset
from ranking.bundle import Bundle
from tests.ranking.tiny_bundle import tiny_dataset, write_tiny_bundle


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> LogDataset:
    return tiny_dataset(tmp_path_factory.mktemp("log"))


@pytest.fixture(scope="session")
def bundle(dataset: LogDataset, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder: Path = tmp_path_factory.mktemp("bundles") / "home"
    return write_tiny_bundle(folder, dataset)
