"""From a transfer log to a bundle: train the vertical rows, choose on the tune window, export."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from features.arrays import FloatArray, IntArray
from features.dataset import LogDataset
from features.transferlog import TransferLog
from ranking.bundle import Bundle
from ranking.training.export import export_bundle
from ranking.training.recipes import quickstart
from ranking.training.rows import RowResult, train_rows
from services.cli.offline import estimate_json, open_dataset, to_json, write_log
from services.cli.progress import Step, Steps
from services.cli.run_folder import RunFolder

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Distilled:
    """The trained rows and the bundle of the one that serves."""

    rows: list[RowResult]
    served: RowResult
    bundle: Bundle
    test_window_ms: tuple[int, int]

    @property
    def vertical(self) -> str:
        """Whom the bundle serves."""
        return self.bundle.manifest.vertical

    @property
    def test_ids(self) -> IntArray:
        """Impressions of the test window, (N,)."""
        examples = self.served.examples
        return examples.example_ids[examples.rows_between(self.test_window_ms)]

    @property
    def test_p(self) -> dict[str, FloatArray]:
        """The served row's calibrated probabilities of them, by objective."""
        names = self.bundle.manifest.objectives
        return {name: self.served.test_p[:, place] for place, name in enumerate(names)}

    def tolerance(self, engine: str) -> float:
        """The difference from offline that the bundle allows an engine."""
        precision = "bf16" if "bf16" in engine else "fp32"
        return self.bundle.manifest.tolerance[precision]

    def rows_json(self) -> list[Json]:
        """Give every row's figures, ranked objective first."""
        return [_row_json(row, self.bundle.manifest.objectives[0]) for row in self.rows]

    def bundle_json(self) -> Json:
        """Give which bundle serves."""
        manifest = self.bundle.manifest
        return {
            "id": manifest.bundle_id,
            "row": manifest.row,
            "vertical": manifest.vertical,
            "tolerance": dict(manifest.tolerance),
            "bytes": sum(p.stat().st_size for p in self.bundle.folder.rglob("*") if p.is_file()),
        }


def distil(
    dataset: LogDataset, log: TransferLog, run: RunFolder, *, vertical: str | None, step: Step
) -> Distilled:
    """Train every row, export the one with the best tune NE, and give both.

    The test window takes no part in the choice.
    """
    name = vertical or dataset.schema.verticals[0].name
    rows = train_rows(dataset, log, quickstart(name), progress=step.advance)
    served = min(rows, key=lambda row: min(row.tune_ne))
    shutil.rmtree(run.bundle, ignore_errors=True)
    bundle = export_bundle(dataset, log.meta, served, run.bundle)
    return Distilled(rows=rows, served=served, bundle=bundle, test_window_ms=dataset.splits.test)


def run_transfer(
    data: Path, fm: Path, out: Path, *, vertical: str | None, console: Console
) -> None:
    """Write the log, distil, and print the rows."""
    run, steps = RunFolder(out), Steps(console)
    dataset = open_dataset(data, steps)
    with steps.step("transfer_log", "transfer log from the frozen model") as step:
        log = write_log(dataset, fm, run.transfer_log, step=step)
    with steps.step("verticals", "vertical models") as step:
        distilled = distil(dataset, log, run, vertical=vertical, step=step)
    _print_rows(distilled, run, console)


def _print_rows(distilled: Distilled, run: RunFolder, console: Console) -> None:
    objective = distilled.bundle.manifest.objectives[0]
    table = Table("model", title=f"objective {objective}: NE, 1 predicts the base rate")
    for name in ("tune", "test", "transfer ratio"):
        table.add_column(name, justify="right")
    fm = distilled.served.fm_metrics[objective]["ne"]
    table.add_row("foundation model", "", _digits(fm.value), "1")
    for row in distilled.rows:
        table.add_row(
            row.name,
            _digits(min(row.tune_ne)),
            _digits(row.metrics[objective]["ne"].value),
            _digits(row.transfer_ratio[objective]),
            style="bold" if row is distilled.served else None,
        )
    console.print(table)
    console.print(
        f"bundle {distilled.bundle.manifest.bundle_id} in {run.bundle} serves "
        f"{distilled.served.name}, which has the lowest NE on the tune window."
    )
    if "solaris" not in distilled.served.name:
        console.print("It reads no pair vectors: its answers say `default` for every candidate.")


def _digits(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"


def _row_json(row: RowResult, objective: str) -> Json:
    return {
        "row": row.name,
        "test": to_json(row.metrics),
        "transfer_ratio": row.transfer_ratio[objective],
        "transfer_ratios": dict(row.transfer_ratio),
        "ne_difference_to_base": {
            name: estimate_json(estimate) for name, estimate in row.ne_difference.items()
        },
        "tune_ne": min(row.tune_ne),
        "passes": len(row.tune_ne),
        "wall_s": row.wall_s,
    }
