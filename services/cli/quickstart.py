"""The whole flow in one go, with a report of everything it measured."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from features.dataset import LogDataset, load_dataset
from features.store import open_store
from features.store.local import LocalServer
from features.transferlog import TransferLog
from loadtests.traffic import logged_requests
from services.cli import offline
from services.cli.distil import Distilled, distil
from services.cli.live import Filler, RankClient, Ranker, make_worker, running_ranker
from services.cli.loadtest import LoadPlan, load_with_fault
from services.cli.machine import commit, describe_machine
from services.cli.progress import Steps
from services.cli.replay import check_parity, replay_with_worker
from services.cli.report.basket import choose_basket
from services.cli.report.page import render_page
from services.cli.report.results import record
from services.cli.report.summary import print_summary
from services.cli.run_folder import RunFolder

PARITY_ROWS = 1000
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class QuickstartConfig:
    """What to run.

    Attributes:
        out: run folder.
        households: of the cut; None for all.
        cut: how negatives are drawn, "hard" or "uniform".
        recipe: of the foundation model.
        is_recorded: append the figures to docs/results.
    """

    out: Path
    households: int | None
    cut: Any
    recipe: str
    is_recorded: bool


def run_quickstart(config: QuickstartConfig, console: Console) -> Json:
    """Run every step, write the report, and give it."""
    run, steps = RunFolder(config.out), Steps(console)
    run.root.mkdir(parents=True, exist_ok=True)
    with steps.step("data", "Complete Journey log") as step:
        offline.build_data(run.data, households=config.households, cut=config.cut, step=step)
        dataset = load_dataset(run.data)
    report: Json = {
        "format": 1,
        "title": "quick start on Complete Journey",
        "created_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "command": "gemcutter quickstart",
        "machine": describe_machine(),
        "schema_id": dataset.schema.schema_id,
        "data": offline.describe_data(dataset, households=config.households, cut=config.cut),
    }
    with steps.step("train", "foundation model, one pass in time order") as step:
        report["fm"] = offline.train_fm(dataset, run.fm, recipe=config.recipe, step=step)
    with steps.step("transfer_log", "transfer log from the frozen model") as step:
        log = offline.write_log(dataset, run.fm, run.transfer_log, step=step)
    with steps.step("baselines", "baselines and the foundation model on the test weeks"):
        report["fm"] |= offline.evaluate_fm(dataset, log)
        report["baselines"] = offline.evaluate_baselines(dataset)
    with steps.step("verticals", "vertical models") as step:
        distilled = distil(dataset, log, run, vertical=None, step=step)
    report |= {"space_id": log.meta.space_id, "verticals": distilled.rows_json()}
    report["bundle"] = distilled.bundle_json()
    _live(run, steps, dataset=dataset, log=log, distilled=distilled, report=report)
    report["seconds"] = steps.seconds
    run.report_json.write_text(json.dumps(report, indent=1, allow_nan=False), encoding="utf-8")
    run.report_html.write_text(render_page(report), encoding="utf-8")
    if config.is_recorded:
        record(report)
    print_summary(report, run, console)
    return report


def _live(
    run: RunFolder,
    steps: Steps,
    *,
    dataset: LogDataset,
    log: TransferLog,
    distilled: Distilled,
    report: Json,
) -> None:
    """Serve, compare, replay, load; adds to the report."""
    test_start_ms, test_end_ms = dataset.splits.test
    vertical = dataset.schema.vertical(distilled.vertical)
    requests = logged_requests(run.data, vertical.name, start_ms=test_start_ms, end_ms=test_end_ms)
    with _serving(run, steps) as (server, ranker), closing(open_store(server.url)) as store:
        report["bundle"]["engine"] = ranker.engine
        filler = Filler(dataset, log, vertical, store)
        client = RankClient(ranker.grpc_address)
        with steps.step("parity", "offline and online on the same rows") as step:
            report["parity"] = check_parity(
                client,
                filler,
                requests,
                offline_p=distilled.test_p,
                offline_ids=distilled.test_ids,
                num_rows=PARITY_ROWS,
                step=step,
            ) | {"tolerance": distilled.tolerance(ranker.engine)}
        with steps.step("replay", "test weeks as live requests, the worker keeping up") as step:
            filler.refill(test_start_ms)
            letters = run.logs / "deadletter.jsonl"
            worker = make_worker(filler, run.fm, from_ms=test_start_ms, dead_letters=letters)
            report["replay"], answers = replay_with_worker(
                client, worker, requests, dataset=dataset, step=step
            )
        report["basket"] = choose_basket(dataset, answers)
        client.close()
        with steps.step("load", "load test; half-way the worker dies and the store is emptied"):
            plan = LoadPlan(vertical=vertical.name, window_ms=(test_start_ms, test_end_ms))
            report["load"] = load_with_fault(
                run, plan, ranker=ranker, server=server, budget_ms=vertical.latency_budget_ms
            )


@contextmanager
def _serving(run: RunFolder, steps: Steps) -> Iterator[tuple[LocalServer, Ranker]]:
    with LocalServer.start(log_folder=run.logs) as server:
        with steps.step("serve", "store and ranker"):
            context = running_ranker(run.bundle, server.url, log=run.logs / "ranker.log")
            ranker = context.__enter__()
        try:
            yield server, ranker
        finally:
            context.__exit__(None, None, None)
