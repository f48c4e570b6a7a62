from dataclasses import replace

import numpy as np
import pytest

from features.dataset import LogDataset
from features.metrics import normalized_entropy
from features.transferlog import TransferLog
from ranking.calibration import calibrate
from ranking.training.dataset import VerticalExamples, shuffle_memory_vectors
from ranking.training.recipes import controls, quickstart
from ranking.training.rows import CONTROLS, ROWS, RowResult, RowsConfig, RowSpec, train_rows
from ranking.training.train import predict


def test_rows_come_in_order_with_figures_of_every_objective(rows: dict[str, RowResult]) -> None:
    assert list(rows) == [row.name for row in ROWS]
    for row in rows.values():
        assert set(row.metrics) == set(row.calibration) == {"click", "order"}
        assert row.metrics["click"]["ne"].value is not None


def test_figures_are_those_of_the_calibrated_model_on_the_test_window(
    tiny: LogDataset, rows: dict[str, RowResult]
) -> None:
    row = rows["kd+loopfm"]
    examples = row.examples
    test = examples.rows_between(tiny.splits.test)

    p = calibrate(predict(row.model, examples, test), examples.objectives, row.calibration)

    np.testing.assert_allclose(row.test_p, p, atol=1e-6)
    expected = normalized_entropy(p[:, 0], examples.labels[test, 0])
    assert row.metrics["click"]["ne"].value == pytest.approx(expected, abs=1e-6)


def test_figures_of_a_surface_are_those_of_its_own_rows(
    tiny: LogDataset, rows: dict[str, RowResult]
) -> None:
    row = rows["kd+loopfm"]
    examples, test = row.examples, row.examples.rows_between(tiny.splits.test)
    shown = tiny.impressions
    code_by_id = dict(zip(shown.example_ids.tolist(), shown.codes["surface"], strict=True))
    codes = np.array([code_by_id[i] for i in examples.example_ids[test].tolist()])

    assert set(row.surface_metrics) == {"feed", "story"}
    for name, figures in row.surface_metrics.items():
        here = codes == tiny.encoder.codes("surface", [name])[0]
        expected = normalized_entropy(row.test_p[here, 0], examples.labels[test, 0][here])
        assert figures["click"]["ne"].value == pytest.approx(expected, abs=1e-6)
        assert figures["order"]["auc"].value != figures["click"]["auc"].value


def test_shuffling_deals_the_vectors_out_anew_and_leaves_the_rest(
    examples: VerticalExamples,
) -> None:
    shuffled = shuffle_memory_vectors(examples, seed=0)

    is_entry = examples.user_side["memory_mask"] > 0
    before, after = examples.user_side["memory_z"], shuffled.user_side["memory_z"]
    assert not after[~is_entry].any()
    assert (before[is_entry] != after[is_entry]).any(axis=1).mean() > 0.9
    np.testing.assert_array_equal(
        np.sort(before[is_entry], axis=0), np.sort(after[is_entry], axis=0)
    )
    for name, array in examples.user_side.items():
        if name != "memory_z":
            assert shuffled.user_side[name] is array


def test_controls_have_a_twin_without_the_vectors_for_each_memory_row() -> None:
    config = controls("home", seed=2)

    names = {row.name for row in config.rows}
    assert {"loopfm", "loopfm shuffled", "raw"} <= names
    assert {"kd+loopfm", "kd+loopfm shuffled", "kd+raw"} <= names
    assert config.optimiser == quickstart("home").optimiser
    assert config.seed == 2


def test_a_shuffled_row_is_trained_on_shuffled_vectors(
    tiny: LogDataset, transfer: TransferLog, tiny_config: RowsConfig
) -> None:
    chosen = tuple(r for r in CONTROLS if r.name in {"base", "loopfm", "loopfm shuffled"})
    found = {r.name: r for r in train_rows(tiny, transfer, replace(tiny_config, rows=chosen))}

    z = {name: found[name].examples.user_side["memory_z"] for name in found}
    assert (z["loopfm"] != z["loopfm shuffled"]).any()
    assert (found["loopfm"].test_p != found["loopfm shuffled"].test_p).any()


def test_transfer_ratio_is_the_share_of_the_teachers_gain(rows: dict[str, RowResult]) -> None:
    base, row = rows["base"], rows["loopfm"]
    base_ne, ne = base.metrics["click"]["ne"].value, row.metrics["click"]["ne"].value
    fm_ne = row.fm_metrics["click"]["ne"].value
    assert base_ne is not None
    assert ne is not None
    assert fm_ne is not None

    assert row.ne_difference["click"].value == pytest.approx(ne - base_ne)
    expected = (base_ne - ne) / (base_ne - fm_ne) if base_ne > fm_ne else None
    assert row.transfer_ratio["click"] == pytest.approx(expected)


def test_base_differs_from_itself_by_nothing(rows: dict[str, RowResult]) -> None:
    difference = rows["base"].ne_difference["click"]

    assert (difference.value, difference.low, difference.high) == (0, 0, 0)


def test_rows_differ_in_what_they_are_given_only(rows: dict[str, RowResult]) -> None:
    for name, row in rows.items():
        plain = replace(row.config.model, memory="none", has_pairs=False)
        assert plain == rows["base"].config.model
        assert row.config.optimiser == rows["base"].config.optimiser
        assert (row.config.distill is not None) == ("kd" in name)
    assert rows["raw"].config.model.memory == "raw"
    assert rows["loopfm"].config.model.memory == "loopfm"


def test_raw_and_loopfm_get_the_same_match_inputs(rows: dict[str, RowResult]) -> None:
    names = {name: set(rows[name].model.input_names) for name in ("raw", "loopfm")}

    assert names["raw"] - names["loopfm"] == {"memory_codes"}
    assert names["loopfm"] - names["raw"] == {"memory_z"}


def test_progress_goes_from_the_first_row_to_the_last(
    tiny: LogDataset, transfer: TransferLog, tiny_config: RowsConfig
) -> None:
    told: list[tuple[float, str]] = []
    config = replace(tiny_config, rows=ROWS[:2])

    train_rows(tiny, transfer, config, progress=lambda share, what: told.append((share, what)))

    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
    assert told[-1][1].startswith("kd: tune NE")


def test_a_comparison_without_base_first_is_refused() -> None:
    with pytest.raises(ValueError, match="'base' first"):
        RowsConfig(vertical="home", rows=(RowSpec(name="kd", has_distillation=True),))


def test_quickstart_runs_every_row_on_one_budget() -> None:
    config = quickstart("home", seed=3)

    assert config.rows == ROWS
    assert {config.fit_config(row).seed for row in config.rows} == {3}


def test_windows_share_no_row(tiny: LogDataset, examples: VerticalExamples) -> None:
    splits = tiny.splits
    parts = [examples.rows_between(w) for w in (splits.vm_train, splits.tune, splits.test)]

    assert all(len(part) for part in parts)
    np.testing.assert_array_equal(np.concatenate(parts), np.arange(len(examples)))
