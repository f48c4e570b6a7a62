"""Where precomputed vectors wait for requests: one protocol, an in-memory and a Redis backend."""

from __future__ import annotations

from pathlib import Path

from features.store.local import LocalServer
from features.store.memory import MemoryStore
from features.store.protocol import Newest, Reply, Store, Swap
from features.store.redis import DEFAULT_MAX_CONNECTIONS, DEFAULT_TIMEOUT_MS, RedisStore

__all__ = [
    "LocalServer",
    "MemoryStore",
    "Newest",
    "RedisStore",
    "Reply",
    "Store",
    "Swap",
    "open_store",
]

_SCHEMES = ("redis://", "rediss://", "unix://")


def open_store(
    url: str,
    *,
    max_connections: int = DEFAULT_MAX_CONNECTIONS,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
) -> Store:
    """Open the store a URL names; close it when done.

    Args:
        url: `memory://` (inside this process), `local` or `local:<folder>` (starts a server that
            ends with this process; the folder gets its log), `redis://`, `rediss://` or `unix://`.
        max_connections: most connections at once to a server.
        timeout_ms: bound on each call that names none.

    Raises:
        ValueError: the URL is none of these.
        StoreUnavailable: a local server was asked for and cannot be found or started. A server
            elsewhere is not contacted before the first call.
    """
    if url == "memory://":
        return MemoryStore()
    if url == "local" or url.startswith("local:"):
        folder = url.removeprefix("local").removeprefix(":")
        server = LocalServer.start(log_folder=Path(folder) if folder else None)
        return RedisStore(
            server.url, max_connections=max_connections, timeout_ms=timeout_ms, server=server
        )
    if url.startswith(_SCHEMES):
        return RedisStore(url, max_connections=max_connections, timeout_ms=timeout_ms)
    raise ValueError(
        f"store URL: expected memory://, local, local:<folder>, {', '.join(_SCHEMES)}, got {url!r}"
    )
