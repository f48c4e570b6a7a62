"""How many rows a second the loader delivers, beside how many the foundation model takes.

Both are measured in turn on the same batches, so that their ratio stands even on a noisy machine.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from features.dataset import LogDataset
from foundation.training import loop
from foundation.training.config import TrainConfig
from foundation.training.recipes import RECIPES


def measure(dataset: LogDataset, *, recipe: str, num_steps: int) -> list[dict[str, Any]]:
    """Take training steps, timing the making of each batch and the step on it apart.

    Args:
        dataset: the log.
        recipe: whose batches and model.
        num_steps: after a few that are not timed.
    """
    config = replace(RECIPES[recipe](), checkpoint_steps=10**9, num_threads=1)
    with TemporaryDirectory() as folder:
        load_s, step_s, num_rows = _time_steps(dataset, config, Path(folder), num_steps)
    loader, model = num_rows / np.median(load_s), num_rows / np.median(step_s)
    note = f"median of {num_steps} batches, one thread"
    return [
        {"metric": "loader_samples_per_s", "value": float(loader), "unit": "rows/s", "note": note},
        {"metric": "fm_samples_per_s", "value": float(model), "unit": "rows/s", "note": note},
        {"metric": "loader_over_fm", "value": float(loader / model), "unit": "ratio", "note": note},
    ]


def _time_steps(
    dataset: LogDataset, config: TrainConfig, out: Path, num_steps: int
) -> tuple[list[float], list[float], float]:
    """Give the seconds of each batch and step, and the rows of a batch on average."""
    run = loop.start(dataset, config, out)
    load_s, step_s, rows = [], [], []
    batches = run.batches()
    for number in range(min(num_steps + 3, len(run.plan))):
        started_s = time.perf_counter()
        batch, labels, weights = next(batches)
        loaded_s = time.perf_counter()
        run.take_step(batch, labels, weights)
        if number >= 3:  # the first ones also allocate
            load_s.append(loaded_s - started_s)
            step_s.append(time.perf_counter() - loaded_s)
            rows.append(len(batch))
    return load_s, step_s, float(np.mean(rows))
