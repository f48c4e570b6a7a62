"""From a trained row to a bundle: ONNX, tests of the file that was written, and golden requests.

A bundle is published only if its ONNX file gives what the trained model gives for numbers of
candidates and fillings of the memory that the export never saw, and if the parity gate
(`ranking.training.parity`) finds nothing.

Errors: ExportError (also ValueError), saying which case failed and by how much.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as runtime_errors
from torch import Tensor, nn

from features.arrays import FloatArray, IntArray
from features.dataset import LogDataset
from features.errors import GemcutterError
from features.metrics import Estimate
from features.transferlog import TransferMeta
from ranking.bundle import Bundle, GoldenCase, write_bundle
from ranking.calibration import calibrate, sigmoid
from ranking.manifest import Manifest, TensorSpec
from ranking.training.dataset import USER_SIDE, Arrays, VerticalExamples
from ranking.training.model import VerticalModel
from ranking.training.parity import ParityReference, check_parity, stamp
from ranking.training.rows import RowResult

OUTPUT = "logits"
TOLERANCE = {"fp32": 1e-5, "bf16": 5e-3}
"""Largest difference of a probability; bf16 is about three times what such engines showed."""

_RUN_ERRORS = (runtime_errors.Fail, runtime_errors.InvalidArgument, runtime_errors.RuntimeException)
_SMALLEST_BUCKET = 2  # torch.export takes a size of 1 for a constant, so 1 is padded to 2.
_ODD_SIZES = (1, 3, 101, 257)
_NUM_GOLDEN = 6
_GOLDEN_LARGE = 257


class ExportError(GemcutterError, ValueError):
    """An exported model does not do what the trained one does."""


def export_bundle(dataset: LogDataset, meta: TransferMeta, row: RowResult, folder: Path) -> Bundle:
    """Export a trained row, test the file, and publish it.

    Args:
        dataset: that it was trained on.
        meta: of the transfer log it was trained on.
        row: what to ship.
        folder: where the bundle will be; must not exist.

    Raises:
        ExportError: the ONNX file differs from the trained model for some input.
        ParityError: the parts would not score as they did in training.
        BundleError: the folder is taken.
    """
    vertical = dataset.schema.vertical(row.examples.vertical)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.onnx"
        export_onnx(row.model, serving_inputs(row, num_rows=_SMALLEST_BUCKET), path)
        stamp(path, encoder_id=dataset.encoder.encoder_id, space_id=meta.space_id)
        check_onnx(path, row.model, row.examples, max_candidates=vertical.max_candidates)
        reference = ParityReference(
            model=row.model,
            examples=row.examples,
            schema=dataset.schema,
            encoder_id=meta.encoder_id,
            items=dataset.items,
        )
        check_parity(path, encoder=dataset.encoder, items=dataset.items, reference=reference)
        return write_bundle(
            folder,
            describe(dataset, meta, row),
            model=path,
            encoder=dataset.encoder,
            items=dataset.items,
            schema=dataset.folder / "schema.yaml",
            golden=golden_cases(path, row, dataset.splits.test),
        )


def export_onnx(model: VerticalModel, sample: Arrays, path: Path) -> None:
    """Write the serving half of a model with any number of candidates.

    Args:
        model: in evaluation mode.
        sample: inputs with 2 or more candidates.
        path: where to write.

    Raises:
        ExportError: the model cannot take another number of candidates than the sample's.
    """
    num_candidates = torch.export.Dim("N", min=_SMALLEST_BUCKET, max=65536)
    names = model.input_names
    shapes = tuple(None if name in USER_SIDE else {0: num_candidates} for name in names)
    with _quiet():
        try:
            program = torch.export.export(
                _Serving(model, names),
                tuple(torch.from_numpy(np.ascontiguousarray(sample[name])) for name in names),
                dynamic_shapes=(shapes,),
                strict=False,
            )
        except (torch._dynamo.exc.UserError, ValueError) as error:
            raise ExportError(f"export: cannot take any number of candidates: {error}") from error
        torch.onnx.export(
            program,
            input_names=list(names),
            output_names=[OUTPUT],
            dynamo=True,
            external_data=False,
            verbose=False,
            f=str(path),
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's remarks about itself and absent packages from the user."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
            yield
    finally:
        logger.setLevel(level)


class _Serving(nn.Module):
    """Takes inputs by place, as ONNX files do."""

    def __init__(self, model: VerticalModel, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.model.serve(dict(zip(self.names, tensors, strict=True)))


def check_onnx(
    path: Path,
    model: VerticalModel,
    examples: VerticalExamples,
    *,
    max_candidates: int,
    seed: int = 0,
) -> None:
    """Compare a file with the model for sizes and memories that the export did not see.

    Raises:
        ExportError: the first case that fails or differs, with its size and filling.
    """
    session = open_session(path)
    rng = np.random.default_rng(seed)
    slots = examples.spec.memory_length
    fills: Sequence[int] = (0, 1, slots) if "memory" in model.config.blocks else (slots,)
    for num_rows in sorted({*_ODD_SIZES, max_candidates}):
        for fill in fills:
            inputs = mix_requests(examples, num_rows, rng, fill=fill)
            where = f"{num_rows} candidates, {fill} memory entries"
            try:
                got = run_session(session, inputs)
            except _RUN_ERRORS as error:
                raise ExportError(f"{path.name}, {where}: fails with {error}") from error
            require_close(got, run_torch(model, inputs), where=f"{path.name}, {where}")


def require_close(got: FloatArray, expected: FloatArray, *, where: str) -> None:
    """Refuse logits whose probabilities differ by more than fp32 may.

    Raises:
        ExportError: with the largest difference.
    """
    if got.shape != expected.shape:
        raise ExportError(f"{where}: expected logits {expected.shape}, got {got.shape}")
    worst = float(np.abs(sigmoid(got) - sigmoid(expected)).max(initial=0.0))
    if not worst <= TOLERANCE["fp32"]:
        raise ExportError(
            f"{where}: expected probabilities within {TOLERANCE['fp32']:g} of the trained "
            f"model's, got a difference of {worst:.3g}"
        )


def open_session(path: Path) -> ort.InferenceSession:
    """Open an ONNX file on one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run_session(session: ort.InferenceSession, inputs: Arrays) -> FloatArray:
    """Give the logits of a file, (N, A); one candidate is padded to two."""
    num_rows = len(inputs["item_codes"])
    feed = {}
    for entry in session.get_inputs():
        array = inputs[entry.name]
        is_short = entry.name not in USER_SIDE and num_rows < _SMALLEST_BUCKET
        feed[entry.name] = np.repeat(array, _SMALLEST_BUCKET, axis=0) if is_short else array
    logits: FloatArray = session.run([OUTPUT], feed)[0]
    return logits[:num_rows]


