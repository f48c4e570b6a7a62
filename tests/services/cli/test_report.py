"""The page and the rows hold what the report says, and escape what came from data."""

import copy
from pathlib import Path
from typing import Any

import pytest

from features.results import append_results, current_results
from services.cli.report.page import render_page
from services.cli.report.results import quickstart_rows

Json = dict[str, Any]


def estimate(value: float) -> Json:
    return {"value": value, "low": value - 0.01, "high": value + 0.01, "reason": None}


def metrics(ne: float, auc: float) -> Json:
    values = {"ne": ne, "auc": auc, "gauc": auc, "calibration": 1.0}
    return {name: estimate(value) for name, value in values.items()}


def vertical(name: str, ne: float, ratio: float | None) -> Json:
    return {
        "row": name,
        "test": {"purchase": metrics(ne, 0.7), "coupon_used": metrics(0.9, 0.6)},
        "transfer_ratio": ratio,
        "ne_difference_to_base": {"purchase": estimate(ne - 0.95)},
    }


@pytest.fixture
def report() -> Json:
    undefined = {
        "value": None,
        "low": None,
        "high": None,
        "reason": "the rows are all of one class",
    }
    by_surface = {"purchase": {"display": metrics(0.8, 0.8) | {"auc": undefined}}}
    return {
        "title": "test",
        "created_at": "2026-12-01T00:00:00+00:00",
        "commit": "abc",
        "command": "gemcutter quickstart",
        "machine": {"cpu": "some", "cores": 2},
        "schema_id": "s",
        "space_id": "p",
        "data": {
            "cut": "hard",
            "households": 200,
            "num_impressions": 142_708,
            "num_users": 200,
            "num_items": 5,
            "events": {"purchase": 7},
            "windows": {"test": {"rows": 3, "rate_frac": 0.18}},
            "caveat": "assumed exposure",
        },
        "fm": {
            "test": {"purchase": metrics(0.8, 0.79), "coupon_used": metrics(0.95, 0.77)},
            "by_surface": by_surface,
        },
        "baselines": {"popularity": {"purchase": metrics(0.99, 0.55)}},
        "verticals": [vertical("base", 0.95, None), vertical("kd+loopfm", 0.88, 0.47)],
        "bundle": {"row": "kd+loopfm", "engine": "onnxruntime", "id": "b"},
        "seconds": {"data": 11.5},
        **serving(),
    }


def serving() -> Json:
    counts = {"planned": 9, "ok": 8, "degraded": 1, "refused": 0, "failed": 0, "late": 0}
    phase: Json = {"p50_ms": 3.25, "p95_ms": 7.0, "p99_ms": 9.5, "p999_ms": 11.0, "counts": counts}
    phase["percentiles"] = [[0.0, 1.0], [0.5, 3.25], [0.99, 9.5]]
    line = {"rank": 1, "label": "<b>SOUP</b>", "p": 0.31, "tier": "exact pair", "bought": True}
    return {
        "parity": {"rows": 1000, "max_abs_difference": 2.5e-7, "tolerance": 1e-5},
        "replay": {
            "requests": 12,
            "tier_share": {"exact pair": 0.25, "default": 0.75},
            "metrics": {"purchase": metrics(0.88, 0.71)},
        },
        "load": {
            "rate_qps": 50.0,
            "num_candidates": 200,
            "requests": 18,
            "budget_ms": 20,
            "is_valid": True,
            "invalid_reasons": [],
            "steady": phase,
            "phases": {"before the fault": phase, "after the fault": phase},
        },
        "basket": {"user": 900, "when": "then", "lines": [line]},
    }


def test_the_page_shows_every_model_its_plots_and_the_served_row(report: Json) -> None:
    page = render_page(report)
    for text in ("142,708", "0.470", "2.50e-07", "assumed exposure", "3.2 / 9.5 ms"):
        assert text in page
    assert page.count("<svg") == 4
    assert page.count('class="served"') == 1
    assert "the rows are all of one class" in page


def test_the_page_runs_nothing_and_fetches_nothing(report: Json) -> None:
    page = render_page(report)
    assert "<script" not in page
    assert "src=" not in page
    assert "<b>SOUP</b>" not in page
    assert "&lt;b&gt;SOUP" in page


def test_every_figure_becomes_a_row_that_can_be_read_back(report: Json, tmp_path: Path) -> None:
    append_results(tmp_path / "quickstart.csv", quickstart_rows(report))
    better = copy.deepcopy(report)
    better["verticals"][1]["transfer_ratio"] = 0.5
    append_results(tmp_path / "quickstart.csv", quickstart_rows(better))
    current = current_results(tmp_path / "quickstart.csv")
    assert current["cj-hard-200", "tr/kd+loopfm"].value == 0.5
    assert current["cj-hard-200", "auc/purchase/kunlun"].value == 0.79
    assert current["cj-hard-200", "auc/purchase/kunlun"].low == pytest.approx(0.78)
    assert current["cj-hard-200", "load/p99_ms/before the fault"].value == 9.5
    assert current["cj-hard-200", "tier_share/exact pair"].value == 0.25
