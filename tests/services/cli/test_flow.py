"""From a log to ranked answers with real processes: what is scored online is what was trained."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from features.store import Store, open_store
from features.store.local import LocalServer
from loadtests.traffic import LoggedRequest, logged_requests
from protos import ranking_pb2
from services.cli.live import Filler, RankClient, Ranker, make_worker, running_ranker
from services.cli.loadtest import LoadPlan, load_with_fault
from services.cli.main import app
from services.cli.progress import Steps
from services.cli.replay import check_parity, find, replay_with_worker
from tests.services.cli.flow import finished_run

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer.start() as server:
        yield server


@pytest.fixture(scope="module")
def ranker(server: LocalServer) -> Iterator[Ranker]:
    run, *_ = finished_run()
    with running_ranker(run.bundle, server.url, log=run.logs / "ranker.log") as ranker:
        yield ranker


@pytest.fixture
def store(server: LocalServer) -> Iterator[Store]:
    with closing(open_store(server.url)) as store:
        yield store


@pytest.fixture
def filler(store: Store) -> Filler:
    run, dataset, *_ = finished_run()
    return Filler.of_run(run, dataset, store)


@pytest.fixture
def client(ranker: Ranker) -> Iterator[RankClient]:
    client = RankClient(ranker.grpc_address)
    yield client
    client.close()


def replayed() -> list[LoggedRequest]:
    run, dataset, *_ = finished_run()
    start_ms, end_ms = dataset.splits.test
    return logged_requests(run.data, "home", start_ms=start_ms, end_ms=end_ms)


def reasons(answer: ranking_pb2.RankResponse) -> set[str]:
    names = (ranking_pb2.DegradedReason.Name(reason) for reason in answer.degraded)
    return {name.removeprefix("DEGRADED_REASON_") for name in names}


def test_rows_scored_through_the_endpoint_equal_the_offline_scores(
    client: RankClient, filler: Filler
) -> None:
    *_, distilled = finished_run()
    with Steps(Console(quiet=True)).step("parity", "parity") as step:
        result = check_parity(
            client,
            filler,
            replayed(),
            offline_p=distilled.test_p,
            offline_ids=distilled.test_ids,
            num_rows=400,
            step=step,
        )
    assert result["rows"] >= 400
    assert result["max_abs_difference"] <= 1e-5
    assert distilled.test_p["click"].std() > 0


def test_the_live_worker_keeps_up_and_nothing_is_set_aside(
    client: RankClient, filler: Filler, tmp_path: Path
) -> None:
    run, dataset, *_ = finished_run()
    start_ms = dataset.splits.test[0]
    filler.refill(start_ms)
    worker = make_worker(filler, run.fm, from_ms=start_ms, dead_letters=tmp_path / "dead.jsonl")
    requests = replayed()
    with Steps(Console(quiet=True)).step("replay", "replay") as step:
        result, answers = replay_with_worker(client, worker, requests, dataset=dataset, step=step)
    assert result["requests"] == len(requests)
    assert sum(result["tier_share"].values()) == pytest.approx(1.0)
    assert not (tmp_path / "dead.jsonl").exists() or not (tmp_path / "dead.jsonl").read_text()
    *_, distilled = finished_run()
    online = np.array(answers.p["click"])
    offline = distilled.test_p["click"][find(distilled.test_ids, answers.ids)]
    # The worker's own vectors: int4 may round a float's last bit to the next level, no more.
    assert np.abs(online - offline).max() < 0.05
    assert np.median(np.abs(online - offline)) < 1e-5


def test_an_empty_store_gives_flagged_answers_and_a_stopped_one_too(filler: Filler) -> None:
    run, dataset, *_ = finished_run()
    with (
        LocalServer.start() as server,
        running_ranker(run.bundle, server.url, log=run.logs / "ranker-alone.log") as ranker,
    ):
        client, request = RankClient(ranker.grpc_address), replayed()[-1].request
        with closing(open_store(server.url)) as store:
            Filler.of_run(run, dataset, store).refill(dataset.splits.test[1])
            full = client.rank(request)
            store.flush()
        empty = client.rank(request)
        server.stop()
        gone = [client.rank(request) for _ in range(3)]
        client.close()
    assert "USER_MEMORY_MISSING" not in reasons(full)
    assert {"USER_MEMORY_MISSING", "USER_FEATURES_MISSING"} <= reasons(empty)
    assert all("STORE_UNAVAILABLE" in reasons(answer) for answer in gone)
    sizes = {len(answer.ranked) for answer in (full, empty, *gone)}
    assert sizes == {len(full.ranked)}
    assert [line.score for line in full.ranked] != [line.score for line in empty.ranked]


def test_a_killed_worker_and_an_emptied_store_cost_no_answer_under_load(
    ranker: Ranker, server: LocalServer, filler: Filler
) -> None:
    run, dataset, *_ = finished_run()
    filler.refill(dataset.splits.test[1])
    plan = LoadPlan(
        vertical="home",
        window_ms=dataset.splits.test,
        num_candidates=20,
        num_requests=50,
        rate_qps=40,
        duration_s=4,
        warmup_s=1,
        deadline_ms=5_000,
    )
    result = load_with_fault(run, plan, ranker=ranker, server=server, budget_ms=20)
    before, after = result["phases"].values()
    for phase in (before, after):
        counts = phase["counts"]
        assert counts["failed"] == counts["refused"] == 0
        assert counts["ok"] + counts["degraded"] + counts["late"] == counts["planned"] > 0
    assert before["counts"]["ok"] > 0
    assert after["counts"]["degraded"] > 0


def test_the_ranker_process_has_loaded_nothing_of_training_after_an_answer(
    ranker: Ranker, client: RankClient
) -> None:
    client.rank(replayed()[0].request)
    maps = Path(f"/proc/{ranker.child.pid}/maps").read_text()
    assert "onnxruntime" in maps
    assert "libtorch" not in maps
    assert "fbgemm" not in maps


def test_rank_prints_an_answer(ranker: Ranker, filler: Filler) -> None:
    arguments = ["rank", "--user", "3", "--items", "100,101,102", "--vertical", "home"]
    done = CliRunner().invoke(app, [*arguments, "--address", ranker.grpc_address, "--json"])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.output)
    assert sorted(line["item_id_int"] for line in answer["ranked"]) == ["100", "101", "102"]
    assert set(answer["ranked"][0]["p"]) == {"click", "order"}


def test_bundle_commands_show_and_verify() -> None:
    run, *_ = finished_run()
    shown = CliRunner().invoke(app, ["bundle", "show", str(run.bundle)])
    assert json.loads(shown.output)["vertical"] == "home"
    verified = CliRunner().invoke(app, ["bundle", "verify", str(run.bundle)])
    assert verified.exit_code == 0
    assert "golden answers" in verified.output


def test_the_ranker_ends_cleanly_when_told_to(server: LocalServer) -> None:
    run, *_ = finished_run()
    with running_ranker(run.bundle, server.url, log=run.logs / "ranker-stop.log") as ranker:
        assert ranker.child.is_running
        assert ranker.child.stop() == 0
