"""The commands in README.md work as they stand there, on a small log in place of a user's own."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from features.store.local import LocalServer
from services.cli.processes import Child
from tests.features.tiny_log import write_tiny_log

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "services.cli.main"]


def commands() -> list[str]:
    """Every command line of the console blocks, continued lines joined."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = []
    for block in re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL):
        joined = block.replace("\\\n", " ")
        lines += [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
    return lines


def words(line: str) -> list[str]:
    return shlex.split(line, comments=True)


def test_every_make_target_of_the_readme_exists() -> None:
    targets = [words(line)[1] for line in commands() if line.startswith("make ")]
    assert {"quickstart", "up", "check", "test"} <= set(targets)
    for target in targets:
        done = subprocess.run(
            ["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_nothing_in_the_readme_is_neither_make_nor_gemcutter_nor_curl() -> None:
    assert {words(line)[0] for line in commands()} == {"make", "gemcutter", "curl"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_tiny_log(tmp_path / "mydata", num_users=12, num_items=40)
    return tmp_path


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer.start() as server:
        yield server


def on_the_small_log(line: str, changes: dict[str, str]) -> list[str]:
    for old, new in changes.items():
        line = line.replace(old, new)
    return words(line)


@pytest.mark.integration
def test_the_commands_for_own_data_lead_to_an_answer(place: Path, server: LocalServer) -> None:
    changes = {"redis://localhost": server.url}
    served: list[str] = []
    for line in commands():
        if line.startswith("gemcutter serve"):
            served = on_the_small_log(line, changes)[2:]
        elif line.startswith("gemcutter") and "rank" not in words(line):
            given = on_the_small_log(line, changes)[1:]
            done = subprocess.run(
                [*COMMAND, *given], cwd=place, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    ports = ["--grpc-port", "0", "--http-port", "0"]
    bundle = place / served[served.index("--bundle") + 1]
    arguments = ["--bundle", str(bundle), "--store", server.url, *ports]
    with Child("services.ranker.main", arguments, log=place / "ranker.log") as ranker:
        ask(place, ranker)


def ask(place: Path, ranker: Child) -> None:
    changes = {
        "localhost:50051": ranker.announcement["grpc"],
        "localhost:8080": ranker.announcement["http"].removeprefix("http://"),
        "shelf": "home",
    }
    asking = [on_the_small_log(line, changes) for line in commands() if "rank" in line]
    asking = [line for line in asking if line[0] != "make"]
    assert {line[0] for line in asking} == {"gemcutter", "curl"}
    for line in asking:
        given = [*COMMAND, *line[1:]] if line[0] == "gemcutter" else line
        done = subprocess.run(given, cwd=place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "1029743" in done.stdout
        if line[0] == "curl":
            answer = json.loads(done.stdout)
            assert {entry["item_id"] for entry in answer["ranked"]} == {1029743, 1106523}
