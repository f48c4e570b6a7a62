"""The frozen model scores alike in any grouping, and the log holds every example once."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from features.errors import DataError
from features.histories import HistoryIndex
from features.packed import quantise
from features.transferlog import RowKind, read_transfer_log
from foundation.assembly import to_examples
from foundation.evaluation import evaluate_objectives, evaluate_surfaces
from foundation.frozen import FrozenFm
from foundation.training.loop import train
from foundation.transfer import DAY_MS, write_transfer_log
from tests.foundation.small import TRAIN, tiny_dataset, tiny_examples, tiny_model


@pytest.fixture(scope="module")
def fm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fm")
    train(tiny_dataset(), TRAIN, folder)
    return folder


@pytest.fixture(scope="module")
def fm(fm_folder: Path) -> FrozenFm:
    return FrozenFm.load(fm_folder, tiny_dataset())


def test_scores_do_not_depend_on_how_examples_are_grouped(fm: FrozenFm) -> None:
    examples = tiny_examples(200, 230)
    whole = fm.score(examples)
    parts = [fm.score(examples.take(slice(n, n + 7))) for n in range(0, 30, 7)]
    np.testing.assert_allclose(np.concatenate([p.z for p in parts]), whole.z, atol=1e-5)
    assert np.abs(whole.z).max() <= 1
    assert whole.z.std() > 0
    assert set(whole.p) == {"click", "order"}
    assert ((whole.p["click"] > 0) & (whole.p["click"] < 1)).all()


def test_no_examples_give_no_scores(fm: FrozenFm) -> None:
    scores = fm.score(tiny_examples(0, 0))
    assert scores.z.shape == (0, fm.dim)
    assert scores.p["click"].shape == (0,)


def test_a_loaded_model_scores_as_the_trained_one(fm: FrozenFm, fm_folder: Path) -> None:
    again = FrozenFm.load(fm_folder, tiny_dataset())
    examples = tiny_examples(200, 210)
    assert np.array_equal(again.score(examples).z, fm.score(examples).z)
    assert again.space_id == fm.space_id


def test_the_space_is_named_by_weights_and_packing(fm: FrozenFm, fm_folder: Path) -> None:
    other_packing = FrozenFm.load(fm_folder, tiny_dataset(), vector_dtype="int8")
    other_weights = FrozenFm(tiny_model(seed=9), tiny_dataset())
    assert len({fm.space_id, other_packing.space_id, other_weights.space_id}) == 3


def test_events_appended_to_the_histories_are_seen(fm_folder: Path) -> None:
    dataset = tiny_dataset()
    histories = HistoryIndex.build(
        {name: events.take(np.arange(0)) for name, events in dataset.events.items()}
    )
    fm = FrozenFm.load(fm_folder, dataset, histories=histories)
    examples = tiny_examples(200, 210)
    before = fm.score(examples).z
    for name, events in dataset.events.items():
        histories.append(name, events)
    after = fm.score(examples).z
    assert not np.allclose(before, after)
    np.testing.assert_allclose(
        after, FrozenFm.load(fm_folder, dataset).score(examples).z, atol=1e-5
    )


def test_the_log_holds_every_later_impression_once_with_probabilities_and_vector(
    fm: FrozenFm, tmp_path: Path
) -> None:
    dataset, told = tiny_dataset(), []
    meta = write_transfer_log(
        dataset, fm, tmp_path, progress=lambda share, what: told.append((share, what))
    )
    rows = read_transfer_log(tmp_path, schema_id=dataset.schema.schema_id).rows
    shown = dataset.impressions.between(dataset.splits.vm_train[0], dataset.splits.test[1])
    logged = rows.take(rows.kinds == RowKind.IMPRESSION)
    scores = fm.score(to_examples(shown))
    assert logged.example_ids.tolist() == shown.example_ids.tolist()
    assert logged.request_ids.tolist() == shown.request_ids.tolist()
    np.testing.assert_allclose(logged.p["click"], scores.p["click"], atol=1e-6)
    assert np.array_equal(logged.packed, quantise(scores.z, "int4"))
    assert meta.space_id == fm.space_id
    assert told[-1][0] == 1.0
    assert told == sorted(told, key=lambda entry: entry[0])


def test_engagements_are_logged_from_the_backfill_on_and_without_probabilities(
    fm: FrozenFm, tmp_path: Path
) -> None:
    dataset = tiny_dataset()
    write_transfer_log(dataset, fm, tmp_path, backfill_days=3)
    rows = read_transfer_log(tmp_path, schema_id=dataset.schema.schema_id).rows
    done = rows.take(rows.kinds == RowKind.ENGAGEMENT)
    purchases = dataset.events["purchase"]
    start_ms = dataset.splits.vm_train[0] - 3 * DAY_MS
    inside = (purchases.at_ms >= start_ms) & (purchases.at_ms < dataset.splits.test[1])
    assert len(done) == inside.sum() > 0
    assert sorted(done.at_ms) == sorted(purchases.at_ms[inside])
    assert np.isnan(done.p["click"]).all()
    assert (done.example_ids < 0).all()


def test_a_log_of_another_model_is_not_continued(fm: FrozenFm, tmp_path: Path) -> None:
    write_transfer_log(tiny_dataset(), fm, tmp_path)
    other = FrozenFm(tiny_model(seed=9), tiny_dataset())
    with pytest.raises(DataError, match="space_id"):
        write_transfer_log(tiny_dataset(), other, tmp_path)


def test_evaluation_is_by_objective_and_surface(fm: FrozenFm) -> None:
    dataset = tiny_dataset()
    test = dataset.impressions.between(*dataset.splits.test)
    p = fm.score(to_examples(test)).p
    whole = evaluate_objectives(p, test)
    parts = evaluate_surfaces(dataset, p, test)
    assert set(whole) == {"click", "order"}
    assert set(parts["click"]) == {"feed", "story"}
    assert whole["click"]["auc"].value != parts["click"]["feed"]["auc"].value


def test_configurations_are_frozen() -> None:
    with pytest.raises(TypeError):
        replace(TRAIN, lr=1.0)  # type: ignore[call-arg]
