"""A run that was killed goes on as if nothing had happened: the same weights, to the last bit."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from features.dataset import load_dataset
from foundation.training.checkpoint import FINAL, newest_checkpoint
from foundation.training.loop import train
from tests.features.tiny_log import write_tiny_log
from tests.foundation.small import TRAIN

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.integration

SCRIPT = """
import sys, time
from pathlib import Path
from features.dataset import load_dataset
from foundation.training.loop import train
from tests.foundation.small import TRAIN
# Slow enough for the test to see a checkpoint before the end.
slow = lambda *_: time.sleep(0.3)
train(load_dataset(Path(sys.argv[1])), TRAIN, Path(sys.argv[2]), progress=slow)
"""


def weights(folder: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = torch.load(folder / FINAL / "state.pt")["model"]
    return state


def test_killed_after_a_checkpoint_and_gone_on_equals_never_stopped(tmp_path: Path) -> None:
    log = write_tiny_log(tmp_path / "log")
    dataset = load_dataset(log)
    train(dataset, TRAIN, tmp_path / "straight")
    command = [sys.executable, "-c", SCRIPT, str(log), str(tmp_path / "killed")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for num_checkpoints in (1, 2):
        child = subprocess.Popen(command, cwd=ROOT, env=environment)
        deadline_s = time.monotonic() + 60
        while _steps(tmp_path / "killed") < 3 * num_checkpoints:
            assert child.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        assert not (tmp_path / "killed" / FINAL).exists()

    train(dataset, TRAIN, tmp_path / "killed")

    straight, resumed = weights(tmp_path / "straight"), weights(tmp_path / "killed")
    assert straight.keys() == resumed.keys()
    for name, weight in straight.items():
        assert torch.equal(weight, resumed[name]), name


def _steps(folder: Path) -> int:
    newest = newest_checkpoint(folder) if folder.exists() else None
    return 0 if newest is None else int(newest.name.removeprefix("step-"))
