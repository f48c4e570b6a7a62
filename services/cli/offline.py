"""The offline steps of a run: data, foundation model, transfer log, and what they measure."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from features.arrays import FloatArray
from features.dataset import LogDataset, load_dataset
from features.errors import DataError
from features.log import Impressions
from features.metrics import Estimate, evaluate
from features.transferlog import RowKind, TransferLog, read_transfer_log
from foundation.baselines.popularity import CountsBaseline, CountsConfig
from foundation.datasets.complete_journey import build_complete_journey
from foundation.datasets.complete_journey.sampling import Cut
from foundation.evaluation import Evaluation, evaluate_objectives, evaluate_surfaces
from foundation.frozen import FrozenFm
from foundation.training.loop import train
from foundation.training.recipes import RECIPES
from foundation.transfer import write_transfer_log
from services.cli.progress import Step, Steps

CAVEAT = (
    "Complete Journey does not say whether a household looked at the shelf or the mailer: a "
    "placement is an exposure by assumption. The package that carries the data calls it simulated "
    "and for education."
)
Json = dict[str, Any]


def build_data(out: Path, *, households: int | None, cut: Cut, step: Step) -> None:
    """Write the Complete Journey log folder."""
    build_complete_journey(
        out,
        num_households=households,
        cut=cut,
        progress=lambda what, share: step.advance(share, what),
    )


def describe_data(dataset: LogDataset, *, households: int | None, cut: str) -> Json:
    """Give what was read, for the report."""
    objective = dataset.schema.objectives[0].name
    windows = {}
    for name in ("fm_train", "vm_train", "tune", "test"):
        part = dataset.impressions.between(*getattr(dataset.splits, name))
        windows[name] = {"rows": len(part), "rate_frac": float(part.labels[objective].mean())}
    return {
        "name": dataset.schema.name,
        "cut": cut,
        "households": households,
        "num_impressions": len(dataset.impressions),
        "num_users": len(np.unique(dataset.impressions.user_keys)),
        "num_items": len(dataset.items),
        "events": {name: len(events) for name, events in dataset.events.items()},
        "windows": windows,
        "caveat": CAVEAT,
    }


def train_fm(dataset: LogDataset, out: Path, *, recipe: str, step: Step) -> Json:
    """Train the foundation model and give how it went."""
    if recipe not in RECIPES:
        raise DataError(f"--recipe: expected one of {sorted(RECIPES)}, got {recipe!r}")
    config = RECIPES[recipe]()
    result = train(
        dataset,
        config,
        out,
        progress=lambda done, total, loss: step.advance(done / total, f"loss {loss:.4f}"),
    )
    return {
        "recipe": recipe,
        "rows_trained": result.num_rows,
        "parameters": sum(p.numel() for p in result.model.parameters()),
    }


def write_log(dataset: LogDataset, fm_folder: Path, out: Path, *, step: Step) -> TransferLog:
    """Score every example with the frozen model and give the log that was written."""
    fm = FrozenFm.load(fm_folder, dataset)
    # A finished log would be continued, and every example would be in it twice.
    shutil.rmtree(out, ignore_errors=True)
    write_transfer_log(dataset, fm, out, progress=step.advance)
    return read_transfer_log(out, schema_id=dataset.schema.schema_id)


def fm_on_test(dataset: LogDataset, log: TransferLog) -> tuple[Impressions, dict[str, FloatArray]]:
    """Give the test impressions and the foundation model's probabilities for them."""
    test = dataset.impressions.between(*dataset.splits.test)
    rows = log.rows.take(log.rows.kinds == RowKind.IMPRESSION)
    order = np.argsort(rows.example_ids, kind="stable")
    places = order[np.searchsorted(rows.example_ids[order], test.example_ids)]
    return test, {name: p[places] for name, p in rows.p.items()}


def evaluate_fm(dataset: LogDataset, log: TransferLog) -> Json:
    """Give the foundation model's metrics on the test window, in all and by surface."""
    test, p = fm_on_test(dataset, log)
    return {
        "test": to_json(evaluate_objectives(p, test)),
        "by_surface": {
            name: to_json(surfaces)
            for name, surfaces in evaluate_surfaces(dataset, p, test).items()
        },
    }


def evaluate_baselines(dataset: LogDataset) -> Json:
    """Give the two counting baselines' metrics on the test window.

    They train on every window before the tune weeks, which is more than any model here sees.
    """
    splits = dataset.splits
    before = dataset.impressions.between(splits.fm_train[0], splits.vm_train[1])
    test = dataset.impressions.between(*splits.test)
    results = {}
    for name, has_history in (
        ("item popularity + placement", False),
        ("+ six history counts (trees)", True),
    ):
        config = CountsConfig(has_history=has_history)
        p = CountsBaseline(dataset, config).fit(before).score(test)
        metrics = evaluate(p, test.labels[config.objective], test.user_keys)
        results[name] = to_json({config.objective: metrics})
    return results


def to_json(evaluation: Evaluation) -> Json:
    """Give metrics as plain values."""
    return {
        outer: {name: estimate_json(estimate) for name, estimate in metrics.items()}
        for outer, metrics in evaluation.items()
    }


def estimate_json(estimate: Estimate) -> Json:
    """Give one estimate as plain values."""
    return {
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "reason": estimate.reason,
    }


def open_dataset(folder: Path, steps: Steps) -> LogDataset:
    """Read a data set folder, or its schema file's folder, showing how far it is."""
    folder = folder.parent if folder.suffix in {".yaml", ".yml"} else folder
    with steps.step("read", f"reading {folder}") as step:
        return load_dataset(folder, progress=step.count)
