"""The ONNX file of a trained model: written, opened, and tested against the model.

The file takes any number of candidates. That is tested with numbers of candidates and fillings of
the memory that the export never saw, because a size that got stuck in the graph shows only there.

Errors: ExportError (also ValueError), saying which case failed and by how much, or which operator
or operator set cannot be used.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as runtime_errors
from torch import Tensor, nn

from features.arrays import FloatArray, IntArray
from features.errors import GemcutterError
from ranking.calibration import sigmoid
from ranking.training.dataset import USER_SIDE, Arrays, VerticalExamples
from ranking.training.model import VerticalModel

OUTPUT = "logits"
OPSET = 20
"""Pinned, so that another version of the exporter does not ask more of the engines."""
TOLERANCE = {"fp32": 1e-5, "bf16": 5e-3}
"""Largest difference of a probability; bf16 is about three times what such engines showed."""
SMALLEST_BUCKET = 2  # torch.export takes a size of 1 for a constant, so 1 is padded to 2.

_ODD_SIZES = (1, 3, 101, 257)
_RUN_ERRORS = (runtime_errors.Fail, runtime_errors.InvalidArgument, runtime_errors.RuntimeException)
_OPEN_ERRORS = (
    *_RUN_ERRORS,
    runtime_errors.InvalidGraph,
    runtime_errors.InvalidProtobuf,
    runtime_errors.NotImplemented,
)


class ExportError(GemcutterError, ValueError):
    """An exported model does not do what the trained one does."""


def export_onnx(model: VerticalModel, sample: Arrays, path: Path) -> None:
    """Write the serving half of a model with any number of candidates.

    Args:
        model: in evaluation mode.
        sample: inputs with 2 or more candidates.
        path: where to write.

    Raises:
        ExportError: the model cannot take another number of candidates than the sample's, or has
            an operation that the pinned operator set lacks.
    """
    num_candidates = torch.export.Dim("N", min=SMALLEST_BUCKET, max=65536)
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
        try:
            torch.onnx.export(
                program,
                input_names=list(names),
                output_names=[OUTPUT],
                dynamo=True,
                external_data=False,
                verbose=False,
                opset_version=OPSET,
                f=str(path),
            )
        except torch.onnx.OnnxExporterError as error:
            raise ExportError(f"export: not in operator set {OPSET}: {_reason(error)}") from error


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


def _reason(error: BaseException) -> str:
    """Give the first cause, which names the operator; what wraps it tells how to report a bug."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error)


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
    """Open an ONNX file on one thread.

    Raises:
        ExportError: it is damaged, or of an operator set that this ONNX Runtime does not know; its
            own words name both sets.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except _OPEN_ERRORS as error:
        raise ExportError(
            f"{path.name}: ONNX Runtime {ort.__version__} cannot open it: {error}"
        ) from error


def run_session(session: ort.InferenceSession, inputs: Arrays) -> FloatArray:
    """Give the logits of a file, (N, A); one candidate is padded to two."""
    num_rows = len(inputs["item_codes"])
    feed = {}
    for entry in session.get_inputs():
        array = inputs[entry.name]
        is_short = entry.name not in USER_SIDE and num_rows < SMALLEST_BUCKET
        feed[entry.name] = np.repeat(array, SMALLEST_BUCKET, axis=0) if is_short else array
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
        fill: memory entries; those of the request with most of some drawn ones, repeated where
            they are fewer.
    """
    masks = examples.user_side.get("memory_mask")
    drawn = rng.integers(0, len(next(iter(examples.user_side.values()))), 64)
    best = int(drawn[0] if masks is None else drawn[masks[drawn].sum(axis=1).argmax()])
    rows: IntArray = rng.integers(0, len(examples), num_rows)
    inputs: Arrays = {n: array[best : best + 1].copy() for n, array in examples.user_side.items()}
    num_held = 0 if masks is None else int(masks[best].sum())
    for name, array in inputs.items():
        if name.startswith("memory_"):
            if num_held:
                array[:] = array[:, np.arange(array.shape[1]) % num_held]
            array[:, fill:] = -1 if name == "memory_match" else 0
    return inputs | {name: array[rows] for name, array in examples.row_side.items()}
