"""What a person gets wrong at the command line is told in one line that names it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.features.tiny_log import write_tiny_log

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    write_tiny_log(folder / "log", num_days=20)
    (folder / "file").write_text("not a folder")
    return folder


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("transfer --data {0}/log --fm {0}/none --out {0}/o", "none/final: not a complete checkpo"),
        ("train --data {0}/log --out {0}/file", "file: checkpoints cannot be written there"),
        ("train --data {0}/none --out {0}/o", "none/schema.yaml"),
        ("precompute --data {0}/log --fm {0}/none --store junk", "--store: "),
        ("rank --user 99999999999999999999 --items 1 --address localhost:1", "no ranker answers"),
        ("bundle show {0}/log", "manifest.json"),
        ("up --run {0}/none", "bundle is missing: run"),
    ],
)
def test_a_mistake_is_told_without_a_traceback(place: Path, line: str, told: str) -> None:
    arguments = [part.format(place) for part in line.split()]
    done = subprocess.run(
        [sys.executable, "-m", "services.cli.main", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode > 0
    assert "Traceback" not in done.stderr
    assert told in done.stderr
    assert not (place / "o" / "rows-00000.parquet").exists()


def test_a_disk_that_is_full_is_named_and_no_checkpoint_stays(place: Path) -> None:
    command = [sys.executable, "-m", "services.cli.main", "train", "--data", str(place / "log")]
    command += ["--out", str(place / "full")]
    # Enough for what is kept of the log, too little for a checkpoint.
    done = subprocess.run(
        ["/bin/sh", "-c", f"trap '' XFSZ; ulimit -f 200; exec {' '.join(command)}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode > 0
    assert "Traceback" not in done.stderr
    assert "full/final: cannot be written" in done.stderr
    assert list((place / "full").iterdir()) == []