def run_torch(model: VerticalModel, inputs: Arrays) -> FloatArray:
    """Give the logits of the trained model, (N, A), float32."""
    tensors = {name: torch.from_numpy(np.ascontiguousarray(inputs[name])) for name in inputs}
    with torch.inference_mode():
        logits: FloatArray = model.serve(tensors).numpy()
    return logits


def mix_requests(
    examples: VerticalExamples, num_rows: int, rng: np.random.Generator, *, fill: int
) -> Arrays:
    """Give inputs of any size: one request's user side and candidates of many.

    Args:
        examples: where to draw from.
        num_rows: candidates.
        rng: draws.
        fill: memory entries at most; the request with most of some drawn ones is taken.
    """
    masks = examples.user_side.get("memory_mask")
    drawn = rng.integers(0, len(next(iter(examples.user_side.values()))), 64)
    best = int(drawn[0] if masks is None else drawn[masks[drawn].sum(axis=1).argmax()])
    rows: IntArray = rng.integers(0, len(examples), num_rows)
    inputs: Arrays = {n: array[best : best + 1].copy() for n, array in examples.user_side.items()}
    for name, array in inputs.items():
        if name.startswith("memory_"):
            array[:, fill:] = -1 if name == "memory_match" else 0
    return inputs | {name: array[rows] for name, array in examples.row_side.items()}


