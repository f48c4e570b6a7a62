"""From a trained row to a bundle: ONNX, tests of the file that was written, and golden requests.

A bundle is published only if its ONNX file gives what the trained model gives
(`ranking.training.onnxfile`), and if the parity gate (`ranking.training.parity`) finds nothing.

Errors: ExportError, ParityError, BundleError.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from features.dataset import LogDataset
from features.metrics import Estimate
from features.transferlog import TransferMeta
from ranking.bundle import Bundle, GoldenCase, write_bundle
from ranking.calibration import calibrate, correct_for_sampling
from ranking.manifest import Manifest, TensorSpec
from ranking.training.dataset import USER_SIDE, Arrays
from ranking.training.onnxfile import (
    OUTPUT,
    SMALLEST_BUCKET,
    TOLERANCE,
    check_onnx,
    export_onnx,
    mix_requests,
    open_session,
    require_close,
    run_session,
    run_torch,
)
from ranking.training.parity import ParityReference, check_parity, stamp
from ranking.training.rows import RowResult

_NUM_GOLDEN = 6
_GOLDEN_LARGE = 257


def export_bundle(
    dataset: LogDataset,
    meta: TransferMeta,
    row: RowResult,
    folder: Path,
    *,
    negative_keep_frac: float | None = None,
) -> Bundle:
    """Export a trained row, test the file, and publish it.

    Args:
        dataset: that it was trained on.
        meta: of the transfer log it was trained on.
        row: what to ship.
        folder: where the bundle will be; must not exist.
        negative_keep_frac: share of the negatives that the log kept; probabilities of the bundle,
            golden ones included, are then those of the traffic. None means all.

    Raises:
        ExportError: the ONNX file differs from the trained model for some input.
        ParityError: the parts would not score as they did in training.
        BundleError: the folder is taken.
    """
    vertical = dataset.schema.vertical(row.examples.vertical)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.onnx"
        export_onnx(row.model, serving_inputs(row, num_rows=SMALLEST_BUCKET), path)
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
        manifest = describe(dataset, meta, row, negative_keep_frac=negative_keep_frac)
        return write_bundle(
            folder,
            manifest,
            model=path,
            encoder=dataset.encoder,
            items=dataset.items,
            schema=dataset.folder / "schema.yaml",
            golden=golden_cases(path, row, dataset.splits.test, manifest=manifest),
        )


def serving_inputs(row: RowResult, *, num_rows: int) -> Arrays:
    """Give a sample to export with."""
    rng = np.random.default_rng(0)
    return mix_requests(row.examples, num_rows, rng, fill=row.examples.spec.memory_length)


def golden_cases(
    path: Path, row: RowResult, window: tuple[int, int], *, manifest: Manifest
) -> list[GoldenCase]:
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
        p = calibrate(
            logits,
            manifest.objectives,
            manifest.calibration,
            negative_keep_frac=manifest.negative_keep_frac,
        )
        cases.append(GoldenCase(inputs=used, logits=logits, p=p))
    return cases


def describe(
    dataset: LogDataset, meta: TransferMeta, row: RowResult, *, negative_keep_frac: float | None
) -> Manifest:
    """Give the manifest of a row, its files still open."""
    examples, model = row.examples, row.model
    vertical = dataset.schema.vertical(examples.vertical)
    train = examples.rows_between(dataset.splits.vm_train)
    weights = examples.weights[train, None]
    rates = (examples.labels[train] * weights).sum(axis=0, dtype=np.float64) / weights.sum()
    rates = correct_for_sampling(rates, negative_keep_frac=negative_keep_frac)
    objectives = examples.objectives
    sample = serving_inputs(row, num_rows=SMALLEST_BUCKET)
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
        negative_keep_frac=negative_keep_frac,
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
    return (*powers, max(max_candidates, SMALLEST_BUCKET))


def _tensor_spec(name: str, sample: Arrays) -> TensorSpec:
    array = sample[name]
    first = array.shape[0] if name in USER_SIDE else None
    return TensorSpec(name=name, dtype=str(array.dtype), shape=(first, *array.shape[1:]))


def _values(estimates: Mapping[str, Estimate]) -> dict[str, float | None]:
    return {name: estimate.value for name, estimate in estimates.items()}
