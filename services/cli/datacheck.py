"""What `gemcutter data check` prints."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from rich.console import Console
from rich.table import Table

from features.datacheck import DataReport, check_dataset


def print_check(folder: Path, console: Console, *, as_json: bool) -> int:
    """Check a log folder, print the report, and give the exit code."""
    if folder.suffix in {".yaml", ".yml"}:
        folder = folder.parent
    report = check_dataset(folder)
    if as_json:
        console.print_json(data=dataclasses.asdict(report))
    else:
        if report.num_impressions:
            _print_report(report, console)
        for warning in report.warnings:
            console.print(f"[yellow]warning[/yellow] {warning}", highlight=False)
        for error in report.errors:
            console.print(f"[red]error[/red] {error}", highlight=False)
        console.print("[red]not trainable[/red]" if report.errors else "[green]trainable[/green]")
    return 1 if report.errors else 0


def _print_report(report: DataReport, console: Console) -> None:
    console.print(
        f"{report.folder}: {report.num_impressions:,} impressions in {report.num_requests:,} "
        f"requests, {report.num_users:,} users, {report.num_items:,} items, "
        f"{report.span.first} to {report.span.last}, schema {report.schema_id}",
        highlight=False,
    )
    for name, rows in (report.rows_by_window or {}).items():
        console.print(f"  {name:<10} {rows:>12,} impressions", highlight=False)
    labels = Table("window", "surface", "objective", "rows", "positive", "rate")
    for rate in report.label_rates:
        cells = (rate.window, rate.surface or "all", rate.objective, f"{rate.num_rows:,}")
        labels.add_row(*cells, f"{rate.num_positive:,}", _frac(rate.rate_frac))
    console.print(labels)
    shares = Table("of", "feature", "codes", "null", "unknown")
    for share in report.features:
        named = (share.of, share.feature, f"{share.num_codes:,}")
        shares.add_row(*named, _frac(share.null_frac), _frac(share.unknown_frac))
    console.print(shares)
    sources = Table("source", "events", "users", "late", "visible at test impressions")
    for source in report.sources:
        lengths = ", ".join(f"{name} {n:g}" for name, n in source.visible_at_test.items())
        counts = (f"{source.num_events:,}", f"{source.num_users:,}", f"{source.num_late:,}")
        sources.add_row(source.source, *counts, lengths)
    console.print(sources)


def _frac(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
