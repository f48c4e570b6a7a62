"""Whether the process says truly that it is ready, over gRPC and HTTP alike."""

import shutil
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2

from features.arrays import FloatArray
from features.dataset import LogDataset
from protos import ranking_pb2 as pb
from ranking.bundle import Bundle
from ranking.runtime.engines.protocol import Arrays
from tests.features.store.servers import BlackHole
from tests.ranking.runtime.fakes import FakeEngine
from tests.ranking.tiny_bundle import write_tiny_bundle
from tests.services.ranker.running import Client, body, message, running, started, until


def says_ready(client: Client) -> bool:
    """What both doors say; they must agree."""
    states = {client.serving(), client.get("/readyz")[0] == 200}
    if len(states) == 2:  # looked at in the middle of a change
        states = {client.serving(), client.get("/readyz")[0] == 200}
    assert len(states) == 1
    return states.pop()


def looked(process) -> bool:  # type: ignore[no-untyped-def]
    return until(lambda: process.readiness.state.problem != "starting")


def test_a_ready_process_says_so_for_every_name(client: Client) -> None:
    assert says_ready(client)
    assert client.serving("home")
    assert client.serving("gemcutter.ranking.v1.RankService")
    assert client.metric("gemcutter_ranker_ready") == 1


def test_an_unknown_name_is_not_found(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.health.Check(health_pb2.HealthCheckRequest(service="other"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_no_model_is_not_ready_but_alive() -> None:
    with started() as (process, client):
        assert looked(process)
        assert not says_ready(client)
        assert client.get("/healthz")[0] == 200
        assert client.code(message(101)) == "UNAVAILABLE"
        assert client.post(body(101))[0] == 503


def test_a_truncated_model_is_not_ready_until_it_is_whole(bundle: Bundle, tmp_path: Path) -> None:
    folder = tmp_path / "cut"
    shutil.copytree(bundle.folder, folder)
    whole = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(whole[: len(whole) // 2])
    with started(folder) as (process, client):
        assert looked(process)
        assert not says_ready(client)
        assert b"model.onnx" in client.get("/readyz")[1]
        assert client.get("/healthz")[0] == 200
        assert client.code(message(101)) == "UNAVAILABLE"
        (folder / "model.onnx").write_bytes(whole)
        assert until(lambda: says_ready(client))
        assert client.code(message(101)) == "OK"


def test_a_model_that_gives_no_numbers_is_never_ready(dataset: LogDataset, tmp_path: Path) -> None:
    bad = write_tiny_bundle(tmp_path / "nan", dataset, nan_items=[101])
    with started(bad.folder) as (process, client):
        assert looked(process)
        assert not says_ready(client)
        assert b"difference of nan" in client.get("/readyz")[1]


def test_a_model_that_starts_to_give_no_numbers_is_not_ready_until_it_stops(
    bundle: Bundle,
) -> None:
    class Turning(FakeEngine):
        is_ill = False

        def run(self, inputs: Arrays) -> FloatArray:
            logits = super().run(inputs)
            return np.full_like(logits, np.nan) if self.is_ill else logits

    engine = Turning()
    with running(bundle.folder, openers=[lambda _: engine]) as client:
        engine.is_ill = True
        assert until(lambda: not says_ready(client))
        assert not client.serving("home")
        assert client.rank(message(101)).num_fallback == 1  # still answered, with the prior
        engine.is_ill = False
        assert until(lambda: says_ready(client))


def test_a_black_holed_store_leaves_health_answering_and_calls_flagged(bundle: Bundle) -> None:
    with (
        BlackHole() as hole,
        running(bundle.folder, store=hole.url, store_timeout_ms=20.0) as client,
    ):
        for _ in range(8):
            answer = client.rank(message(101, 102))
            assert pb.DEGRADED_REASON_STORE_UNAVAILABLE in answer.degraded
            assert len(answer.ranked) == 2
            assert says_ready(client)
        assert client.metric("gemcutter_ranker_store_left_alone") == 1


def test_one_bad_bundle_beside_a_good_one_makes_the_process_not_ready(
    bundle: Bundle, tmp_path: Path
) -> None:
    with started(bundle.folder, tmp_path / "none") as (process, client):
        assert looked(process)
        assert not says_ready(client)
        assert client.serving("home")
        assert client.code(message(101)) == "OK"  # what is loaded serves
