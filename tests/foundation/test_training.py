"""A run is a function of its configuration, and stopping changes nothing."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from features.dataset import LogDataset
from foundation.assembly import build_model
from foundation.model.config import ModelConfig
from foundation.model.foundation import FoundationModel
from foundation.training import loop
from foundation.training.checkpoint import CheckpointError, load_checkpoint, newest_checkpoint
from foundation.training.loop import TrainingError, TrainResult, train
from foundation.training.recipes import RECIPES
from tests.foundation.small import TRAIN, tiny_dataset


def weights(result: TrainResult) -> dict[str, torch.Tensor]:
    return result.model.state_dict()


def test_the_same_seed_gives_the_same_losses_to_the_last_bit(tmp_path: Path) -> None:
    first = train(tiny_dataset(), TRAIN, tmp_path / "a")
    second = train(tiny_dataset(), TRAIN, tmp_path / "b")
    other = train(tiny_dataset(), replace(TRAIN, seed=1), tmp_path / "c")
    assert first.losses == second.losses
    assert first.losses != other.losses
    assert first.losses[-1] < first.losses[0]


def test_resuming_equals_not_stopping_bit_for_bit(tmp_path: Path) -> None:
    straight = train(tiny_dataset(), TRAIN, tmp_path / "straight")
    head = train(tiny_dataset(), TRAIN, tmp_path / "stopped", stop_after_steps=4)
    tail = train(tiny_dataset(), TRAIN, tmp_path / "stopped")
    # It stopped one step after its newest checkpoint, so that step is taken again.
    assert head.losses[:3] + tail.losses == straight.losses
    for name, weight in weights(straight).items():
        assert torch.equal(weight, weights(tail)[name]), name


def test_a_checkpoint_of_another_configuration_is_refused_with_the_difference(
    tmp_path: Path,
) -> None:
    train(tiny_dataset(), TRAIN, tmp_path, stop_after_steps=3)
    with pytest.raises(CheckpointError, match="max_rows: 48, expected 32"):
        train(tiny_dataset(), replace(TRAIN, max_rows=32), tmp_path)


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    result = train(tiny_dataset(), TRAIN, tmp_path)
    schema_id, encoder_id = tiny_dataset().schema.schema_id, tiny_dataset().encoder.encoder_id
    with pytest.raises(CheckpointError, match="encoder_id"):
        load_checkpoint(result.path, config=None, schema_id=schema_id, encoder_id="0" * 16)
    with pytest.raises(CheckpointError, match="schema_id"):
        load_checkpoint(result.path, config=None, schema_id="0" * 16, encoder_id=encoder_id)


def test_resuming_a_run_of_few_tokens_and_sampled_negatives_equals_not_stopping(
    tmp_path: Path,
) -> None:
    config = replace(TRAIN, max_tokens=200, negative_keep_frac={"feed": 0.5})
    straight = train(tiny_dataset(), config, tmp_path / "straight")
    head = train(tiny_dataset(), config, tmp_path / "stopped", stop_after_steps=7)
    tail = train(tiny_dataset(), config, tmp_path / "stopped")

    assert head.losses[:6] + tail.losses == straight.losses
    assert straight.num_rows < train(tiny_dataset(), TRAIN, tmp_path / "all").num_rows
    assert len(straight.losses) > straight.num_rows // TRAIN.max_rows + 1


def test_a_checkpoint_of_other_batches_is_refused_with_both_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny_dataset(), TRAIN, tmp_path, stop_after_steps=3)
    # As when events came late and histories grew: the same rows, cut elsewhere.
    grown = loop.history_tokens
    monkeypatch.setattr(loop, "history_tokens", lambda *args, **names: 900 * grown(*args, **names))

    with pytest.raises(CheckpointError, match=r"plan_id is '\w+', expected '\w+'"):
        train(tiny_dataset(), TRAIN, tmp_path)


def test_a_share_of_negatives_for_a_surface_that_is_none_is_refused(tmp_path: Path) -> None:
    config = replace(TRAIN, negative_keep_frac={"tv": 0.5})

    with pytest.raises(TrainingError, match=r"expected surfaces of .*'feed'.*got \['tv'\]"):
        train(tiny_dataset(), config, tmp_path)


def test_a_half_written_checkpoint_is_never_picked(tmp_path: Path) -> None:
    train(tiny_dataset(), TRAIN, tmp_path, stop_after_steps=3)
    whole = newest_checkpoint(tmp_path)
    assert whole is not None
    unfinished = tmp_path / "step-99999999"
    shutil.copytree(whole, unfinished)
    (unfinished / "meta.json").unlink()
    assert newest_checkpoint(tmp_path) == whole


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    result = train(tiny_dataset(), TRAIN, tmp_path)
    state = result.path / "state.pt"
    state.write_bytes(state.read_bytes()[:-100])
    meta = json.loads((result.path / "meta.json").read_text())
    ids = {name: meta[name] for name in ("schema_id", "encoder_id")}
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(result.path, config=None, **ids)


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_parameter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny_dataset(), TRAIN, tmp_path, stop_after_steps=3)
    path = newest_checkpoint(tmp_path)
    assert path is not None
    before = (path / "state.pt").read_bytes()
    built: list[FoundationModel] = []

    def build(dataset: LogDataset, config: ModelConfig) -> FoundationModel:
        built.append(build_model(dataset, config))
        return built[-1]

    def poison(step: int, total: int, loss: float) -> None:
        with torch.no_grad():
            built[-1].readout.heads.bias.fill_(float("nan"))

    monkeypatch.setattr(loop, "build_model", build)
    with pytest.raises(TrainingError, match=r"step 4: loss nan; parameter 'readout.heads.bias'"):
        train(tiny_dataset(), TRAIN, tmp_path, progress=poison)
    assert newest_checkpoint(tmp_path) == path
    assert (path / "state.pt").read_bytes() == before


@pytest.mark.parametrize("name", list(RECIPES))
def test_every_recipe_is_a_complete_configuration(name: str) -> None:
    assert RECIPES[name]().model.bottleneck_dim == 32
