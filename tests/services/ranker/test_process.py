"""The process: what it prints, what it loads, how it ends."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from features.store import LocalServer
from ranking.bundle import Bundle
from tests.services.ranker.running import WAIT_S, Client, body, message, until

pytestmark = pytest.mark.integration

FORBIDDEN = ("torch", "foundation", "precompute", "kafka", "sklearn", "ranking.training")

# Ranks once over HTTP, then says which forbidden modules are loaded.
LOADED = f"""
import json, sys, urllib.request
from pathlib import Path
from services.ranker.config import RankerConfig
from services.ranker.process import RankerProcess
config = RankerConfig(bundles=(Path(sys.argv[1]),), store="local", grpc_port=0, http_port=0)
process = RankerProcess.start(config)
assert process.readiness.wait_until_ready(60)
with urllib.request.urlopen(process.http_url + "/v1/rank/home", data=sys.argv[2].encode()) as a:
    ranked = len(json.loads(a.read())["ranked"])
process.stop()
print(json.dumps([ranked, sorted(set(sys.modules) & set({FORBIDDEN!r}))]))
"""

# A model that is slow for four candidates, in the real process.
SLOW = """
import os, sys, time
from services.ranker import main, process
from ranking.runtime.engines.onnx import OnnxEngine
def run(self, inputs, usual=OnnxEngine.run):
    if len(inputs["item_codes"]) == 4:
        time.sleep(float(sys.argv[1]))
    return usual(self, inputs)
OnnxEngine.run = run
code = main.main(sys.argv[2:])
os._exit(code)
"""


@contextmanager
def process(
    bundle: Bundle, store: str, *options: str, slow_s: float | None = None
) -> Iterator[tuple["subprocess.Popen[str]", Client, dict[str, object]]]:
    start = ["-m", "services.ranker.main"] if slow_s is None else ["-c", SLOW, str(slow_s)]
    arguments = ["--bundle", str(bundle.folder), "--store", store]
    arguments += ["--grpc-port", "0", "--http-port", "0", *options]
    child = subprocess.Popen(
        [sys.executable, *start, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    try:
        assert child.stdout is not None
        said = json.loads(child.stdout.readline())
        client = Client(said["grpc"], said["http"])
        yield child, client, said
        client.close()
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def test_it_says_where_it_listens_in_one_line_and_ends_with_0(
    bundle: Bundle, server: LocalServer
) -> None:
    with process(bundle, server.url) as (child, client, said):
        assert said["verticals"] == ["home"]
        assert str(said["engine"]).startswith(("onnxruntime", "openvino"))
        assert client.code(message(101)) == "OK"
        assert client.post(body(101))[0] == 200
        child.send_signal(signal.SIGTERM)
        assert child.wait(WAIT_S) == 0
        assert child.stdout is not None
        assert child.stdout.read() == ""


def test_calls_in_flight_finish_after_sigterm_and_new_ones_are_refused(
    bundle: Bundle, server: LocalServer
) -> None:
    with process(bundle, server.url, "--max-running", "16", slow_s=1.0) as (child, client, _):
        calls = [client.stub.Rank.future(message(101, 102, 103, 104), timeout=20) for _ in range(8)]
        statuses: list[int] = []
        posts = [
            threading.Thread(
                target=lambda: statuses.append(client.post(body(101, 102, 103, 104))[0])
            )
            for _ in range(4)
        ]
        for post in posts:
            post.start()
        assert until(lambda: client.metric("gemcutter_ranker_running") == 12)
        child.send_signal(signal.SIGTERM)
        assert until(lambda: client.code(message(101), timeout_s=1.0) == "UNAVAILABLE")
        assert all(len(call.result().ranked) == 4 for call in calls)
        for post in posts:
            post.join()
        assert statuses == [200] * 4
        assert child.wait(WAIT_S) == 0


def test_a_call_longer_than_the_grace_is_cut_off_and_the_exit_is_0(
    bundle: Bundle, server: LocalServer
) -> None:
    with process(bundle, server.url, "--grace-ms", "300", slow_s=60.0) as (child, client, _):
        call = client.stub.Rank.future(message(101, 102, 103, 104), timeout=50)
        assert until(lambda: client.metric("gemcutter_ranker_running") == 1)
        child.send_signal(signal.SIGTERM)
        assert call.exception().code().name in {"CANCELLED", "UNAVAILABLE"}
        assert child.wait(WAIT_S) == 0


def test_a_second_sigterm_ends_it_at_once(bundle: Bundle, server: LocalServer) -> None:
    with process(bundle, server.url, "--grace-ms", "60000", slow_s=60.0) as (child, client, _):
        call = client.stub.Rank.future(message(101, 102, 103, 104), timeout=50)
        assert until(lambda: client.metric("gemcutter_ranker_running") == 1)
        child.send_signal(signal.SIGTERM)
        assert until(lambda: client.code(message(101), timeout_s=1.0) == "UNAVAILABLE")
        child.send_signal(signal.SIGTERM)
        assert child.wait(WAIT_S) == 130
        assert call.exception() is not None


def test_the_ranker_loads_no_training_code(bundle: Bundle) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(bundle.folder), json.dumps(body(101, 102))],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(done.stdout) == [2, []]
