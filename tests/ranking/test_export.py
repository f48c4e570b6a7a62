import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from features.dataset import LogDataset
from features.encoding import Encoder
from features.transferlog import TransferLog
from ranking.calibration import calibrate
from ranking.training.dataset import Arrays
from ranking.training.export import export_bundle, serving_inputs
from ranking.training.model import VerticalModel
from ranking.training.onnxfile import (
    OPSET,
    ExportError,
    check_onnx,
    export_onnx,
    mix_requests,
    open_session,
    run_session,
)
from ranking.training.parity import ParityError, ParityReference, check_parity, stamp
from ranking.training.rows import RowResult
from tests.ranking.tiny_transfer import SPACE_ID

pytestmark = pytest.mark.integration

ROW = "kd+loopfm+solaris"


@pytest.fixture(scope="module")
def row(rows: dict[str, RowResult]) -> RowResult:
    return rows[ROW]


@pytest.fixture(scope="module")
def exported(tiny: LogDataset, row: RowResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tiny, row, tmp_path_factory.mktemp("onnx") / "model.onnx")


def export(
    tiny: LogDataset, row: RowResult, path: Path, model: VerticalModel | None = None
) -> Path:
    export_onnx(model or row.model, serving_inputs(row, num_rows=2), path)
    stamp(path, encoder_id=tiny.encoder.encoder_id, space_id=SPACE_ID)
    return path


def reference_of(tiny: LogDataset, row: RowResult, **changes: object) -> ParityReference:
    reference = ParityReference(
        model=row.model,
        examples=row.examples,
        schema=tiny.schema,
        encoder_id=tiny.encoder.encoder_id,
        items=tiny.items,
    )
    return replace(reference, **changes)  # type: ignore[arg-type]


class BakesSize(VerticalModel):
    """Takes the sample's number of candidates for every request's."""

    def serve(self, inputs):  # type: ignore[no-untyped-def]
        size = 2
        return super().serve(inputs).reshape(size, -1)


class HasNoOperator(VerticalModel):
    """Uses a function for which ONNX has no operator."""

    def serve(self, inputs):  # type: ignore[no-untyped-def]
        return torch.special.airy_ai(super().serve(inputs))


def baked(model: VerticalModel) -> VerticalModel:
    wrong = copy.deepcopy(model)
    wrong.__class__ = BakesSize
    return wrong


def test_an_exported_model_passes_the_self_test(exported: Path, row: RowResult) -> None:
    check_onnx(exported, row.model, row.examples, max_candidates=50)


def test_export_of_a_model_that_bakes_the_batch_size_is_refused(
    tiny: LogDataset, row: RowResult, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match="cannot take any number of candidates"):
        export(tiny, row, tmp_path / "model.onnx", model=baked(row.model))


def test_a_file_with_a_baked_batch_size_is_refused_with_the_size(
    exported: Path, row: RowResult, tmp_path: Path
) -> None:
    file = onnx.load(str(exported))
    shape = onnx.numpy_helper.from_array(np.array([2, 2]), name="baked_shape")
    file.graph.initializer.append(shape)
    (last,) = (node for node in file.graph.node if "logits" in node.output)
    last.output[0] = "unshaped"
    file.graph.node.append(
        onnx.helper.make_node("Reshape", ["unshaped", "baked_shape"], ["logits"])
    )
    onnx.save(file, str(tmp_path / "model.onnx"))

    with pytest.raises(ExportError, match=r"3 candidates, 0 memory entries: fails with"):
        check_onnx(tmp_path / "model.onnx", row.model, row.examples, max_candidates=50)


def test_the_file_is_of_the_pinned_operator_set(exported: Path) -> None:
    (stamped,) = onnx.load(str(exported)).opset_import

    assert (stamped.domain, stamped.version) == ("", OPSET)


def test_an_operation_that_the_operator_set_lacks_is_refused_by_its_name(
    tiny: LogDataset, row: RowResult, tmp_path: Path
) -> None:
    wrong = copy.deepcopy(row.model)
    wrong.__class__ = HasNoOperator

    with pytest.raises(ExportError, match=f"not in operator set {OPSET}: .*special_airy_ai"):
        export(tiny, row, tmp_path / "model.onnx", model=wrong)


