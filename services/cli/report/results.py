"""A run's figures as rows of `docs/results`."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from features.results import ResultRow, append_results
from services.cli.machine import commit, describe_machine

RESULTS = Path("docs/results")
_UNITS = {"ne": "ratio", "auc": "frac", "gauc": "frac", "calibration": "ratio"}


def record(report: Mapping[str, Any]) -> None:
    """Append a quick start's figures to docs/results/quickstart.csv."""
    append_results(RESULTS / "quickstart.csv", quickstart_rows(report))


def quickstart_rows(report: Mapping[str, Any]) -> list[ResultRow]:
    """Give one row per figure worth comparing with a later run."""
    case = f"cj-{report['data']['cut']}-{report['data']['households'] or 'all'}"
    rows = [*_quality(report), *_serving(report)]
    return [_row(report, case=case, **row) for row in rows]


def record_load(result: Mapping[str, Any], *, case: str) -> None:
    """Append a load test's figures to docs/results/loadtests.csv."""
    record_rows("loadtests", _load_rows(result, prefix=""), case=case, command="gemcutter loadtest")


def record_rows(topic: str, rows: Iterable[Mapping[str, Any]], *, case: str, command: str) -> None:
    """Append figures of this moment, commit and machine to docs/results/<topic>.csv.

    Args:
        topic: of the file.
        rows: metric, value and unit of each; low, high and note where there are any.
        case: what was measured.
        command: how to measure it again.
    """
    head = {
        "created_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "command": command,
        "machine": describe_machine(),
    }
    found = [_row(head, case=case, **row) for row in rows]
    append_results(RESULTS / f"{topic}.csv", found)


def _quality(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    named = {f"baseline {name}": result for name, result in report["baselines"].items()}
    named["kunlun"] = report["fm"]["test"]
    named |= {f"vm {row['row']}": row["test"] for row in report["verticals"]}
    for model, result in named.items():
        for objective, metrics in result.items():
            for metric, unit in _UNITS.items():
                estimate = metrics[metric]
                if estimate["value"] is not None:
                    yield {
                        "metric": f"{metric}/{objective}/{model}",
                        "value": estimate["value"],
                        "unit": unit,
                        "low": estimate["low"],
                        "high": estimate["high"],
                    }
    for row in report["verticals"]:
        if row["transfer_ratio"] is not None:
            yield {"metric": f"tr/{row['row']}", "value": row["transfer_ratio"], "unit": "ratio"}
        change = row["ne_difference_to_base"]["purchase"]
        yield {
            "metric": f"ne_minus_base/purchase/{row['row']}",
            "value": change["value"],
            "unit": "ratio",
            "low": change["low"],
            "high": change["high"],
        }


def _serving(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    gap = report["parity"]["max_abs_difference"]
    note = f"{report['parity']['rows']} rows, {report['bundle']['engine']}"
    yield {"metric": "parity/max_abs_difference", "value": gap, "unit": "frac", "note": note}
    for name, share in report["replay"]["tier_share"].items():
        yield {"metric": f"tier_share/{name}", "value": share, "unit": "frac"}
    yield from _load_rows(report["load"], prefix="load/")
    for name, seconds in report["seconds"].items():
        yield {"metric": f"seconds/{name}", "value": seconds, "unit": "s"}


def _load_rows(load: Mapping[str, Any], *, prefix: str) -> Iterator[dict[str, Any]]:
    note = f"{load['rate_qps']:g} requests/s of {load['num_candidates']} candidates, open loop" + (
        "" if load["is_valid"] else "; client-bound: " + "; ".join(load["invalid_reasons"])
    )
    for phase, figures in load["phases"].items():
        for name in ("p50_ms", "p95_ms", "p99_ms", "p999_ms"):
            metric = f"{prefix}{name}/{phase}"
            if figures[name] is not None:
                yield {"metric": metric, "value": figures[name], "unit": "ms", "note": note}
        for name, count in figures["counts"].items():
            metric = f"{prefix}{name}/{phase}"
            yield {"metric": metric, "value": count, "unit": "requests", "note": note}


def _row(head: Mapping[str, Any], *, case: str, **figure: Any) -> ResultRow:
    """Give a row: `figure` has metric, value and unit, and low, high, seeds and note if any."""
    machine = "; ".join(f"{name} {value}" for name, value in head["machine"].items())
    return ResultRow(
        date=head["created_at"],
        commit=head["commit"],
        command=head["command"],
        machine=machine,
        config="",
        case=case,
        **({"seeds": "0"} | figure),
    )
