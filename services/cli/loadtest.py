"""Load on a ranker: the quick start's, with a fault half-way, and `gemcutter loadtest`'s."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from features.dataset import load_splits
from features.schema import load_schema
from features.store import open_store
from features.store.local import LocalServer
from loadtests.generator import Hook, run_load
from loadtests.latencies import Latencies
from loadtests.report import LoadReport, PhaseReport
from loadtests.traffic import TrafficPlan, build_requests
from protos import ranking_pb2
from services.cli.live import Filler, Ranker, running_ranker
from services.cli.offline import open_dataset
from services.cli.processes import Child
from services.cli.progress import Steps
from services.cli.report.results import record_load
from services.cli.run_folder import RunFolder

Json = dict[str, Any]
_CURVE = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """What to send.

    Attributes:
        window_ms: whose requests are sent, all as if asked at its end.
        num_candidates: in each request; the logged ones first, then others of the log.
        num_requests: different ones; they come round again.
    """

    vertical: str
    window_ms: tuple[int, int]
    num_candidates: int = 200
    num_requests: int = 500
    rate_qps: float = 50.0
    duration_s: float = 30.0
    warmup_s: float = 5.0
    deadline_ms: float = 200.0

    def requests(self, data: Path) -> list[ranking_pb2.RankRequest]:
        """Build the requests."""
        plan = TrafficPlan(
            vertical=self.vertical,
            num_requests=self.num_requests,
            num_candidates=self.num_candidates,
            start_ms=self.window_ms[0],
            end_ms=self.window_ms[1],
        )
        requests = build_requests(data, plan)
        for request in requests:
            request.at_ms = self.window_ms[1]
        return requests


def load_with_fault(
    run: RunFolder, plan: LoadPlan, *, ranker: Ranker, server: LocalServer, budget_ms: float
) -> Json:
    """Load the ranker; half-way kill the worker that feeds its store and empty the store."""
    arguments = ["--dataset", str(run.data), "--fm", str(run.fm), "--store", server.url]
    arguments += ["--from", str(plan.window_ms[1]), "--follow"]
    arguments += ["--state", str(run.root / "worker-under-load")]
    with (
        closing(open_store(server.url)) as store,
        Child("services.worker.main", arguments, log=run.logs / "worker.log") as worker,
    ):

        def fault() -> None:
            worker.kill()
            store.flush()

        report = run_load(
            f"grpc://{ranker.grpc_address}",
            plan.requests(run.data),
            rate_qps=plan.rate_qps,
            duration_s=plan.duration_s,
            warmup_s=plan.warmup_s,
            deadline_ms=plan.deadline_ms,
            hooks=[Hook(at_s=plan.duration_s / 2, name="the fault", call=fault)],
        )
    return describe(report, plan, budget_ms=budget_ms)


def describe(report: LoadReport, plan: LoadPlan, *, budget_ms: float) -> Json:
    """Give a load report as the run's report holds it."""
    return {
        "rate_qps": plan.rate_qps,
        "achieved_qps": report.achieved_qps,
        "num_candidates": plan.num_candidates,
        "requests": report.overall.planned,
        "deadline_ms": plan.deadline_ms,
        "budget_ms": budget_ms,
        "is_valid": report.is_valid,
        "invalid_reasons": list(report.invalid_reasons),
        "client_cpu_frac": report.client_cpu_frac,
        "steady": _phase(report.phases[0]),
        "phases": {phase.name: _phase(phase) for phase in report.phases},
    }


def _phase(phase: PhaseReport) -> Json:
    counts = ("planned", "ok", "degraded", "refused", "failed", "late")
    latencies = Latencies.from_dict(phase.latency)
    points = [(frac, latencies.percentile_ms(100 * frac)) for frac in _CURVE]
    return {
        **phase.latency,
        "percentiles": [[frac, ms] for frac, ms in points if ms is not None],
        "counts": {name: getattr(phase, name) for name in counts},
        "reasons": dict(phase.reasons),
    }


def run_loadtest(
    root: Path,
    console: Console,
    *,
    target: str | None,
    rate_qps: float,
    duration_s: float,
    num_candidates: int,
    is_recorded: bool,
) -> None:
    """Load a ranker of a finished run, one that runs already or one started here."""
    run = RunFolder(root)
    schema, splits = load_schema(run.data / "schema.yaml"), load_splits(run.data / "splits.yaml")
    vertical = schema.verticals[0]
    plan = LoadPlan(
        vertical=vertical.name,
        window_ms=splits.test,
        rate_qps=rate_qps,
        duration_s=duration_s,
        num_candidates=num_candidates,
    )
    requests = plan.requests(run.data)

    def load(address: str) -> LoadReport:
        console.print(f"{rate_qps:g} requests/s of {num_candidates} candidates to {address} ...")
        return run_load(
            address,
            requests,
            rate_qps=rate_qps,
            duration_s=duration_s,
            warmup_s=plan.warmup_s,
            deadline_ms=plan.deadline_ms,
        )

    if target is not None:
        report = load(target)
    else:
        with (
            LocalServer.start(log_folder=run.logs) as server,
            closing(open_store(server.url)) as store,
        ):
            Filler.of_run(run, open_dataset(run.data, Steps(console)), store).refill(splits.test[1])
            log = run.logs / "ranker.log"
            with running_ranker(run.bundle, server.url, log=log) as ranker:
                report = load(f"grpc://{ranker.grpc_address}")
    result = describe(report, plan, budget_ms=vertical.latency_budget_ms)
    (run.root / "loadtest.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    _print(result, console)
    if is_recorded:
        record_load(result, case=f"n{num_candidates}")


def _print(result: Json, console: Console) -> None:
    steady = result["steady"]
    console.print(
        f"p50 {steady['p50_ms']} ms, p95 {steady['p95_ms']} ms, p99 {steady['p99_ms']} ms, budget "
        f"{result['budget_ms']} ms; {steady['counts']}"
    )
    for reason in result["invalid_reasons"]:
        console.print(f"[yellow]the generator did not keep up:[/yellow] {reason}")
