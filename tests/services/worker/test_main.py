"""The worker process: what it leaves in a real store, how it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

from features.packed import Missing
from features.store import LocalServer, RedisStore
from features.vectorstore import VectorStore
from services.worker.main import main
from tests.precompute.fakes import DIM, SPACE_ID
from tests.precompute.tinylog import DAY_MS, START_MS, TEST_START_MS, tiny_log, write_tiny_log
from tests.services.worker.fake_process import open_fake_model

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer.start() as server:
        yield server


@pytest.fixture
def store(server: LocalServer) -> Iterator[RedisStore]:
    store = RedisStore(server.url)
    store.flush()
    yield store
    store.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_log(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def arguments(folder: Path, tmp_path: Path, server: LocalServer) -> list[str]:
    (tmp_path / "fm").mkdir()
    given = {"dataset": folder, "fm": tmp_path / "fm", "store": server.url}
    return [part for name, value in given.items() for part in (f"--{name}", str(value))]


def vectors(store: RedisStore) -> VectorStore:
    return VectorStore(
        store, space_id=SPACE_ID, dim=DIM, dtype="int4", memory_length=6, hard_ttl_ms=60 * DAY_MS
    )


def next_offset(tmp_path: Path) -> int:
    files = [*(tmp_path / "fm/worker").glob("position-*.json")]
    return sum(json.loads(file.read_text())["next_offset"] for file in files)


def run(*arguments: str) -> int:
    return main(arguments, model_opener=open_fake_model)


def test_a_replay_of_the_test_window_fills_the_store_and_ends(
    arguments: list[str], store: RedisStore, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 0
    started = json.loads(capsys.readouterr().out.splitlines()[0])
    assert started["event"] == "started"
    assert started["space_id"] == SPACE_ID
    log = tiny_log(folder).impressions
    found = vectors(store).read_request(1, log.item_keys[-3:])
    assert len(found.memory) == 4  # a purchase a day, for the four days of the test window
    assert found.memory.at_ms.min() >= TEST_START_MS
    assert len(found.pairs.item_keys) > 0


def test_a_second_run_goes_on_where_the_first_one_stopped(
    arguments: list[str], store: RedisStore, tmp_path: Path
) -> None:
    split = str(TEST_START_MS + 2 * DAY_MS)
    assert run(*arguments, "--until", split) == 0
    position = next_offset(tmp_path)
    assert len(vectors(store).read_request(1, np.array([100])).memory) == 2
    assert run(*arguments) == 0
    assert len(vectors(store).read_request(1, np.array([100])).memory) == 4
    assert next_offset(tmp_path) > position


def test_a_store_that_was_emptied_is_filled_again(arguments: list[str], store: RedisStore) -> None:
    assert run(*arguments) == 0
    before = vectors(store).read_request(1, np.array([100])).memory.at_ms.tolist()
    store.flush()
    assert run(*arguments) == 0
    assert vectors(store).read_request(1, np.array([100])).memory.at_ms.tolist() == before


def test_an_event_file_is_worked_through_and_bad_lines_are_set_aside(
    arguments: list[str], store: RedisStore, tmp_path: Path
) -> None:
    purchase = {"kind": "engagement", "source": "purchase", "user": 3, "columns": {"item": 104}}
    lines = [json.dumps(purchase | {"event_at_ms": START_MS + 30 * DAY_MS}), '{"user":']
    events = tmp_path / "events.jsonl"
    events.write_text("\n".join(lines) + "\n")
    assert run(*arguments, "--events", str(events)) == 0
    assert vectors(store).read_request(3, np.array([104])).memory.keys.tolist() == [104]
    (letter,) = (tmp_path / "fm/worker/deadletter.jsonl").read_text().splitlines()
    assert json.loads(letter)["payload"] == '{"user":'


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        (["--fm", "nowhere"], 3, "no foundation model"),
        (["--dataset", "nowhere"], 3, "nowhere"),
        (["--vertical", "feed"], 3, "vertical 'feed'"),
        (["--events", "nowhere.jsonl"], 4, "cannot be opened"),
        (["--store", "redis://127.0.0.1:1"], 5, "127.0.0.1:1"),
        (["--store", "junk"], 3, "--store"),
        (["--state", "/dev/null/x"], 4, "--state /dev/null/x: cannot be made"),
    ],
    ids=["model", "data set", "vertical", "events", "store", "store URL", "state"],
)
def test_what_goes_wrong_is_in_the_exit_code_and_the_log(
    arguments: list[str],
    changes: list[str],
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert run(*arguments, "--state", str(tmp_path / "state"), *changes) == code
    last = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert last["event"] == "failed"
    assert last["exit_code"] == code
    assert message in last["error"]


def test_asked_to_stop_a_following_worker_ends_with_code_0(
    arguments: list[str], store: RedisStore, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.services.worker.fake_process", *arguments]
    command += ["--follow", "--prometheus-port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        started = json.loads(process.stdout.readline())
        with urlopen(started["metrics"]) as answer:
            assert "gemcutter_worker_polled_total" in answer.read().decode()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
    assert process.returncode == 0
    lines = [json.loads(line) for line in log.splitlines()]
    assert [lines[0]["event"], lines[-1]["event"]] == ["starting", "stopped"]
    assert next_offset(tmp_path) == lines[-1]["num_engagements"] + lines[-1]["num_requests"]


def test_a_store_that_is_emptied_under_a_waiting_worker_is_filled_again(
    arguments: list[str], store: RedisStore, tmp_path: Path
) -> None:
    purchase = {"kind": "engagement", "source": "purchase", "user": 3, "columns": {"item": 104}}
    events = tmp_path / "events.jsonl"
    events.write_text(json.dumps(purchase | {"event_at_ms": START_MS + 30 * DAY_MS}) + "\n")
    command = [sys.executable, "-m", "tests.services.worker.fake_process", *arguments]
    child = subprocess.Popen(
        [*command, "--events", str(events), "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[3],
    )
    try:
        assert _holds(store, 1)
        store.flush()
        assert _holds(store, 1)
    finally:
        child.terminate()
        child.communicate()
    assert child.returncode == 0


def _holds(store: RedisStore, num_vectors: int) -> bool:
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        memory = vectors(store).read_request(3, np.array([104])).memory
        if not isinstance(memory, Missing) and len(memory) == num_vectors:
            return True
        time.sleep(0.05)
    return False


def test_a_store_that_is_away_for_seconds_is_waited_for(
    arguments: list[str], store: RedisStore, server: LocalServer
) -> None:
    """Stopped, not ended: its port stays, and nothing that it held is lost."""
    command = [sys.executable, "-m", "tests.services.worker.fake_process", *arguments]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[3]
    )
    assert child.stdout is not None
    child.stdout.readline()
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(3)
    os.kill(server.pid, signal.SIGCONT)
    assert child.wait(60) == 0
    child.communicate()
    assert len(vectors(store).read_request(1, np.array([100])).memory) == 4