def serving_inputs(row: RowResult, *, num_rows: int) -> Arrays:
    """Give a sample to export with."""
    rng = np.random.default_rng(0)
    return mix_requests(row.examples, num_rows, rng, fill=row.examples.spec.memory_length)


def golden_cases(path: Path, row: RowResult, window: tuple[int, int]) -> list[GoldenCase]:
    """Give requests of a window, one candidate, and many, with the answers of the trained model."""
    examples = row.examples
    requests = np.unique(examples.request_index[examples.rows_between(window)])
    places = np.linspace(0, len(requests) - 1, min(_NUM_GOLDEN, len(requests))).astype(int)
    chosen = [examples.request_inputs(int(request)) for request in requests[places]]
    first = chosen[0]
    chosen.append({n: array if n in USER_SIDE else array[:1] for n, array in first.items()})
    chosen.append(serving_inputs(row, num_rows=_GOLDEN_LARGE))
    session = open_session(path)
    cases = []
    for place, inputs in enumerate(chosen):
        used = {name: inputs[name] for name in row.model.input_names}
        logits = run_torch(row.model, used)
        require_close(run_session(session, used), logits, where=f"golden request {place}")
        p = calibrate(logits, examples.objectives, row.calibration)
        cases.append(GoldenCase(inputs=used, logits=logits, p=p))
    return cases


def describe(dataset: LogDataset, meta: TransferMeta, row: RowResult) -> Manifest:
    """Give the manifest of a row, its files still open."""
    examples, model = row.examples, row.model
    vertical = dataset.schema.vertical(examples.vertical)
    train = examples.rows_between(dataset.splits.vm_train)
    weights = examples.weights[train, None]
    rates = (examples.labels[train] * weights).sum(axis=0) / weights.sum()
    objectives = examples.objectives
    sample = serving_inputs(row, num_rows=_SMALLEST_BUCKET)
    return Manifest(
        schema_id=dataset.schema.schema_id,
        encoder_id=dataset.encoder.encoder_id,
        space_id=meta.space_id,
        fm_version=meta.fm_version,
        vertical=vertical.name,
        objectives=objectives,
        row=row.name,
        assembly=replace(model.spec, blocks=model.config.blocks),
        vector_dtype=meta.dtype,
        max_candidates=vertical.max_candidates,
        row_buckets=_buckets(vertical.max_candidates),
        inputs=tuple(_tensor_spec(name, sample) for name in model.input_names),
        outputs=(TensorSpec(name=OUTPUT, dtype="float32", shape=(None, len(objectives))),),
        calibration=row.calibration,
        prior=dict(zip(objectives, rates.tolist(), strict=True)),
        value_weights={name: float(name == objectives[0]) for name in objectives},
        tolerance=TOLERANCE,
        train_window_ms=dataset.splits.vm_train,
        tune_window_ms=dataset.splits.tune,
        metrics={name: _values(estimates) for name, estimates in row.metrics.items()},
    )


def _buckets(max_candidates: int) -> tuple[int, ...]:
    """Powers of two below the most candidates, and those."""
    powers = [2**k for k in range(1, 20) if 2**k < max_candidates]
    return (*powers, max(max_candidates, _SMALLEST_BUCKET))


def _tensor_spec(name: str, sample: Arrays) -> TensorSpec:
    array = sample[name]
    first = array.shape[0] if name in USER_SIDE else None
    return TensorSpec(name=name, dtype=str(array.dtype), shape=(first, *array.shape[1:]))


def _values(estimates: Mapping[str, Estimate]) -> dict[str, float | None]:
    return {name: estimate.value for name, estimate in estimates.items()}
