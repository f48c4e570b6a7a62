"""A log that the code has never seen, from CSV files to a ranked answer, by the command alone."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.services.cli.email_campaign import (
    DEPARTMENTS,
    NUM_OFFERS,
    offer,
    subscriber,
    write_email_campaign,
)

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.integration


def gemcutter(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "services.cli.main", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        text=True,
        capture_output=True,
        check=check,
        timeout=280,
    )


@contextmanager
def up(run: Path, data: Path, log: Path) -> Iterator[str]:
    """Everything running; gives the URL of HTTP."""
    command = [sys.executable, "-m", "services.cli.main", "up", "--run", str(run)]
    command += ["--data", str(data), "--grpc-port", "0", "--http-port", "0"]
    with log.open("w") as output:
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        )
    try:
        assert child.stdout is not None
        for line in child.stdout:
            found = re.search(r"HTTP (http://\S+)/docs", line)
            if found:
                yield found[1]
                break
        else:
            raise AssertionError(f"never came up: {log.read_text()}")
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 0
    finally:
        child.kill()
        child.communicate()


def rank(url: str, user: str, items: list[str]) -> dict[str, Any]:
    body = {
        "user_id": user,
        "at_ms": 1_714_500_000_000,
        "context": {"surface": "grid", "weekday": "Mon"},
        "candidates": [{"item_id": item} for item in items],
    }
    request = urllib.request.Request(
        f"{url}/v1/rank/newsletter",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def test_strange_files_become_a_served_vertical_with_one_schema_and_no_code(
    tmp_path: Path,
) -> None:
    data, run = write_email_campaign(tmp_path / "mail export"), tmp_path / "run"

    checked = json.loads(gemcutter("data", "check", data, "--json").stdout)
    assert checked["errors"] == []
    gemcutter("train", "--data", data, "--out", run / "fm")
    gemcutter("transfer", "--data", data, "--fm", run / "fm", "--out", run)

    with up(run, data, tmp_path / "up.log") as url:
        items = [offer(item) for item in range(NUM_OFFERS)]
        hits = 0
        for user in range(20):
            answer = rank(url, subscriber(user), items)
            assert len(answer["ranked"]) == NUM_OFFERS
            assert {c["item_id"] for c in answer["ranked"]} == set(items)
            assert all(0 < p < 1 for c in answer["ranked"] for p in c["p"].values())
            places = [int(c["item_id"][:3]) % len(DEPARTMENTS) for c in answer["ranked"][:5]]
            hits += max(places.count(d) for d in range(len(DEPARTMENTS))) >= 4
        assert hits >= 12, "the best five are rarely of one department: the history was lost"


def test_a_spoilt_export_is_refused_with_every_reason_and_exit_code_1(tmp_path: Path) -> None:
    data = write_email_campaign(tmp_path / "export")
    orders = data / "orders.csv"
    lines = orders.read_text().splitlines()
    lines[3] = lines[3].rsplit(",", 1)[0] + ",-4"
    orders.write_text("\n".join(lines))
    sends = sorted((data / "sends").glob("*.csv"))[1]
    sends.write_bytes(sends.read_bytes().replace(b";hero;", b";banner;", 1))

    done = gemcutter("data", "check", data, "--json", check=False)

    assert done.returncode == 1
    errors = "\n".join(json.loads(done.stdout)["errors"])
    assert f"{sends.name}, column 'slot in mail': 1 rows are on none of" in errors
    assert "orders.csv: feature 'amount'" in errors
    assert "first rows [2]" in errors
