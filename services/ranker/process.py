"""The parts of a running ranker, put together: store, bundles, both doors, and the background look.

The doors open before the first bundle is loaded, so that health can be asked from the start; calls
are refused until then. Stopping goes in this order: not ready, no new calls, calls in flight finish
within the grace, connections to the store are closed.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from features.store import Store, open_store
from ranking.bundle import Bundle
from ranking.runtime.breaker import Breaker
from ranking.runtime.engines import EngineOptions, choose_engine
from ranking.runtime.engines.choose import EngineOpener
from ranking.runtime.loader import RankerSlot
from ranking.runtime.pipeline import Ranker
from services.ranker.admission import Permits
from services.ranker.calls import RankCalls
from services.ranker.config import RankerConfig
from services.ranker.grpc_server import GrpcServer
from services.ranker.http_server import HttpServer, build_app
from services.ranker.metrics import RankerMetrics
from services.ranker.readiness import Readiness

_PING_TIMEOUT_MS = 500.0
_PING_INTERVAL_S = 0.1


@dataclass(frozen=True, kw_only=True)
class RankerProcess:
    """A ranker that listens."""

    config: RankerConfig
    readiness: Readiness
    slots: tuple[RankerSlot, ...]
    _grpc: GrpcServer
    _http: HttpServer
    _permits: Permits
    _store: Store
    _is_stopping: threading.Event
    _background: tuple[threading.Thread, ...]

    @classmethod
    def start(
        cls, config: RankerConfig, *, openers: Sequence[EngineOpener] | None = None
    ) -> RankerProcess:
        """Listen, and load the bundles in the background.

        Args:
            config: settings.
            openers: engines to try, best first, instead of those of the settings.

        Raises:
            ValueError: the store's URL is not one.
            RuntimeError, OSError: a port is taken.
        """
        store, breaker = _open_store(config)
        options = EngineOptions(engine=config.engine, num_threads=config.engine_threads)
        make = functools.partial(
            _make_ranker,
            openers=options.openers() if openers is None else openers,
            config=config,
            store=store,
            breaker=breaker,
        )
        slots = tuple(RankerSlot(folder, make) for folder in config.bundles)
        metrics, readiness = RankerMetrics(), Readiness(slots)
        permits = Permits(max_running=config.max_running, max_waiting=config.max_waiting)
        metrics.watch(slots, breaker, permits)
        calls = RankCalls(
            slots, permits=permits, metrics=metrics, max_deadline_ms=config.max_deadline_ms
        )
        readiness.subscribe(lambda state: metrics.set_ready(state.is_ready))
        is_stopping = threading.Event()
        background = (
            threading.Thread(
                target=_look,
                args=(readiness, is_stopping, config.refresh_ms / 1000),
                name="refresh",
            ),
            threading.Thread(target=_try_store, args=(store, breaker, is_stopping), name="store"),
        )
        process = cls(
            config=config,
            readiness=readiness,
            slots=slots,
            _grpc=GrpcServer.start(config, calls, readiness),
            _http=HttpServer.start(config, build_app(config, calls, readiness, metrics)),
            _permits=permits,
            _store=store,
            _is_stopping=is_stopping,
            _background=background,
        )
        for thread in background:
            thread.start()
        return process

    @property
    def grpc_address(self) -> str:
        """Host and port of gRPC."""
        return f"{self.config.host}:{self._grpc.port}"

    @property
    def http_url(self) -> str:
        """URL of HTTP."""
        return f"http://{self.config.host}:{self._http.port}"

    def announcement(self) -> dict[str, Any]:
        """Say where it listens and what it serves."""
        rankers = [slot.ranker for slot in self.slots if slot.ranker is not None]
        return {
            "grpc": self.grpc_address,
            "http": self.http_url,
            "verticals": [ranker.bundle.manifest.vertical for ranker in rankers],
            "engine": rankers[0].choice.engine.name if rankers else None,
        }

    def stop(self) -> None:
        """Finish what was admitted, refuse the rest, and close everything."""
        self.readiness.stop()
        self._permits.close()
        grace_s = self.config.grace_ms / 1000
        doors = [
            threading.Thread(target=door.stop, args=(grace_s,)) for door in (self._grpc, self._http)
        ]
        for door in doors:
            door.start()
        for door in doors:
            door.join()
        self._is_stopping.set()
        for thread in self._background:
            thread.join()
        self._store.close()


def _open_store(config: RankerConfig) -> tuple[Store, Breaker]:
    store = open_store(
        config.store,
        max_connections=config.store_connections,
        timeout_ms=config.store_timeout_ms,
    )
    breaker = Breaker(
        max_failures=config.breaker_failures,
        open_ms=config.breaker_open_ms,
        clock=time.monotonic,
    )
    return store, breaker


def _make_ranker(
    bundle: Bundle,
    *,
    openers: Sequence[EngineOpener],
    config: RankerConfig,
    store: Store,
    breaker: Breaker,
) -> Ranker:
    ranker = Ranker(
        bundle,
        choose_engine(bundle, openers),
        store=store,
        breaker=breaker,
        store_timeout_ms=config.store_timeout_ms,
        clock=time.monotonic,
    )
    ranker.warm_up()
    return ranker


def _try_store(store: Store, breaker: Breaker, is_stopping: threading.Event) -> None:
    """Keep a connection open from the start, and find out when a store that failed is back.

    A call has too little time for that: on a busy machine connecting alone may take all of it.
    """
    is_first = True
    while not is_stopping.is_set():
        if is_first or breaker.is_open:
            is_back = store.ping(timeout_ms=_PING_TIMEOUT_MS)
            is_first = is_first and not is_back
            if is_back:
                breaker.record(is_success=True)
        is_stopping.wait(_PING_INTERVAL_S)


def _look(readiness: Readiness, is_stopping: threading.Event, interval_s: float) -> None:
    while not is_stopping.is_set():
        readiness.refresh()
        is_stopping.wait(interval_s)
