"""How good a model's probabilities are: per objective, and per surface within it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from features.arrays import FloatArray
from features.dataset import LogDataset
from features.log import Impressions
from features.metrics import Estimate, evaluate
from features.schema import SURFACE

Evaluation = dict[str, dict[str, Estimate]]


def evaluate_objectives(p: Mapping[str, FloatArray], impressions: Impressions) -> Evaluation:
    """Give every metric of every objective, with intervals from resampling users.

    Shapes:
        p: objective to (N,), probabilities of the impressions.
    """
    return {
        name: evaluate(
            values,
            impressions.labels[name],
            impressions.user_keys,
            weights=impressions.weights,
        )
        for name, values in p.items()
    }


def evaluate_surfaces(
    dataset: LogDataset, p: Mapping[str, FloatArray], impressions: Impressions
) -> dict[str, Evaluation]:
    """Give the same on each surface: objective to surface to metrics."""
    codes = dataset.encoder.codes(SURFACE, dataset.schema.surfaces)
    results: dict[str, Evaluation] = {name: {} for name in p}
    for surface, code in zip(dataset.schema.surfaces, codes, strict=True):
        rows = np.flatnonzero(impressions.codes[SURFACE] == code)
        if len(rows):
            part = impressions.take(rows)
            found = evaluate_objectives({name: values[rows] for name, values in p.items()}, part)
            for name, metrics in found.items():
                results[name][surface] = metrics
    return results
