from collections.abc import Iterator

import pytest

from features.dataset import LogDataset
from features.store import LocalServer
from ranking.bundle import Bundle
from tests.ranking.tiny_bundle import tiny_dataset, write_tiny_bundle
from tests.services.ranker.running import Client, running


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> LogDataset:
    return tiny_dataset(tmp_path_factory.mktemp("log"))


@pytest.fixture(scope="session")
def bundle(dataset: LogDataset, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    # Item 119 makes the model give NaN; no golden request holds it.
    return write_tiny_bundle(tmp_path_factory.mktemp("bundles") / "home", dataset, nan_items=[119])


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer.start() as server:
        yield server


@pytest.fixture(scope="module")
def client(bundle: Bundle, server: LocalServer) -> Iterator[Client]:
    with running(bundle.folder, store=server.url) as client:
        yield client
