"""Runs as functions that return one complete config."""

from __future__ import annotations

from dataclasses import replace

from ranking.training.losses import DistillConfig
from ranking.training.model import ModelConfig
from ranking.training.rows import CONTROLS, RowsConfig
from ranking.training.train import OptimiserConfig


def quickstart(vertical: str, *, seed: int = 0) -> RowsConfig:
    """All rows on a few hundred users: some 21,000 training rows, a minute on two cores.

    Chosen on the tune window of 200 households of Complete Journey, two seeds: strong dropout and
    weight decay keep a model from learning 21,000 rows by heart, and a distillation loss five times
    the label's gained 0.005 NE over an equal one.
    """
    return RowsConfig(
        vertical=vertical,
        model=ModelConfig(embedding_dim=8, memory_width=24, hidden=(64,), dropout_frac=0.4),
        optimiser=OptimiserConfig(
            learning_rate=1e-3,
            weight_decay=0.1,
            embedding_weight_decay=5.0,
            batch_requests=32,
            max_epochs=20,
            patience=5,
        ),
        distill=DistillConfig(weight=5.0),
        seed=seed,
    )


def controls(vertical: str, *, seed: int = 0) -> RowsConfig:
    """What the foundation model's vectors add to history alone, on the quick start's budget.

    For several seeds: differences between these rows are about as large as those between seeds.
    """
    return replace(quickstart(vertical, seed=seed), rows=CONTROLS)
