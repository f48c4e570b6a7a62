"""A ranker inside the test's process, and a client for both of its doors."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc

from protos import ranking_pb2 as pb
from protos import ranking_pb2_grpc
from ranking.runtime.engines.choose import EngineOpener
from services.ranker.config import RankerConfig
from services.ranker.process import RankerProcess
from tests.ranking.tiny_bundle import AT_MS

WAIT_S = 30.0


class Client:
    """Speaks gRPC and HTTP to one ranker."""

    def __init__(self, grpc_address: str, http_url: str) -> None:
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        self.channel = grpc.insecure_channel(grpc_address, options=options)
        self.stub = ranking_pb2_grpc.RankServiceStub(self.channel)  # type: ignore[no-untyped-call]
        self.health = health_pb2_grpc.HealthStub(self.channel)
        self.http_url = http_url

    def rank(self, request: pb.RankRequest, *, timeout_s: float = WAIT_S) -> pb.RankResponse:
        answer: pb.RankResponse = self.stub.Rank(request, timeout=timeout_s)
        return answer

    def code(self, request: pb.RankRequest, *, timeout_s: float = WAIT_S) -> str:
        try:
            self.rank(request, timeout_s=timeout_s)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"

    def post(
        self,
        body: dict[str, Any] | bytes,
        *,
        vertical: str = "home",
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, Any], dict[str, str]]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.http_url}/v1/rank/{vertical}", data=data, headers=headers or {}
        )
        return _open(request)

    def get(self, path: str) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(self.http_url + path, timeout=WAIT_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def metric(self, line: str) -> float:
        """The value of a line of /metrics that starts so, 0 where there is none."""
        lines = self.get("/metrics")[1].decode().splitlines()
        return sum(float(found.rsplit(" ", 1)[1]) for found in lines if found.startswith(line))

    def serving(self, service: str = "") -> bool:
        answer = self.health.Check(health_pb2.HealthCheckRequest(service=service), timeout=WAIT_S)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def close(self) -> None:
        self.channel.close()


def _open(request: urllib.request.Request) -> tuple[int, dict[str, Any], dict[str, str]]:
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, json.loads(answer.read()), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read()), dict(error.headers)


@contextmanager
def started(
    *bundles: Path,
    store: str = "memory://",
    openers: Sequence[EngineOpener] | None = None,
    **changes: Any,
) -> Iterator[tuple[RankerProcess, Client]]:
    """A ranker that listens, ready or not."""
    options: dict[str, Any] = {"refresh_ms": 50.0, "store_timeout_ms": 200.0, "grace_ms": 5000.0}
    config = RankerConfig(
        bundles=bundles, store=store, grpc_port=0, http_port=0, **{**options, **changes}
    )
    process = RankerProcess.start(config, openers=openers)
    client = Client(process.grpc_address, process.http_url)
    try:
        yield process, client
    finally:
        client.close()
        process.stop()


@contextmanager
def running(*bundles: Path, **options: Any) -> Iterator[Client]:
    """A ranker that is ready."""
    with started(*bundles, **options) as (process, client):
        assert process.readiness.wait_until_ready(WAIT_S), process.readiness.state.problem
        yield client


def until(is_so: Callable[[], bool]) -> bool:
    """Wait for something that happens in the background."""
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        if is_so():
            return True
        time.sleep(0.02)
    return False


def message(*items: int, user: int = 1, **fields: Any) -> pb.RankRequest:
    request = pb.RankRequest(vertical="home", user_id_int=user, at_ms=AT_MS, **fields)
    request.context["surface"].text = "feed"
    request.candidates.item_ids_le = np.array(items, dtype="<i8").tobytes()
    return request


def body(*items: Any, user: Any = 1, **fields: Any) -> dict[str, Any]:
    return {
        "user_id": user,
        "at_ms": AT_MS,
        "context": {"surface": "feed"},
        "candidates": [{"item_id": item} for item in items],
        **fields,
    }
