"""Every way a call is refused, with the status that both doors give it."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import numpy as np
import pytest

from features.arrays import FloatArray
from protos import ranking_pb2 as pb
from ranking.bundle import Bundle
from ranking.runtime.engines.protocol import Arrays
from ranking.runtime.errors import EngineError
from tests.ranking.runtime.fakes import FakeEngine
from tests.services.ranker.running import WAIT_S, Client, body, message, running, until

HEAD = (
    b"POST /v1/rank/home HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    b"content-length: 5000\r\n\r\n"
)


class HeldEngine(FakeEngine):
    """Computes nothing while it is held, or fails; as usual until `is_armed`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_armed = False
        self.is_failing = False
        self.go_on = threading.Event()
        self.num_held = 0

    def run(self, inputs: Arrays) -> FloatArray:
        is_probe = len(inputs["item_codes"]) == 1
        if self.is_armed and not is_probe:
            self.num_held += 1
            assert self.go_on.wait(WAIT_S)
        if self.is_failing and not is_probe:
            raise EngineError("secret detail")
        return super().run(inputs)


@contextmanager
def held(bundle: Bundle, **options: object) -> Iterator[tuple[Client, HeldEngine]]:
    engine = HeldEngine()
    with running(bundle.folder, openers=[lambda _: engine], **options) as client:
        engine.is_armed = True
        try:
            yield client, engine
        finally:
            engine.go_on.set()


def both_forms() -> pb.RankRequest:
    request = message(101)
    request.candidates.item_ids_int.append(101)
    return request


def odd_bytes() -> pb.RankRequest:
    request = message()
    request.candidates.item_ids_le = b"123"
    return request


def text_ids() -> pb.RankRequest:
    request = message()
    request.candidates.item_ids_str.append("i1")
    return request


def unknown_feature() -> pb.RankRequest:
    request = message(101)
    request.context["nonsense"].integer = 1
    return request


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (both_forms(), "candidates.item_ids_le"),
        (odd_bytes(), "candidates.item_ids_le"),
        (text_ids(), "candidates.item_ids_str"),
        (unknown_feature(), "context.nonsense"),
        (message(*range(51)), "candidates"),
        (message(101, user_id_str="u"), "user_id_str"),
    ],
)
def test_wrong_messages_are_invalid_with_their_field(
    client: Client, request_: pb.RankRequest, field: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.rank(request_)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert dict(caught.value.trailing_metadata())["x-error-field"] == field
    assert field in caught.value.details()


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"{", "body"),
        (b"[]", "body"),
        (b'{"candidates": [], "user_id": NaN}', "body"),
        ({**body(101), "nonsense": 1}, "nonsense"),
        ({"candidates": []}, "user_id"),
        (body(101, user="x"), "user_id"),
        (body("i1"), "candidates[0].item_id"),
        (body(101, ""), "candidates[1].item_id"),
        (body(101, None), "candidates[1].item_id"),
        (body(101, 2**63), "candidates[1].item_id"),
        (body(*range(51)), "candidates"),
        ({**body(), "candidates": [{"item_id": 1, "bid_micros": 1.5}]}, "candidates[0].bid_micros"),
        ({**body(), "candidates": [{"item_id": 1, "nonsense": 1}]}, "candidates.columns.nonsense"),
        ({**body(), "candidates": [{"item_id": 1, "slot": []}]}, "candidates[0].slot"),
        (body(101, top_k=-1), "top_k"),
        (body(101, vertical="other"), "vertical"),
        ({"candidates": {"nonsense": 1}}, "body"),
    ],
)
def test_wrong_bodies_are_400_with_their_field(
    client: Client, content: dict[str, object] | bytes, field: str
) -> None:
    status, answer, _ = client.post(content)
    assert status == 400
    assert answer["error"]["code"] == "INVALID_ARGUMENT"
    assert answer["error"]["field"] == field
    assert client.post(body(101))[0] == 200


def test_an_unknown_vertical_is_not_found(client: Client) -> None:
    request = message(101)
    request.vertical = "other"
    assert client.code(request) == "NOT_FOUND"
    status, answer, _ = client.post(body(101), vertical="other")
    assert (status, answer["error"]["code"]) == (404, "NOT_FOUND")
    assert client.metric('gemcutter_ranker_calls_total{code="NOT_FOUND"') >= 2
    assert (
        client.metric(
            'gemcutter_ranker_calls_total{code="NOT_FOUND",transport="grpc",vertical="other"}'
        )
        >= 1
    )


def test_messages_over_the_limit_are_refused_and_the_next_call_is_not(bundle: Bundle) -> None:
    with running(bundle.folder, max_message_bytes=4096) as client:
        large = message(101, request_id="x" * 5000)
        assert client.code(large) == "RESOURCE_EXHAUSTED"
        status, answer, _ = client.post(body(101, request_id="x" * 5000))
        assert (status, answer["error"]["code"]) == (413, "RESOURCE_EXHAUSTED")
        many = [*range(100, 150)]  # a small request with a large answer
        assert client.code(message(*many, request_id="x" * 2000)) == "RESOURCE_EXHAUSTED"
        assert client.post(body(*many))[0] == 413
        assert client.code(message(101)) == "OK"
        assert client.post(body(101))[0] == 200


