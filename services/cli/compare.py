"""What `gemcutter compare` does: architectures at one budget, trained in turn, in one table."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from features.errors import DataError
from foundation.comparison import (
    REFERENCE,
    RIVALS,
    Compared,
    compare_one,
    fit_to_budget,
    flops_per_sample,
    sample_batch,
)
from foundation.training.loop import Progress
from foundation.training.recipes import RECIPES
from services.cli.offline import open_dataset
from services.cli.progress import Step, Steps
from services.cli.report.results import record_rows

_METRICS = ("auc", "gauc", "ne", "calibration")


def run_compare(
    data: Path,
    out: Path,
    console: Console,
    *,
    models: Sequence[str],
    seeds: int,
    recipe: str,
    case: str | None,
) -> None:
    """Train every model for every seed, print the table, and record it under a case if given."""
    known = [REFERENCE, *RIVALS]
    if stray := sorted(set(models) - set(known)):
        raise DataError(f"--models: expected some of {known}, got {stray}")
    steps = Steps(console)
    dataset = open_dataset(data, steps)
    config = replace(RECIPES[recipe](), checkpoint_steps=10**9, num_threads=1)
    batch = sample_batch(dataset, config)
    budget = flops_per_sample(dataset, config, batch)
    console.print(f"budget: {budget / 1e6:.2f} MFLOP per sample, forward, that of {recipe}")
    found: list[Compared] = []
    for name in models:
        body = config.model.body
        if name != REFERENCE:
            body = fit_to_budget(dataset, config, name, budget=budget, batch=batch)
        for seed in range(seeds):
            run = replace(config, model=replace(config.model, body=body), seed=seed)
            folder = out / f"{name}-{seed}"
            shutil.rmtree(folder, ignore_errors=True)
            with steps.step(f"{name}-{seed}", f"{name}, seed {seed}") as step:
                one = compare_one(
                    dataset,
                    run,
                    name,
                    folder,
                    batch=batch,
                    progress=_shown(step),
                )
            found.append(one)
        if case is not None:
            command = f"gemcutter compare --models {name} --seeds {seeds} --recipe {recipe}"
            record_rows("foundation", to_rows(found[-seeds:]), case=case, command=command)
    _print(found, dataset.schema.objectives[0].name, console)


def _shown(step: Step) -> Progress:
    return lambda done, total, loss: step.advance(done / total, f"loss {loss:.4f}")


def to_rows(runs: Sequence[Compared]) -> list[dict[str, Any]]:
    """Give the runs of one model as rows of docs/results/foundation.csv.

    A value is the mean over seeds; an interval is the mean of the seeds' intervals over users, and
    the note has the spread over seeds.
    """
    first, seeds = runs[0], ",".join(str(run.seed) for run in runs)
    plain = {
        "flops_per_sample": (first.flops_per_sample, "FLOP"),
        "samples_per_s": (float(np.mean([run.samples_per_s for run in runs])), "rows/s"),
        "parameters": (float(first.num_parameters), "parameters"),
    }
    rows: list[dict[str, Any]] = [
        {"metric": f"{metric}/{first.name}", "value": value, "unit": unit, "note": str(first.body)}
        for metric, (value, unit) in plain.items()
    ]
    for objective in first.evaluation:
        for metric in _METRICS:
            found = [run.evaluation[objective][metric] for run in runs]
            values = np.array([estimate.value for estimate in found], dtype=np.float64)
            if np.isnan(values).any():
                continue
            ends = {end: _mean([getattr(e, end) for e in found]) for end in ("low", "high")}
            spread = f"; sd over seeds {np.std(values, ddof=1):.5f}" if len(runs) > 1 else ""
            unit = "frac" if metric in {"auc", "gauc"} else "ratio"
            name = f"{metric}/{objective}/{first.name}"
            row = {"metric": name, "value": float(values.mean()), "unit": unit, **ends}
            rows.append(row | {"note": f"test window{spread}"})
    return [row | {"seeds": seeds} for row in rows]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def _print(found: Sequence[Compared], objective: str, console: Console) -> None:
    table = Table("model", "seeds", "MFLOP/sample", "samples/s", *(m.upper() for m in _METRICS))
    by_name: dict[str, list[Compared]] = defaultdict(list)
    for one in found:
        by_name[one.name].append(one)
    for name, runs in by_name.items():
        cells = [name, str(len(runs)), f"{runs[0].flops_per_sample / 1e6:.2f}"]
        cells.append(f"{np.mean([run.samples_per_s for run in runs]):.0f}")
        for metric in _METRICS:
            values = [run.evaluation[objective][metric].value for run in runs]
            known = [value for value in values if value is not None]
            spread = f" ± {np.std(known, ddof=1):.4f}" if len(known) > 1 else ""
            cells.append(f"{np.mean(known):.4f}{spread}" if known else "")
        table.add_row(*cells)
    console.print(table)
