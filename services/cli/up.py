"""Store, worker and ranker on a finished run, until they are told to stop."""

from __future__ import annotations

import json
import shlex
import time
from contextlib import closing
from pathlib import Path

from rich.console import Console

from features.store import open_store
from features.store.local import LocalServer
from loadtests.traffic import logged_requests
from services.cli.live import Filler, running_ranker
from services.cli.offline import open_dataset
from services.cli.processes import Child, ChildError
from services.cli.progress import Steps
from services.cli.run_folder import RunFolder

_WATCH_S = 1.0


def run_up(root: Path, data: Path, console: Console, *, grpc_port: int, http_port: int) -> None:
    """Start everything, print where it is, and wait.

    The store is filled as of the end of the log; the worker waits for new lines in
    `events.jsonl` of the run folder.
    """
    run = RunFolder(root)
    if not run.bundle.exists():
        raise ChildError(f"{run.bundle} is missing: run `gemcutter quickstart --out {root}` first")
    dataset = open_dataset(data, Steps(console))
    events = run.root / "events.jsonl"
    events.touch()
    with LocalServer.start(log_folder=run.logs) as server, closing(open_store(server.url)) as store:
        filler = Filler.of_run(run, dataset, store)
        console.print("filling the store ...")
        filler.refill(dataset.splits.test[1])
        worker_arguments = ["--dataset", str(data), "--fm", str(run.fm)]
        worker_arguments += ["--store", server.url, "--events", str(events), "--follow"]
        worker_arguments += ["--state", str(run.root / "worker"), "--prometheus-port", "0"]
        with (
            Child("services.worker.main", worker_arguments, log=run.logs / "worker.log") as worker,
            running_ranker(
                run.bundle,
                server.url,
                log=run.logs / "ranker.log",
                grpc_port=grpc_port,
                http_port=http_port,
            ) as ranker,
        ):
            metrics = worker.announcement["metrics"]
            for line in (
                f"store    {server.url}",
                f"worker   reads {events}, metrics {metrics}",
                f"ranker   gRPC {ranker.grpc_address}, HTTP {ranker.http_url}/docs",
                "\nTry it:\n",
                _curl(filler, ranker.http_url),
                "\nCtrl-C stops everything.",
            ):
                console.print(line, soft_wrap=True, highlight=False, markup=False)
            _wait({"worker": worker, "ranker": ranker.child})


def _curl(filler: Filler, http_url: str) -> str:
    """A request of the last test day, as a command line."""
    dataset, vertical = filler.dataset, filler.vertical
    start_ms, end_ms = dataset.splits.test
    logged = logged_requests(dataset.folder, vertical.name, start_ms=start_ms, end_ms=end_ms)[-1]
    request = logged.request
    whole_numbers = memoryview(request.candidates.item_ids_le).cast("q")
    items = [*whole_numbers, *request.candidates.item_ids_str][:5]
    columns = {c.name: list(c.texts or c.numbers) for c in request.candidates.columns}
    candidates = [
        {"item_id": item, **{name: values[place] for name, values in columns.items()}}
        for place, item in enumerate(items)
    ]
    body = {
        "user_id": request.user_id_str or request.user_id_int,
        "at_ms": end_ms,
        "context": {
            name: getattr(value, str(value.WhichOneof("kind")))
            for name, value in request.context.items()
        },
        "candidates": candidates,
    }
    url = f"{http_url}/v1/rank/{vertical.name}"
    return f"curl -s {url} -H 'content-type: application/json' -d {shlex.quote(json.dumps(body))}"


def _wait(children: dict[str, Child]) -> None:
    try:
        while True:
            for name, child in children.items():
                if not child.is_running:
                    raise ChildError(f"the {name} ended; its log is in the run folder's logs")
            time.sleep(_WATCH_S)
    except KeyboardInterrupt:
        return
