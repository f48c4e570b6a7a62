"""`gemcutter world`: its help, its options, what it writes, what it refuses."""

import dataclasses
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from features.dataset import load_dataset
from features.errors import DataError
from features.results import read_results
from foundation.datasets.world.config import WorldConfig
from foundation.datasets.world.oracle import read_config
from precompute.worldstream import SinkError
from services.cli.main import app

SMALL = ["--users", "60", "--days", "5", "--ads", "300", "--users-per-block", "20"]


def world(*arguments: str | Path) -> Result:
    return CliRunner().invoke(
        app, ["world", *map(str, arguments)], env={"COLUMNS": "300", "NO_COLOR": "1"}
    )


def test_the_help_explains_every_dial_with_its_range() -> None:
    text = re.sub(r"[│\s]+", " ", world("--help").output)
    for field in dataclasses.fields(WorldConfig):
        assert field.metadata["text"] in text, field.name
    for flag in ("--users", "--days", "--rho", "--horizon", "--surfaces", "--seed", "--shard"):
        assert f"{flag} " in text
    assert "2 to 8,192 events" in text


def test_a_world_is_written_with_the_dials_given(tmp_path: Path) -> None:
    dials = ["--rho", "0.5", "--surfaces", "3", "--horizon", "64", "--no-second-price"]
    done = world(*SMALL, *dials, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    config = read_config(tmp_path / "oracle")
    assert (config.rho, config.num_surfaces, config.horizon) == (0.5, 3, 64)
    assert not config.is_second_price
    assert len(load_dataset(tmp_path / "log").impressions) > 100
    assert "events, " in done.output


def test_two_shards_are_the_whole_world(tmp_path: Path) -> None:
    for shard in ("1/2", "0/2"):
        assert world(*SMALL, "--shard", shard, "--out", tmp_path / "shards").exit_code == 0
    assert world(*SMALL, "--out", tmp_path / "whole").exit_code == 0
    shards, whole = (
        sorted(load_dataset(tmp_path / name / "log").impressions.example_ids.tolist())
        for name in ("shards", "whole")
    )
    assert shards == whole


def test_a_history_shorter_than_the_horizon_is_said(tmp_path: Path) -> None:
    done = world(*SMALL, "--horizon", "8192", "--out", tmp_path)
    assert "fewer than the horizon of 8192" in re.sub(r"\s+", " ", done.output)


@pytest.mark.slow
def test_a_world_is_trained_on_like_any_other_log(tmp_path: Path) -> None:
    data, run = tmp_path / "world" / "log", tmp_path / "run"
    assert (
        world("--users", "60", "--days", "8", "--ads", "300", "--out", data.parent).exit_code == 0
    )
    for step in (
        ["data", "check", data],
        ["train", "--data", data, "--out", run / "fm"],
        ["transfer", "--data", data, "--fm", run / "fm", "--out", run],
    ):
        done = CliRunner().invoke(app, [*map(str, step)])
        assert done.exit_code == 0, done.output
    assert (run / "bundle" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "word"),
    [
        (["--rho", "9"], DataError, "rho"),
        (["--shard", "half"], DataError, "--shard"),
        (["--shard", "3/2"], DataError, "shard"),
        (["--to", "redis://host"], DataError, "kafka://"),
        (["--to", "kafka://127.0.0.1:1"], SinkError, "127.0.0.1:1"),
    ],
)
def test_a_mistake_is_refused_by_name(
    tmp_path: Path, arguments: list[str], error: type[Exception], word: str
) -> None:
    done = world(*SMALL, *arguments, "--out", tmp_path / "out")
    assert isinstance(done.exception, error)
    assert word in str(done.exception)


def test_the_speed_is_recorded_with_the_dials_that_were_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = world(*SMALL, "--out", tmp_path / "out", "--record")
    assert done.exit_code == 0, done.output
    rows = {row.metric: row for row in read_results(tmp_path / "docs/results/data.csv")}
    assert rows["events_per_s"].case == "world"
    assert rows["events_per_s"].unit == "events/s"
    assert "--users 60 --days 5" in rows["events_per_s"].command
    assert rows["events_per_cpu_s"].value > 0
    assert 1 < rows["event_bytes"].value < 1000
