"""What a ranker process is told at start, as one frozen object."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ranking.runtime.engines.choose import EngineName

_MAX_PORT = 65_535


@dataclass(frozen=True, kw_only=True)
class RankerConfig:
    """Settings of one process.

    Attributes:
        bundles: folders, one a vertical.
        store: URL, see `features.store.open_store`.
        grpc_port, http_port: 0 takes a free one.
        store_timeout_ms: most that one call waits for the store.
        store_connections: most connections to it.
        breaker_failures, breaker_open_ms: the store is left alone after so many failures in a row,
            for so long.
        engine, engine_threads: what computes, and on how many threads a call.
        max_running: calls computed at once; more only make each other slower.
        max_waiting: calls that may wait for their turn; further ones are refused.
        max_deadline_ms: bound on every call, whatever the caller allows.
        max_message_bytes: of requests and answers, gRPC and HTTP alike.
        refresh_ms: between looks at the bundles and between probes of the models.
        grace_ms: most that calls in flight get to finish after SIGTERM.
        has_reflection: whether gRPC describes itself.
    """

    bundles: tuple[Path, ...]
    store: str
    host: str = "127.0.0.1"
    grpc_port: int = 50051
    http_port: int = 8080
    store_timeout_ms: float = 10.0
    store_connections: int = 32
    breaker_failures: int = 5
    breaker_open_ms: float = 1000.0
    engine: EngineName = "auto"
    engine_threads: int = 1
    max_running: int = 4
    max_waiting: int = 64
    max_deadline_ms: float = 10_000.0
    max_message_bytes: int = 16 * 1024 * 1024
    refresh_ms: float = 2000.0
    grace_ms: float = 10_000.0
    has_reflection: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers that cannot work."""
        above_0 = (
            "store_timeout_ms",
            "store_connections",
            "breaker_failures",
            "breaker_open_ms",
            "engine_threads",
            "max_running",
            "max_deadline_ms",
            "max_message_bytes",
            "refresh_ms",
        )
        for name in above_0:
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}: expected above 0 and finite, got {getattr(self, name)}")
        for name in ("max_waiting", "grace_ms"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}: expected 0 or more, finite, got {getattr(self, name)}")
        for name in ("grpc_port", "http_port"):
            if not 0 <= getattr(self, name) <= _MAX_PORT:
                raise ValueError(f"{name}: expected 0 to {_MAX_PORT}, got {getattr(self, name)}")

    def shown(self) -> dict[str, Any]:
        """Give the settings for the log, the store's password left out."""
        return asdict(self) | {"store": _without_password(self.store)}


def parse_config(arguments: Sequence[str] | None = None) -> RankerConfig:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="services.ranker.main", description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "--bundle",
        dest="bundles",
        action="append",
        type=Path,
        required=True,
        metavar="DIR",
        help="a bundle to serve; once for each vertical",
    )
    parser.add_argument("--store", required=True, metavar="URL", help="where the vectors are")
    for name, (default, text) in _OPTIONS.items():
        parser.add_argument(
            f"--{name}", type=type(default), default=default, help=f"{text} (default: {default})"
        )
    parser.add_argument(
        "--engine",
        choices=("auto", "onnxruntime", "openvino"),
        default="auto",
        help="what computes",
    )
    parser.add_argument(
        "--no-reflection",
        dest="has_reflection",
        action="store_false",
        help="gRPC stays undescribed",
    )
    given = vars(parser.parse_args(arguments))
    try:
        return RankerConfig(**given | {"bundles": tuple(given["bundles"])})
    except ValueError as error:
        parser.error(str(error))


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))


def _default(name: str) -> Any:
    return RankerConfig.__dataclass_fields__[name].default


_OPTIONS = {
    name.replace("_", "-"): (_default(name), text)
    for name, text in {
        "host": "address to listen on",
        "grpc_port": "0 takes a free one",
        "http_port": "0 takes a free one",
        "store_timeout_ms": "most that one call waits for the store",
        "store_connections": "most connections to the store",
        "breaker_failures": "failures in a row after which the store is left alone",
        "breaker_open_ms": "for how long it is left alone",
        "engine_threads": "threads of one call's computation",
        "max_running": "calls computed at once",
        "max_waiting": "calls that may wait for their turn; more are refused",
        "max_deadline_ms": "bound on every call",
        "max_message_bytes": "most bytes of a request or an answer",
        "refresh_ms": "between looks at the bundles and probes of the models",
        "grace_ms": "most that calls in flight get after SIGTERM",
    }.items()
}
