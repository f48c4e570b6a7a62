"""What a finished run says on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import HORIZONTALS
from rich.console import Console
from rich.table import Table

from services.cli.run_folder import RunFolder

METRICS = ("ne", "auc", "gauc", "calibration")


def print_summary(report: Mapping[str, Any], run: RunFolder, console: Console) -> None:
    """Print the quality table, serving figures, one basket, and what to try next."""
    _print_quality(report, console)
    _print_serving(report, console)
    _print_basket(report["basket"], console)
    console.print(f"\nreport   {run.report_html}  (figures: {run.report_json})")
    console.print("next     `make up` leaves store, worker and ranker running")
    console.print(f"         your own log: copy {run.data}/schema.yaml, see README")


def _print_quality(report: Mapping[str, Any], console: Console) -> None:
    # The interval stands below its figure: side by side they need more than 80 columns.
    title = "test weeks, objective purchase (95 % intervals over users)"
    table = Table(title=title, box=HORIZONTALS, padding=0)
    table.add_column("model")
    for name in ("NE", "AUC", "gAUC", "calibration"):
        table.add_column(name, justify="right")
    table.add_column("transfer", justify="right")
    named: list[tuple[str, Any, float | None]] = [
        (name, result, None) for name, result in report["baselines"].items()
    ]
    named.append(("foundation model", report["fm"]["test"], 1.0))
    named += [(row["row"], row["test"], row["transfer_ratio"]) for row in report["verticals"]]
    for name, result, ratio in named:
        cells = [_cell(result["purchase"].get(metric)) for metric in METRICS]
        served = name == report["bundle"]["row"]
        table.add_row(
            f"{name}\n(served)" if served else name,
            *cells,
            "" if ratio is None else f"{ratio:.2f}",
            style="bold" if served else None,
        )
    console.print(table)


def _cell(metric: Mapping[str, Any] | None) -> str:
    if metric is None or metric["value"] is None:
        return "undefined"
    if metric["low"] is None:
        return f"{metric['value']:.3f}"
    return f"{metric['value']:.3f}\n[dim]{metric['low']:.3f}-{metric['high']:.3f}[/dim]"


def _print_serving(report: Mapping[str, Any], console: Console) -> None:
    load, parity, replay = report["load"], report["parity"], report["replay"]
    for name, phase in load["phases"].items():
        counts = phase["counts"]
        console.print(
            f"{name}: p50 {_ms(phase['p50_ms'])}, p95 {_ms(phase['p95_ms'])}, "
            f"p99 {_ms(phase['p99_ms'])} ms at "
            f"{load['rate_qps']:g} requests/s of {load['num_candidates']} candidates; "
            f"{counts['ok']} ok, {counts['degraded']} degraded, {counts['failed']} failed, "
            f"{counts['refused']} refused, {counts['late']} late"
        )
        if phase["reasons"]:
            told = ", ".join(f"{reason} {n}" for reason, n in phase["reasons"].items())
            console.print(f"  of them degraded for: {told}")
    for reason in load["invalid_reasons"]:
        console.print(f"[yellow]the load generator did not keep up:[/yellow] {reason}")
    console.print(
        f"offline and online agree to {parity['max_abs_difference']:.1e} on {parity['rows']} rows "
        f"({report['bundle']['engine']})"
    )
    shares = ", ".join(f"{name} {100 * s:.0f} %" for name, s in replay["tier_share"].items())
    console.print(f"candidates by lookup tier in {replay['requests']} replayed requests: {shares}")


def _ms(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f}"


def _print_basket(basket: Mapping[str, Any], console: Console) -> None:
    table = Table(title=f"what user {basket['user']} was shown on {basket['when']}")
    for name in ("rank", "product", "p(purchase)", "vector from", "bought"):
        table.add_column(name)
    for line in basket["lines"]:
        bought = "[green]yes[/green]" if line["bought"] else ""
        p, rank = f"{line['p']:.3f}", str(line["rank"])
        table.add_row(rank, line["label"], p, line["tier"], bought)
    console.print(table)
    left = basket["num_candidates"] - len(basket["lines"])
    console.print(f"{left} more candidates; {basket['num_bought']} of all were bought")
