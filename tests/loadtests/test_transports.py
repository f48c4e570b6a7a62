"""Over real sockets: what each kind of answer counts as, and what arrives at the service."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from loadtests.generator import run_load
from loadtests.report import Answer, Outcome
from loadtests.transports import open_transport
from protos import ranking_pb2, ranking_pb2_grpc

pytestmark = pytest.mark.integration


def request(name: str) -> ranking_pb2.RankRequest:
    candidates = ranking_pb2.Candidates(item_ids_int=[1, 2])
    return ranking_pb2.RankRequest(request_id=name, vertical="coupon", candidates=candidates)


REQUESTS = [request(name) for name in ("fine", "degraded", "shed", "broken", "slow")]
EXPECTED = [
    Answer(outcome=Outcome.OK),
    Answer(outcome=Outcome.DEGRADED, reasons=("store_unavailable",)),
    Outcome.REFUSED,
    Outcome.FAILED,
    Outcome.LATE,
]


class ByName(ranking_pb2_grpc.RankServiceServicer):
    async def Rank(self, request, context):  # noqa: N802  the interface's name
        if request.request_id == "shed":
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many")
        if request.request_id == "broken":
            await context.abort(grpc.StatusCode.INTERNAL, "engine fault")
        if request.request_id == "slow":
            await asyncio.sleep(5.0)
        answer = ranking_pb2.RankResponse(request_id=request.request_id)
        if request.request_id == "degraded":
            answer.degraded.append(ranking_pb2.DEGRADED_REASON_STORE_UNAVAILABLE)
        return answer


@asynccontextmanager
async def grpc_service() -> AsyncIterator[str]:
    server = grpc.aio.server()
    ranking_pb2_grpc.add_RankServiceServicer_to_server(ByName(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        await server.stop(grace=None)


async def http_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            assert head.startswith("POST /v1/rank/coupon HTTP/1.1\r\n")
            assert "x-deadline-ms: " in head
            length = int(head.split("content-length: ")[1].split("\r\n")[0])
            name = json.loads(await reader.readexactly(length))["request_id"]
            if name == "slow":
                await asyncio.sleep(5.0)
            status = {"shed": 429, "broken": 500}.get(name, 200)
            degraded = ["DEGRADED_REASON_STORE_UNAVAILABLE"] if name == "degraded" else []
            body = json.dumps({"request_id": name, "degraded": degraded}).encode()
            writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\n\r\n".encode())
            writer.write(body)
    except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
        pass
    finally:
        writer.close()


@asynccontextmanager
async def http_service() -> AsyncIterator[str]:
    server = await asyncio.start_server(http_answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("service", [grpc_service, http_service], ids=["grpc", "http"])
def test_each_kind_of_answer_counts_as_what_it_is(service) -> None:
    async def main() -> list[Answer]:
        async with service() as target:
            transport = open_transport(target, REQUESTS)
            assert transport.num_requests == len(REQUESTS)
            answers = [await transport.send(i, timeout_s=0.5) for i in range(len(REQUESTS))]
            await transport.close()
            return answers

    answers = asyncio.run(main())
    got = [
        a if isinstance(e, Answer) else a.outcome for a, e in zip(answers, EXPECTED, strict=True)
    ]
    assert got == EXPECTED


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_a_service_that_is_not_there_is_a_failure_and_not_an_exception(scheme: str) -> None:
    async def main() -> Answer:
        transport = open_transport(f"{scheme}://127.0.0.1:1", REQUESTS)
        answer = await transport.send(0, timeout_s=2.0)
        await transport.close()
        return answer

    assert asyncio.run(main()).outcome is Outcome.FAILED


@pytest.mark.parametrize("target", ["ftp://a:1", "http://nowhere", "nowhere"])
def test_an_unknown_target_is_refused_with_what_was_expected(target: str) -> None:
    with pytest.raises(ValueError, match="expected grpc://host:port, http://host:port"):
        open_transport(target, REQUESTS)


def test_a_run_against_the_null_server_answers_every_planned_request() -> None:
    command = [sys.executable, "-m", "loadtests.null_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["grpc"]
        try:
            report = run_load(
                address, REQUESTS, rate_qps=100.0, duration_s=1.0, warmup_s=0.2, deadline_ms=5_000.0
            )
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=10) == 0
    assert report.overall.ok == report.overall.planned > 50
    assert report.warmup.planned > 5
    assert report.overall.latency["max_ms"] > 0
    assert report.client_cpu_frac > 0
