"""What `gemcutter data check` prints and writes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from features.datacheck import DataReport, check_dataset
from features.datacheck.report import LeakReport
from features.errors import DataError
from features.files import write_whole
from services.cli.progress import Steps

PAGE = "data-check.html"

_MAX_SINGLE = 5


def print_check(
    folder: Path, console: Console, *, as_json: bool, page: Path | None, notes: Console
) -> int:
    """Check a log folder, print the report, write the page, and give the exit code.

    Args:
        folder: of the log, or its schema.yaml.
        console: for the report.
        as_json: print it as JSON.
        page: where the page goes; None puts it into the folder.
        notes: for progress, and for where the page is.

    Raises:
        DataError: a file that is not schema.yaml was named.
    """
    if folder.suffix in {".yaml", ".yml"}:
        if folder.name != "schema.yaml":
            raise DataError(f"{folder}: expected a log folder or its schema.yaml")
        folder = folder.parent
    with Steps(notes).step("check", f"checking {folder}") as step:
        report = check_dataset(folder, progress=step.count)
    if as_json:
        console.print_json(data=dataclasses.asdict(report))
    else:
        print_report(report, console)
    if page is not None or folder.is_dir():
        _write_page(report, page or folder / PAGE, notes)
    return 1 if report.errors else 0


def print_report(report: DataReport, console: Console) -> None:
    """Print a report for a person."""
    if report.num_impressions:
        _print_figures(report, console)
    for warning in report.warnings:
        console.print(f"[yellow]warning[/yellow] {escape(warning)}", highlight=False)
    for error in report.errors:
        console.print(f"[red]error[/red] {escape(error)}", highlight=False)
    console.print("[red]not trainable[/red]" if report.errors else "[green]trainable[/green]")


def _write_page(report: DataReport, page: Path, notes: Console) -> None:
    try:
        # matplotlib comes with the extra `quickstart`; the figures need nothing.
        from services.cli.datacheckpage import render_check
    except ImportError as error:
        notes.print(f"no page is written: {escape(str(error))}; install gemcutter\\[quickstart]")
        return
    try:
        write_whole(page, render_check(report).encode())
    except OSError as error:
        notes.print(f"no page is written: {escape(str(error))}; --page puts it elsewhere")
        return
    notes.print(f"report with plots: {escape(str(page))}", highlight=False, soft_wrap=True)


def _print_figures(report: DataReport, console: Console) -> None:
    console.print(
        f"{escape(report.folder)}: {report.num_impressions:,} impressions in "
        f"{report.num_requests:,} requests, {report.num_users:,} users, {report.num_items:,} "
        f"items, {report.span.first} to {report.span.last}, schema {report.schema_id}",
        highlight=False,
    )
    for name, rows in (report.rows_by_window or {}).items():
        console.print(f"  {name:<10} {rows:>12,} impressions", highlight=False)
    for name, rows in (report.num_dropped or {}).items():
        text = f"left out: their label of {escape(name)} is missing or not 0 or 1"
        console.print(f"  {'':<10} {rows:>12,} {text}", highlight=False)
    _print_labels(report, console)
    _print_features(report, console)
    _print_sources(report, console)
    if report.leaks is not None:
        _print_leaks(report.leaks, console)


def _print_labels(report: DataReport, console: Console) -> None:
    labels = Table("window", "surface", "objective", "rows", "positive", "rate")
    for rate in report.label_rates:
        cells = (rate.window, escape(rate.surface) or "all", escape(rate.objective))
        counts = (f"{rate.num_rows:,}", f"{rate.num_positive:,}")
        labels.add_row(*cells, *counts, _frac(rate.rate_frac))
    console.print(labels)


def _print_features(report: DataReport, console: Console) -> None:
    shares = Table("of", "feature", "codes", "null", "unknown", "unseen in test")
    ids = (("user", report.unseen.user_frac), ("item", report.unseen.item_frac))
    for owner, unseen_frac in ids:
        shares.add_row(owner, "(its id)", "", "", "", _frac(unseen_frac))
    for share in report.features:
        named = (escape(share.of), escape(share.feature), f"{share.num_codes:,}")
        fracs = (share.null_frac, share.unknown_frac, share.unseen_frac)
        shares.add_row(*named, *map(_frac, fracs))
    console.print(shares)
    nulls = Table("table", "column", "rows", "null", "share", "clipped")
    for one in report.columns:
        if one.num_null or one.num_clipped:
            counts = (f"{one.num_null:,}", _frac(one.null_frac), f"{one.num_clipped:,}")
            nulls.add_row(escape(one.table), escape(one.column), f"{one.num_rows:,}", *counts)
    if nulls.row_count:
        console.print(nulls)


def _print_sources(report: DataReport, console: Console) -> None:
    sources = Table("source", "events", "users", "visible at test impressions")
    for source in report.sources:
        lengths = ", ".join(f"{name} {n:g}" for name, n in source.visible_at_test.items())
        sizes = (f"{source.num_events:,}", f"{source.num_users:,}")
        sources.add_row(escape(source.source), *sizes, lengths)
    console.print(sources)
    clocks = Table("source", "late", "early", "after the last impression", "repeated", "delay, ms")
    for source in report.sources:
        clock = source.clock
        counts = tuple(f"{n:,}" for n in (clock.num_late, clock.num_early, clock.num_after))
        delays = ", ".join(f"{name} {ms:,}" for name, ms in clock.delay_ms.items())
        repeated = f"{source.repeats.num_exact:,}"
        clocks.add_row(escape(source.source), *counts, repeated, delays)
    console.print(clocks)


def _print_leaks(leaks: LeakReport, console: Console) -> None:
    console.print(
        f"leak test: {leaks.num_rebuilt:,} histories built again from what was known, "
        f"{leaks.num_different:,} different; single features on {leaks.num_rows:,} impressions:",
        highlight=False,
    )
    singles = Table("objective", "of", "feature alone", "AUC", "NE")
    for objective in dict.fromkeys(one.objective for one in leaks.features):
        of_objective = [one for one in leaks.features if one.objective == objective]
        for one in of_objective[:_MAX_SINGLE]:
            named = (escape(objective), escape(one.of), escape(one.feature))
            singles.add_row(*named, _frac(one.auc), _frac(one.ne))
    console.print(singles)


def _frac(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
