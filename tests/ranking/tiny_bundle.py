"""A bundle over the tiny log whose model is a few sums, so that tests know every score."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from features.arrays import FloatArray
from features.assembly import BLOCKS, AssemblySpec, RequestState, assemble
from features.dataset import LogDataset, load_dataset
from ranking.bundle import Bundle, GoldenCase, write_bundle
from ranking.calibration import Platt, calibrate
from ranking.manifest import Manifest, TensorSpec
from tests.features.tiny_log import START_MS, write_tiny_log

SPACE_ID = "00112233aabbccdd"
DIM = 4
AT_MS = START_MS + 100 * 86_400_000
PRIOR = {"click": 0.25, "order": 0.05}
CALIBRATION = {"click": Platt(slope=0.8, intercept=-0.4), "order": Platt(intercept=-1.0)}
MAX_CANDIDATES = 50
_PARTS = {"user_codes": 0.1, "item_codes": 0.03, "context_codes": 0.2, "numeric": -0.1}
_VECTORS = {"pair_z": 1.0, "memory_z": 0.5}


def tiny_dataset(folder: Path) -> LogDataset:
    return load_dataset(write_tiny_log(folder))


def tiny_logits(inputs: Mapping[str, np.ndarray]) -> FloatArray:
    total = sum(inputs[name].sum(1, keepdims=True) * part for name, part in _PARTS.items())
    total = total + inputs["pair_z"].sum(1, keepdims=True)
    total = total + 0.5 * inputs["memory_z"].sum((1, 2), keepdims=True)[:, 0]
    return np.concatenate([total, total * 0.5], axis=1).astype(np.float32)


def write_tiny_bundle(
    folder: Path,
    dataset: LogDataset,
    *,
    nan_items: Sequence[int] = (),
    golden_items: Sequence[int] = (101, 102, 103),
    version: str = "fm-1",
    blocks: frozenset[str] = BLOCKS,
) -> Bundle:
    spec = AssemblySpec.for_vertical(dataset.schema, "home", dim=DIM, blocks=blocks)
    cases = [_case(dataset, spec, golden_items[:n]) for n in (1, len(golden_items))]
    inputs = tuple(_spec(name, array) for name, array in cases[0].inputs.items())
    vertical = dataset.schema.vertical("home")
    nan_codes = dataset.items.codes[dataset.items.rows(np.array(nan_items, dtype=np.int64)), 0]
    encoder_id = dataset.encoder.encoder_id
    model = folder.parent / f"{folder.name}.onnx"
    _save_stamped(model, tiny_model(inputs, nan_codes.tolist()), encoder_id)
    manifest = Manifest(
        schema_id=dataset.schema.schema_id,
        encoder_id=encoder_id,
        space_id=SPACE_ID,
        fm_version=version,
        vertical="home",
        objectives=vertical.objectives,
        row="kd+loopfm",
        assembly=spec,
        vector_dtype="int8",
        max_candidates=MAX_CANDIDATES,
        row_buckets=(2, 8, MAX_CANDIDATES),
        inputs=inputs,
        outputs=(TensorSpec(name="logits", dtype="float32", shape=(None, 2)),),
        calibration=CALIBRATION,
        prior=PRIOR,
        value_weights={"click": 1.0, "order": 0.0},
        tolerance={"fp32": 1e-5, "bf16": 5e-3},
        train_window_ms=dataset.splits.vm_train,
        tune_window_ms=dataset.splits.tune,
        metrics={},
    )
    return write_bundle(
        folder,
        manifest,
        model=model,
        encoder=dataset.encoder,
        items=dataset.items,
        schema=dataset.folder / "schema.yaml",
        golden=cases,
    )


def _save_stamped(path: Path, file: onnx.ModelProto, encoder_id: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    helper.set_model_props(file, {"encoder_id": encoder_id, "space_id": SPACE_ID})
    onnx.save(file, str(path))


def tiny_model(inputs: Sequence[TensorSpec], nan_codes: Sequence[int]) -> onnx.ModelProto:
    nodes, terms = [], []
    names = {spec.name for spec in inputs}
    constants = {"axis_1": np.array([1]), "axes_12": np.array([1, 2]), "half": np.float32(0.5)}

    def node(kind: str, given: list[str], result: str, **options: Any) -> str:
        nodes.append(helper.make_node(kind, given, [result], **options))
        return result

    for name, part in {**_PARTS, **_VECTORS}.items():
        if name not in names:
            continue
        constants[f"{name}.part"] = np.float32(part)
        real = node("Cast", [name], f"{name}.real", to=TensorProto.FLOAT)
        is_memory = name == "memory_z"
        axes = "axes_12" if is_memory else "axis_1"
        total = node("ReduceSum", [real, axes], f"{name}.sum", keepdims=0 if is_memory else 1)
        terms.append(node("Mul", [total, f"{name}.part"], f"{name}.term"))
    click = terms[0]
    for place, term in enumerate(terms[1:]):
        click = node("Add", [click, term], f"total.{place}")
    constants |= {"first": np.array([0]), "nan": np.float32(np.nan)}
    item = node("Gather", ["item_codes", "first"], "item", axis=1)
    for code in nan_codes:
        constants[f"nan.{code}"] = np.array(code)
        is_nan = node("Equal", [item, f"nan.{code}"], f"is_nan.{code}")
        click = node("Where", [is_nan, "nan", click], f"click.{code}")
    order = node("Mul", [click, "half"], "order")
    node("Concat", [click, order], "logits", axis=1)
    graph = helper.make_graph(
        nodes,
        "tiny",
        [_value(spec) for spec in inputs],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 2])],
        [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    opset = helper.make_opsetid("", 18)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9)


def _value(spec: TensorSpec) -> onnx.ValueInfoProto:
    kind = TensorProto.INT64 if spec.dtype == "int64" else TensorProto.FLOAT
    shape = ["N" if size is None else size for size in spec.shape]
    return helper.make_tensor_value_info(spec.name, kind, shape)


def _spec(name: str, array: np.ndarray) -> TensorSpec:
    is_user = name.startswith(("user_", "memory_"))
    return TensorSpec(
        name=name, dtype=str(array.dtype), shape=(1 if is_user else None, *array.shape[1:])
    )


def _case(dataset: LogDataset, spec: AssemblySpec, items: Sequence[int]) -> GoldenCase:
    n = len(items)
    rng = np.random.default_rng(n)
    inputs = assemble(
        spec,
        dataset.items,
        user_codes=np.full(len(spec.user_features), 3),
        item_keys=np.array(items, dtype=np.int64),
        context_codes=rng.integers(1, 4, (n, len(spec.context_features))),
        numeric=np.zeros((n, len(spec.numeric_features)), dtype=np.float32),
        at_ms=AT_MS,
        state=RequestState.empty(n, DIM),
    ).inputs
    for name in {"pair_z", "memory_z"} & inputs.keys():
        inputs[name] = rng.uniform(-1, 1, inputs[name].shape).astype(np.float32)
    missing = {"pair_z": np.zeros((n, DIM)), "memory_z": np.zeros((1, 1, DIM))}
    logits = tiny_logits({**missing, **inputs})
    return GoldenCase(
        inputs=inputs, logits=logits, p=calibrate(logits, ("click", "order"), CALIBRATION)
    )