def test_deadlines_of_both_doors_end_calls(client: Client) -> None:
    assert client.code(message(101), timeout_s=0.0) == "DEADLINE_EXCEEDED"
    status, answer, _ = client.post(body(101), headers={"x-deadline-ms": "0"})
    assert (status, answer["error"]["code"]) == (504, "DEADLINE_EXCEEDED")
    status, answer, _ = client.post(body(101), headers={"x-deadline-ms": "soon"})
    assert (status, answer["error"]["field"]) == (400, "x-deadline-ms")


def test_more_calls_than_may_run_and_wait_are_refused_at_once(bundle: Bundle) -> None:
    with held(bundle, max_running=1, max_waiting=1) as (client, engine):
        first = client.stub.Rank.future(message(101, 102), timeout=WAIT_S)
        assert until(lambda: engine.num_held == 1)
        waiting = client.stub.Rank.future(message(101, 102), timeout=WAIT_S)
        # Otherwise the call below may come first and take the place that it should find taken.
        assert until(lambda: client.metric("gemcutter_ranker_waiting") == 1)
        assert client.code(message(101, 102), timeout_s=WAIT_S) == "RESOURCE_EXHAUSTED"
        status, answer, headers = client.post(body(101, 102), headers={"x-deadline-ms": "100"})
        assert (status, answer["error"]["code"]) == (429, "RESOURCE_EXHAUSTED")
        assert headers["retry-after"] == "1"
        engine.go_on.set()
        assert len(first.result().ranked) == len(waiting.result().ranked) == 2
        assert engine.num_held == 2


def test_calls_given_up_while_they_waited_are_never_computed(bundle: Bundle) -> None:
    with held(bundle, max_running=1, max_waiting=8) as (client, engine):
        first = client.stub.Rank.future(message(101, 102), timeout=WAIT_S)
        assert until(lambda: engine.num_held == 1)
        late = [client.stub.Rank.future(message(101, 102), timeout=0.05) for _ in range(4)]
        for call in late:
            assert call.exception().code() is grpc.StatusCode.DEADLINE_EXCEEDED
        engine.go_on.set()
        first.result()
        assert client.code(message(101, 102)) == "OK"
        assert engine.num_held == 2


def test_what_nobody_expected_is_internal_without_details(bundle: Bundle) -> None:
    with held(bundle) as (client, engine):
        engine.go_on.set()
        engine.is_failing = True
        with pytest.raises(grpc.RpcError) as caught:
            client.rank(message(101, 102))
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        status, answer, _ = client.post(body(101, 102))
        assert (status, answer["error"]["code"]) == (500, "INTERNAL")
        assert "secret" not in caught.value.details() + str(answer)
        assert client.metric("gemcutter_ranker_faults_total") == 2


def test_openapi_describes_the_call(client: Client) -> None:
    status, text = client.get("/openapi.json")
    assert status == 200
    assert b"/v1/rank/{vertical}" in text
    assert b"bid_micros" in text


def test_bytes_on_the_wire_are_little_endian(client: Client) -> None:
    request = message()
    request.candidates.item_ids_le = np.array([101], dtype="<i8").tobytes()
    assert client.rank(request).ranked[0].item_id_int == 101


def test_a_caller_who_hung_up_while_waiting_is_never_computed(bundle: Bundle) -> None:
    with held(bundle, max_running=1, max_waiting=8) as (client, engine):
        first = client.stub.Rank.future(message(101, 102), timeout=WAIT_S)
        assert until(lambda: engine.num_held == 1)
        content = json.dumps(body(101, 102)).encode()
        head = f"POST /v1/rank/home HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n"
        host, port = client.http_url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as caller:
            caller.sendall(head.encode() + content)
            assert until(lambda: client.metric("gemcutter_ranker_waiting") == 1)
        # The hang-up is noticed by the event loop, which then answers this.
        assert client.get("/healthz")[0] == 200
        engine.go_on.set()
        first.result()
        cancelled = 'gemcutter_ranker_calls_total{code="CANCELLED",transport="http"'
        assert until(lambda: client.metric(cancelled) == 1)
        assert engine.num_held == 1


def test_a_caller_that_hangs_up_in_its_body_is_counted_and_no_fault_of_ours(
    bundle: Bundle, caplog: pytest.LogCaptureFixture
) -> None:
    with running(bundle.folder) as client:
        host, port = client.http_url.removeprefix("http://").split(":")
        for _ in range(3):
            with socket.create_connection((host, int(port))) as caller:
                caller.sendall(HEAD + b"{")
        metric = 'gemcutter_ranker_calls_total{code="CANCELLED",transport="http",vertical="other"}'
        assert until(lambda: client.metric(metric) == 3)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_body_that_never_comes_is_refused_when_its_time_is_over(bundle: Bundle) -> None:
    with running(bundle.folder) as client:
        host, port = client.http_url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as caller:
            caller.sendall(HEAD.replace(b"\r\n\r\n", b"\r\nx-deadline-ms: 100\r\n\r\n") + b"{")
            answer = caller.recv(4096)
    assert answer.startswith(b"HTTP/1.1 504")
    assert b"body: not complete after 100 ms" in answer
