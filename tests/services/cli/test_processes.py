"""A child that does not start says why."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from services.cli.processes import Child, ChildError

ROOT = Path(__file__).parents[3]


def test_a_module_that_ends_at_once_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(ChildError, match="No module named no_such_module"):
        Child("no_such_module", [], log=tmp_path / "log")


def test_a_child_is_ended_with_its_block(tmp_path: Path) -> None:
    module = tmp_path / "talker.py"
    module.write_text(
        "import json, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('starting')\nprint(json.dumps({'grpc': 'here'}))\n"
        "time.sleep(60)\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        with Child("talker", [], log=tmp_path / "log") as child:
            assert child.announcement == {"grpc": "here"}
            assert child.is_running
            assert child.stop() == 7
    assert not child.is_running


def test_children_end_when_their_owner_is_killed(tmp_path: Path) -> None:
    (tmp_path / "talker.py").write_text(
        "import json, os, sys, time\n"
        "from services.lifeline import end_with_owner\n"
        "end_with_owner()\nprint(json.dumps({'pid': os.getpid()}))\ntime.sleep(60)\n"
    )
    owner = (
        "import sys, time; from pathlib import Path; from services.cli.processes import Child\n"
        "child = Child('talker', [], log=Path(sys.argv[1]))\n"
        "print(child.announcement['pid'], flush=True)\ntime.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", owner, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"},
        text=True,
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert _is_running(pid)

    process.kill()
    process.communicate()

    deadline_s = time.monotonic() + 20
    while _is_running(pid) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not _is_running(pid)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
