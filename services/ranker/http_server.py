"""The HTTP door: ranking, health, metrics and OpenAPI on one port, in a thread of its own."""

from __future__ import annotations

import asyncio
import functools
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import orjson
import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect

from ranking.runtime.answer import RankAnswer
from ranking.runtime.errors import CallerGone, DeadlineExceeded, InvalidRequest
from services.ranker.calls import RankCalls
from services.ranker.config import RankerConfig
from services.ranker.faults import RETRY_AFTER_S, BodyTooLarge, Fault
from services.ranker.jsonform import parse_body, read_body, write_body, write_fault
from services.ranker.metrics import RankerMetrics
from services.ranker.openapi import RANK_OPENAPI
from services.ranker.readiness import Readiness

_JSON = "application/json"
_SPARE_THREADS = 4
_TRANSPORT = "http"


def build_app(
    config: RankerConfig, calls: RankCalls, readiness: Readiness, metrics: RankerMetrics
) -> FastAPI:
    """Give the application."""
    app = FastAPI(title="Gemcutter ranker", version="1", redoc_url=None)
    num_threads = config.max_running + config.max_waiting + _SPARE_THREADS
    door = _Door(calls, config.max_message_bytes, ThreadPoolExecutor(num_threads, "http"))

    @app.post("/v1/rank/{vertical}", **RANK_OPENAPI)
    async def rank(vertical: str, request: Request) -> Response:
        """Rank the candidates of one request."""
        return await door.rank(vertical, request)

    @app.get("/healthz")
    async def healthz() -> Response:
        """Answer while the process lives."""
        return Response(b'{"status":"alive"}', media_type=_JSON)

    @app.get("/readyz")
    async def readyz() -> Response:
        """Answer 200 while the process should get traffic, else 503 and why."""
        return _readiness_answer(readiness)

    @app.get("/metrics")
    async def show_metrics() -> Response:
        """Give the metrics in Prometheus' text format."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return app


class _Door:
    """Reads bodies and writes answers; the work is done outside the event loop."""

    def __init__(self, calls: RankCalls, max_bytes: int, threads: ThreadPoolExecutor) -> None:
        self._calls = calls
        self._max_bytes = max_bytes
        self._threads = threads

    async def rank(self, vertical: str, request: Request) -> Response:
        started_s = time.monotonic()
        try:
            timeout_ms = _timeout_ms(request)
            bound_ms = self._calls.bound_ms(timeout_ms)
            data = await asyncio.wait_for(self._body(request), bound_ms / 1000)
        except (InvalidRequest, BodyTooLarge) as error:
            return _refusal(self._calls.refuse(error, transport=_TRANSPORT))
        except ClientDisconnect:
            gone = CallerGone("the caller hung up before its request was complete")
            return _refusal(self._calls.refuse(gone, transport=_TRANSPORT))
        except TimeoutError:
            late = DeadlineExceeded(f"body: not complete after {bound_ms:g} ms")
            return _refusal(self._calls.refuse(late, transport=_TRANSPORT))
        timeout_ms = bound_ms - (time.monotonic() - started_s) * 1000
        is_gone = threading.Event()
        watcher = asyncio.create_task(_watch(request, is_gone))
        work = functools.partial(self._answer, vertical, data, timeout_ms, is_gone)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            watcher.cancel()

    def _answer(
        self, vertical: str, data: bytes, timeout_ms: float | None, is_gone: threading.Event
    ) -> Response:
        deadline = self._calls.deadline(timeout_ms, is_gone.is_set)
        outcome = self._calls.rank(
            vertical,
            lambda bundle, now_ms: read_body(parse_body(data), vertical, bundle, now_ms),
            lambda answer: _body_of(answer, self._max_bytes),
            deadline=deadline,
            transport=_TRANSPORT,
        )
        if isinstance(outcome, Fault):
            return _refusal(outcome)
        return Response(outcome, media_type=_JSON)

    async def _body(self, request: Request) -> bytes:
        """Give the body without ever holding more than its limit."""
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > self._max_bytes:
                raise BodyTooLarge(f"body: expected at most {self._max_bytes} bytes, got more")
            parts.append(part)
        return b"".join(parts)


def _body_of(answer: RankAnswer, max_bytes: int) -> bytes:
    body = write_body(answer)
    if len(body) > max_bytes:
        raise BodyTooLarge(
            f"answer: expected at most {max_bytes} bytes, got {len(body)}; ask for a top_k"
        )
    return body


def _refusal(fault: Fault) -> Response:
    headers = {"retry-after": str(RETRY_AFTER_S)} if fault.http_status in {429, 503} else {}
    return Response(write_fault(fault), fault.http_status, headers, media_type=_JSON)


def _timeout_ms(request: Request) -> float | None:
    text = request.headers.get("x-deadline-ms")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidRequest("x-deadline-ms", expected="whole milliseconds", got=text)
    return float(text)


async def _watch(request: Request, is_gone: threading.Event) -> None:
    """Notice that the caller hangs up."""
    message = await request.receive()
    if message["type"] == "http.disconnect":
        is_gone.set()


def _readiness_answer(readiness: Readiness) -> Response:
    state = readiness.state
    body: dict[str, Any] = {"ready": state.is_ready, "verticals": state.verticals}
    if state.problem is not None:
        body["problem"] = state.problem
    return Response(orjson.dumps(body), 200 if state.is_ready else 503, media_type=_JSON)


@dataclass(frozen=True)
class HttpServer:
    """A listening server and its thread."""

    port: int
    _server: uvicorn.Server
    _thread: threading.Thread

    @classmethod
    def start(cls, config: RankerConfig, app: FastAPI) -> HttpServer:
        """Listen.

        Raises:
            OSError: the port is taken.
        """
        listener = socket.create_server((config.host, config.http_port), backlog=512)
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=max(1, round(config.grace_ms / 1000)),
            )
        )
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name="http", daemon=True
        )
        thread.start()
        return cls(listener.getsockname()[1], server, thread)

    def stop(self, grace_s: float) -> None:
        """Refuse new connections, let calls in flight finish within the grace, and end."""
        self._server.should_exit = True
        self._thread.join(grace_s)
