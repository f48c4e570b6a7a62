"""What a comparison records: one row for each figure, over all seeds."""

from dataclasses import replace

import pytest

from features.metrics import Estimate
from foundation.comparison import Compared
from foundation.rivals.din import DinConfig
from services.cli.compare import to_rows


def compared(seed: int, *, auc: float | None, speed: float) -> Compared:
    ends = (None, None) if auc is None else (auc - 0.1, auc + 0.1)
    estimate = Estimate(value=auc, low=ends[0], high=ends[1], reason=None)
    return Compared(
        name="din",
        seed=seed,
        body=DinConfig(),
        num_parameters=7,
        flops_per_sample=1e6,
        samples_per_s=speed,
        evaluation={"click": dict.fromkeys(("auc", "gauc", "ne", "calibration"), estimate)},
    )


def test_a_row_is_the_mean_over_seeds_with_its_spread() -> None:
    rows = to_rows([compared(0, auc=0.7, speed=100.0), compared(1, auc=0.8, speed=300.0)])

    by_metric = {row["metric"]: row for row in rows}
    auc = by_metric["auc/click/din"]
    assert auc["value"] == pytest.approx(0.75)
    assert (auc["low"], auc["high"]) == (pytest.approx(0.65), pytest.approx(0.85))
    assert auc["seeds"] == "0,1"
    assert "sd over seeds 0.07071" in auc["note"]
    assert by_metric["samples_per_s/din"]["value"] == 200
    assert "DinConfig" in by_metric["flops_per_sample/din"]["note"]


def test_a_figure_that_is_undefined_has_no_row() -> None:
    one = compared(0, auc=0.7, speed=1.0)
    undefined = replace(one, evaluation=compared(0, auc=None, speed=1.0).evaluation)

    metrics = {row["metric"] for row in to_rows([undefined])}
    assert metrics == {"flops_per_sample/din", "samples_per_s/din", "parameters/din"}