def test_a_file_of_a_later_operator_set_is_refused_with_both_sets(
    exported: Path, row: RowResult, tmp_path: Path
) -> None:
    file = onnx.load(str(exported))
    file.opset_import[0].version = 99
    onnx.save(file, str(tmp_path / "model.onnx"))

    with pytest.raises(ExportError, match=r"model\.onnx: .*pset 99 .* till opset \d+"):
        check_onnx(tmp_path / "model.onnx", row.model, row.examples, max_candidates=50)


def test_a_truncated_file_is_refused_by_its_name(
    exported: Path, row: RowResult, tmp_path: Path
) -> None:
    whole = exported.read_bytes()
    (tmp_path / "model.onnx").write_bytes(whole[: len(whole) // 2])

    with pytest.raises(ExportError, match=r"model\.onnx: ONNX Runtime .* cannot open it"):
        check_onnx(tmp_path / "model.onnx", row.model, row.examples, max_candidates=50)


@pytest.mark.parametrize("fill", [0, 1, 4])
def test_the_self_test_fills_the_memory_as_far_as_it_says(row: RowResult, fill: int) -> None:
    inputs = mix_requests(row.examples, 3, np.random.default_rng(0), fill=fill)

    np.testing.assert_array_equal(inputs["memory_mask"], [[1] * fill + [0] * (4 - fill)])
    assert (inputs["memory_match"][0, fill:] == -1).all()
    assert (np.abs(inputs["memory_z"][0, :fill]).sum(axis=1) > 0).all()


def test_a_file_of_other_weights_is_refused_with_the_difference(
    exported: Path, rows: dict[str, RowResult]
) -> None:
    other = copy.deepcopy(rows[ROW].model)
    with torch.no_grad():
        other.serving_head.bias.add_(0.01)

    with pytest.raises(ExportError, match=r"1 candidates, 0 memory entries: .*got a difference of"):
        check_onnx(exported, other, rows[ROW].examples, max_candidates=50)


def test_the_parity_gate_passes_what_was_trained(
    tiny: LogDataset, exported: Path, row: RowResult
) -> None:
    reference = reference_of(tiny, row)

    check_parity(exported, encoder=tiny.encoder, items=tiny.items, reference=reference)


def test_dropout_left_on_is_caught_as_mode(
    tiny: LogDataset, row: RowResult, tmp_path: Path
) -> None:
    path = export(tiny, row, tmp_path / "m.onnx", model=copy.deepcopy(row.model).train())

    with pytest.raises(ParityError, match="random operations") as caught:
        check_parity(
            path, encoder=tiny.encoder, items=tiny.items, reference=reference_of(tiny, row)
        )

    assert caught.value.fault == "mode"


def test_one_missing_bias_is_caught_as_weights_by_its_name(
    tiny: LogDataset, row: RowResult, tmp_path: Path
) -> None:
    wrong = copy.deepcopy(row.model)
    with torch.no_grad():
        wrong.backbone.deep[0].bias.zero_()  # type: ignore[operator]
    path = export(tiny, row, tmp_path / "m.onnx", model=wrong)

    with pytest.raises(ParityError, match=r"backbone\.deep\.0\.bias$") as caught:
        check_parity(
            path, encoder=tiny.encoder, items=tiny.items, reference=reference_of(tiny, row)
        )

    assert caught.value.fault == "weights"


def test_a_weight_too_many_is_caught_as_weights_by_its_name(
    tiny: LogDataset, exported: Path, row: RowResult, tmp_path: Path
) -> None:
    file = onnx.load(str(exported))
    extra = onnx.numpy_helper.from_array(np.ones(3, dtype=np.float32), name="model.extra.bias")
    file.graph.initializer.append(extra)
    onnx.save(file, str(tmp_path / "m.onnx"))

    with pytest.raises(
        ParityError, match=r"not in the trained model: model\.extra\.bias$"
    ) as caught:
        check_parity(
            tmp_path / "m.onnx",
            encoder=tiny.encoder,
            items=tiny.items,
            reference=reference_of(tiny, row),
        )

    assert caught.value.fault == "weights"


def test_another_runs_vocabulary_is_caught_as_vocabulary(
    tiny: LogDataset, exported: Path, row: RowResult
) -> None:
    other = Encoder.fit(tiny.schema, {})

    with pytest.raises(ParityError, match=f"the encoder {other.encoder_id}") as caught:
        check_parity(exported, encoder=other, items=tiny.items, reference=reference_of(tiny, row))

    assert caught.value.fault == "vocabulary"


@pytest.mark.parametrize("place", ["unknown items", "a known item"])
def test_missing_numbers_filled_with_zero_are_caught_as_fill(
    tiny: LogDataset, exported: Path, row: RowResult, place: str
) -> None:
    numeric = np.array(tiny.items.numeric)
    numeric[0 if place == "unknown items" else 1, 0] = 0
    items = replace(tiny.items, numeric=numeric)

    with pytest.raises(ParityError, match="feature 'price'") as caught:
        check_parity(exported, encoder=tiny.encoder, items=items, reference=reference_of(tiny, row))

    assert caught.value.fault == "fill"


def test_scores_that_differ_for_no_named_reason_are_caught_as_scores(
    tiny: LogDataset, exported: Path, row: RowResult, tmp_path: Path
) -> None:
    file = onnx.load(str(exported))
    (last,) = (node for node in file.graph.node if "logits" in node.output)
    last.output[0] = "unscaled"
    two = onnx.numpy_helper.from_array(np.array(2, dtype=np.float32), name="two")
    file.graph.initializer.append(two)
    file.graph.node.append(onnx.helper.make_node("Mul", ["unscaled", "two"], ["logits"]))
    onnx.save(file, str(tmp_path / "m.onnx"))

    with pytest.raises(ParityError) as caught:
        check_parity(
            tmp_path / "m.onnx",
            encoder=tiny.encoder,
            items=tiny.items,
            reference=reference_of(tiny, row),
        )

    assert caught.value.fault == "scores"


@pytest.mark.parametrize("name", ["base", "raw", ROW])
def test_a_published_bundle_answers_its_golden_requests(
    tiny: LogDataset,
    transfer: TransferLog,
    rows: dict[str, RowResult],
    tmp_path: Path,
    name: str,
) -> None:
    bundle = export_bundle(tiny, transfer.meta, rows[name], tmp_path / "bundle")

    session, manifest = open_session(bundle.model_path), bundle.manifest
    sizes = []
    for case in bundle.golden():
        logits = run_session(session, case.inputs)
        np.testing.assert_allclose(logits, case.logits, atol=1e-4)
        p = calibrate(logits, manifest.objectives, manifest.calibration)
        np.testing.assert_allclose(p, case.p, atol=1e-5)
        assert set(case.inputs) == {tensor.name for tensor in manifest.inputs}
        sizes.append(len(logits))
    assert {1, 257} < set(sizes)
    assert manifest.assembly.blocks == rows[name].model.config.blocks


def test_the_manifest_describes_the_models_inputs(
    tiny: LogDataset, transfer: TransferLog, row: RowResult, tmp_path: Path
) -> None:
    bundle = export_bundle(tiny, transfer.meta, row, tmp_path / "bundle")

    sample: Arrays = serving_inputs(row, num_rows=5)
    for tensor in bundle.manifest.inputs:
        array = sample[tensor.name]
        assert tensor.dtype == str(array.dtype)
        shape = tuple(5 if size is None else size for size in tensor.shape)
        assert shape == array.shape, tensor.name
    assert bundle.manifest.row == ROW
    assert bundle.manifest.space_id == SPACE_ID


def test_sampled_negatives_bring_golden_requests_and_priors_to_the_rate_of_the_traffic(
    tiny: LogDataset, transfer: TransferLog, row: RowResult, tmp_path: Path
) -> None:
    plain = export_bundle(tiny, transfer.meta, row, tmp_path / "plain")
    sampled = export_bundle(tiny, transfer.meta, row, tmp_path / "sampled", negative_keep_frac=0.1)

    assert sampled.manifest.negative_keep_frac == 0.1
    for before, after in zip(plain.golden(), sampled.golden(), strict=True):
        np.testing.assert_array_equal(after.logits, before.logits)
        p = before.p.astype(np.float64)
        np.testing.assert_allclose(after.p, p / (p + (1 - p) / 0.1), rtol=1e-4)
    prior = plain.manifest.prior["click"]
    assert sampled.manifest.prior["click"] == pytest.approx(prior / (prior + (1 - prior) / 0.1))
