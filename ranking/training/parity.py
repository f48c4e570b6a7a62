"""The parity gate: finds by name why a shipped model would not score as it did in training.

    mode         the file draws random numbers: it was exported with dropout on
    weights      a parameter of the trained model is not in the file as it was, or the file has
                 a weight that the model lacks
    vocabulary   codes are those of another run
    fill         an item's features, or what stands for missing ones, differ from training
    scores       none of these, and yet probabilities differ

Errors: ParityError (also ValueError), whose `fault` is one of these names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import torch
from onnx import numpy_helper

from features.arrays import FloatArray
from features.encoding import Encoder
from features.entities import EntityTable
from features.errors import GemcutterError
from features.schema import Schema
from ranking.calibration import sigmoid
from ranking.training.dataset import VerticalExamples
from ranking.training.model import VerticalModel

Fault = Literal["mode", "weights", "vocabulary", "fill", "scores"]

MAX_P_DIFFERENCE = 1e-5
NUM_ROWS = 1000
_RANDOM_OPS = frozenset(
    {
        "Dropout",
        "Bernoulli",
        "RandomUniform",
        "RandomUniformLike",
        "RandomNormal",
        "RandomNormalLike",
    }
)
_NOT_SERVED = "distill_head."
_NAMED_WEIGHT = "model."  # before a parameter's name in the file; see export's `_Serving`


class ParityError(GemcutterError, ValueError):
    """What would be served differs from what was trained.

    Args:
        fault: which kind of difference.
        message: what and where.
    """

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(f"{fault}: {message}")
        self.fault = fault


@dataclass(frozen=True, kw_only=True, eq=False)
class ParityReference:
    """What was trained.

    Attributes:
        encoder_id: of the vocabularies that the training rows were encoded with.
        items: the item table of the training rows.
    """

    model: VerticalModel
    examples: VerticalExamples
    schema: Schema
    encoder_id: str
    items: EntityTable


def stamp(path: Path, *, encoder_id: str, space_id: str) -> None:
    """Write into an ONNX file which vocabularies and vectors its weights belong to."""
    file = onnx.load(str(path))
    onnx.helper.set_model_props(file, {"encoder_id": encoder_id, "space_id": space_id})
    onnx.save(file, str(path))


def check_parity(
    path: Path, *, encoder: Encoder, items: EntityTable, reference: ParityReference
) -> None:
    """Check what would be shipped against what was trained.

    Args:
        path: the ONNX file.
        encoder: vocabularies that would be shipped.
        items: item table that would be shipped.
        reference: what was trained.

    Raises:
        ParityError: with the name of the first fault found.
    """
    file = onnx.load(str(path))
    _require_mode(file, reference.model)
    _require_weights(file, reference.model)
    _require_vocabulary(file, encoder, reference.encoder_id)
    _require_fill(encoder, items, reference)
    _require_scores(path, reference)


def _require_mode(file: onnx.ModelProto, model: VerticalModel) -> None:
    if model.training:
        raise ParityError("mode", "expected a model in evaluation mode, got training mode")
    graphs = [file.graph, *file.functions]
    found = sorted({node.op_type for graph in graphs for node in graph.node} & _RANDOM_OPS)
    if found:
        raise ParityError("mode", f"expected no random operations in the file, got {found}")


def _require_weights(file: onnx.ModelProto, model: VerticalModel) -> None:
    """Look for every parameter's values; the exporter may rename and transpose, not change them.

    A weight too many is known by its name: what the exporter adds is not named as parameters are.
    """
    held = {_fingerprint(numpy_helper.to_array(tensor)) for tensor in file.graph.initializer}
    for node in file.graph.node:
        if node.op_type == "Constant":
            held |= {
                _fingerprint(numpy_helper.to_array(attribute.t))
                for attribute in node.attribute
                if attribute.HasField("t")
            }
    missing = [
        name
        for name, parameter in model.named_parameters()
        if not name.startswith(_NOT_SERVED) and _fingerprint(parameter.detach().numpy()) not in held
    ]
    if missing:
        raise ParityError("weights", f"not in the file as trained: {', '.join(missing)}")
    names = {tensor.name for tensor in file.graph.initializer}
    known = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}
    unexpected = sorted(
        name
        for name in names
        if name.startswith(_NAMED_WEIGHT) and name.removeprefix(_NAMED_WEIGHT) not in known
    )
    if unexpected:
        raise ParityError("weights", f"not in the trained model: {', '.join(unexpected)}")


def _fingerprint(values: npt.NDArray[np.generic]) -> bytes:
    return np.sort(values.astype(np.float32), axis=None).tobytes()


def _require_vocabulary(file: onnx.ModelProto, encoder: Encoder, trained_id: str) -> None:
    stamps = {entry.key: entry.value for entry in file.metadata_props}
    found = {
        "the training rows": trained_id,
        "the model file": stamps.get("encoder_id", "none"),
        "the encoder": encoder.encoder_id,
    }
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{where} {identity}" for where, identity in found.items())
        raise ParityError("vocabulary", f"expected one encoder_id, got {listed}")


def _require_fill(encoder: Encoder, items: EntityTable, reference: ParityReference) -> None:
    trained, spec = reference.items, reference.model.spec
    for name in spec.item_numeric_features:
        place = items.numeric_names.index(name)
        feature = reference.schema.feature(name)
        if feature.default is not None:
            expected = float(encoder.numeric(feature, [feature.default])[0])
            got = float(items.numeric[0, place])
            if got != expected:
                raise ParityError(
                    "fill", f"feature {name!r} of unknown items: expected {expected}, got {got}"
                )
    if not np.array_equal(items.keys, trained.keys):
        raise ParityError("fill", f"expected {len(trained)} items as trained, got {len(items)}")
    for kind in ("codes", "numeric"):
        names = items.feature_names if kind == "codes" else items.numeric_names
        differs = (getattr(items, kind) != getattr(trained, kind)).any(axis=0)
        if differs.any():
            name = names[int(np.argmax(differs))]
            raise ParityError("fill", f"feature {name!r} of items differs from training")


def _require_scores(path: Path, reference: ParityReference) -> None:
    """Score whole requests, a thousand rows or all there are, from the end of the log."""
    examples, model = reference.examples, reference.model
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    last, num_rows, worst = int(examples.request_index[-1]), 0, 0.0
    for request in range(last, -1, -1):
        inputs = examples.request_inputs(request)
        tensors = {n: torch.from_numpy(np.ascontiguousarray(a)) for n, a in inputs.items()}
        rows = len(inputs["item_codes"])
        if rows > 1:
            with torch.inference_mode():
                expected: FloatArray = model.serve(tensors).numpy()
            got = session.run(None, {name: inputs[name] for name in model.input_names})[0]
            worst = max(worst, float(np.abs(sigmoid(got) - sigmoid(expected)).max()))
            num_rows += rows
        if num_rows >= NUM_ROWS:
            break
    if not worst <= MAX_P_DIFFERENCE:
        raise ParityError(
            "scores",
            f"expected probabilities of {num_rows} rows within {MAX_P_DIFFERENCE:g}, "
            f"got a difference of {worst:.3g}",
        )
