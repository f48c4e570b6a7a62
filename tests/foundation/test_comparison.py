"""Architectures side by side: sizes that fit a budget, and figures that are a run's own."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foundation.comparison import (
    RIVALS,
    compare_one,
    fit_to_budget,
    flops_per_sample,
    sample_batch,
)
from tests.foundation.small import TRAIN, tiny_dataset


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_is_as_large_as_the_budget_lets_it_be(name: str) -> None:
    dataset = tiny_dataset()
    batch = sample_batch(dataset, TRAIN)
    budget = 400_000.0

    body = fit_to_budget(dataset, TRAIN, name, budget=budget, batch=batch)

    config = replace(TRAIN, model=replace(TRAIN.model, body=body))
    spent = flops_per_sample(dataset, config, batch)
    # HSTU grows by whole layers only.
    assert (0.5 if name == "hstu" else 0.97) * budget < spent <= budget


def test_a_budget_below_the_smallest_is_refused_with_what_it_needs() -> None:
    dataset = tiny_dataset()
    batch = sample_batch(dataset, TRAIN)

    with pytest.raises(ValueError, match=r"din: expected a budget of [\d,]+ FLOPs or more"):
        fit_to_budget(dataset, TRAIN, "din", budget=1.0, batch=batch)


def test_a_compared_run_is_a_training_run_scored_on_the_test_window(tmp_path: Path) -> None:
    dataset = tiny_dataset()
    batch = sample_batch(dataset, TRAIN)
    config = replace(TRAIN, model=replace(TRAIN.model, body=RIVALS["din"](32)))

    first = compare_one(dataset, config, "din", tmp_path / "a", batch=batch)
    again = compare_one(dataset, config, "din", tmp_path / "b", batch=batch)

    test = dataset.impressions.between(*dataset.splits.test)
    assert first.evaluation == again.evaluation
    auc = first.evaluation["click"]["auc"].value
    assert auc is not None
    assert auc > 0.6
    assert np.unique(test.labels["click"]).tolist() == [0, 1]
    assert first.samples_per_s > 0
    assert first.flops_per_sample == flops_per_sample(dataset, config, batch)
