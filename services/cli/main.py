"""The `gemcutter` command.

Each sub-command is one step of the flow and can be run alone; `quickstart` runs them all. Modules
of a step are imported inside its function: torch takes seconds, and help should not wait for it.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from features.errors import GemcutterError
from services.cli.layouts import BUILD_HELP, COMPLETE_JOURNEY, LayoutName, build_layout
from services.cli.world import add_world
from services.logs import silence_torch_notice

app = typer.Typer(
    help="Rank ads with what a large foundation model knows, from an event log to an endpoint.",
    epilog="Start with `gemcutter quickstart`. Every step has its own --help.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Check a log before anything is trained on it, or build the demo log.")
bundle_app = typer.Typer(help="Look into a bundle: the folder that a ranker serves from.")
app.add_typer(data_app, name="data", no_args_is_help=True)
app.add_typer(bundle_app, name="bundle", no_args_is_help=True)

Cut = Literal["hard", "uniform"]
DataDir = Annotated[
    Path, typer.Option("--data", help="Log folder with schema.yaml, splits.yaml and tables.")
]
FmDir = Annotated[Path, typer.Option("--fm", help="Folder of the foundation model.")]
RunDir = Annotated[Path, typer.Option("--run", help="Run folder that `quickstart` wrote.")]
BundleDir = Annotated[Path, typer.Option("--bundle", help="Bundle folder.")]
StoreUrl = Annotated[
    str, typer.Option("--store", help="redis://host:port, unix://path, or local to start one.")
]


@app.command()
def quickstart(
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/quickstart"),
    households: Annotated[int, typer.Option(help="Households of the cut; 0 takes all.")] = 200,
    cut: Annotated[Cut, typer.Option(help="Negatives that sell (hard), or evenly drawn.")] = "hard",
    recipe: Annotated[str, typer.Option(help="quickstart or full.")] = "quickstart",
    is_recorded: Annotated[
        bool, typer.Option("--record", help="Append the figures to docs/results.")
    ] = False,
) -> None:
    """Run the whole flow on real data: log, foundation model, vertical, store, ranker, report.

    About ten minutes on two cores. Training goes on where an interrupted run stopped; everything
    else is made anew. Delete the run folder to start over.
    """
    from services.cli.quickstart import QuickstartConfig, run_quickstart

    config = QuickstartConfig(
        out=out, households=households or None, cut=cut, recipe=recipe, is_recorded=is_recorded
    )
    run_quickstart(config, Console())


@data_app.command("check")
def data_check(
    folder: Annotated[Path, typer.Argument(help="Log folder, or its schema.yaml.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    page: Annotated[
        Path | None, typer.Option(help="Page with plots; default: data-check.html in the folder.")
    ] = None,
) -> None:
    """Read a log as training would and say what is in it, or what is wrong and where.

    The report is printed, and written as one page with plots. Exit code 0 only when the log can
    be trained on: a likely leak counts as an error.
    """
    from services.cli.datacheck import print_check

    notes = Console(stderr=True)
    raise typer.Exit(print_check(folder, Console(), as_json=as_json, page=page, notes=notes))


@data_app.command("init")
def data_init(
    files: Annotated[
        list[Path], typer.Argument(help="CSV, Parquet or Arrow files, or folders of one table's.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the draft; default: the one of the files.")
    ] = None,
) -> None:
    """Draft schema.yaml and splits.yaml from your files, with a comment on every guess.

    What cannot be told from the files is marked TODO, and nothing loads while one is left.
    Nothing is overwritten.
    """
    from services.cli.datainit import write_draft

    write_draft(files, out, Console())


@data_app.command("build", help=BUILD_HELP)
def data_build(
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    layout: Annotated[LayoutName, typer.Option(help="Whose files; see above.")] = COMPLETE_JOURNEY,
    raw: Annotated[
        Path | None, typer.Option(help="Folder with the public files; not for complete-journey.")
    ] = None,
    households: Annotated[
        int | None, typer.Option(help="Of complete-journey; 0 takes all 2,469. Default: 200.")
    ] = None,
    cut: Annotated[
        Cut | None, typer.Option(help="Of complete-journey: hard (default) or uniform negatives.")
    ] = None,
) -> None:
    """Build a log folder from Complete Journey or from a user's copy of a public data set."""
    from services.cli.progress import Steps

    console = Console()
    with Steps(console).step("data", f"building {out}") as step:
        if layout == COMPLETE_JOURNEY:
            if raw is not None:
                raise typer.BadParameter("--raw is for the other layouts; this one is a package")
            from services.cli.offline import build_data

            num_households = 200 if households is None else households
            build_data(out, households=num_households or None, cut=cut or "hard", step=step)
            return
        if households is not None or cut is not None:
            raise typer.BadParameter("--households and --cut are for --layout complete-journey")
        report = build_layout(layout, raw, out, step=step)
    console.print_json(data=report)


@data_app.command("bench-ingest")
def data_bench_ingest(
    out: Annotated[Path, typer.Option(help="Folder for the made-up log, removed afterwards.")],
    impressions: Annotated[int, typer.Option(help="And as many events of each source.")] = (
        2_000_000
    ),
    is_recorded: Annotated[
        bool, typer.Option("--record", help="Append the figures to docs/results/data.csv.")
    ] = False,
) -> None:
    """Measure how fast, and in how much memory, a large log of five sources is read."""
    from services.cli.ingestbench import run, to_rows
    from services.cli.progress import Steps
    from services.cli.report.results import record_rows

    console = Console()
    with Steps(console).step("ingest", f"{impressions:,} impressions, 5 sources") as step:
        figures = run(out, num_impressions=impressions, tell=step.count)
    rows = to_rows(figures)
    console.print_json(data={row["metric"]: row["value"] for row in rows})
    if is_recorded:
        command = f"gemcutter data bench-ingest --impressions {impressions}"
        record_rows("data", rows, case=f"ingest-{impressions // 10**6}m", command=command)


@data_app.command("bench-loader")
def data_bench_loader(
    data: DataDir,
    recipe: Annotated[str, typer.Option(help="quickstart or full.")] = "quickstart",
    steps: Annotated[int, typer.Option(help="Batches to time.")] = 60,
    is_recorded: Annotated[
        bool, typer.Option("--record", help="Append the figures to docs/results/data.csv.")
    ] = False,
) -> None:
    """Measure how fast batches are made, beside how fast the foundation model trains on them."""
    from services.cli.loaderbench import measure
    from services.cli.offline import open_dataset
    from services.cli.progress import Steps
    from services.cli.report.results import record_rows

    console = Console()
    dataset = open_dataset(data, Steps(console))
    rows = measure(dataset, recipe=recipe, num_steps=steps)
    console.print_json(data={row["metric"]: row["value"] for row in rows})
    if is_recorded:
        command = f"gemcutter data bench-loader --recipe {recipe} --steps {steps}"
        record_rows("data", rows, case="cj", command=command)


@app.command()
def train(
    data: DataDir,
    out: Annotated[Path, typer.Option(help="Folder for checkpoints and the final model.")],
    recipe: Annotated[
        str, typer.Option(help="quickstart, full, or your own in foundation/training/recipes.py.")
    ] = "quickstart",
) -> None:
    """Train the foundation model: one pass over its window, in time order.

    Interrupted runs go on from their newest checkpoint and end as if they had not stopped.
    """
    from services.cli.offline import open_dataset, train_fm
    from services.cli.progress import Steps

    console = Console()
    steps = Steps(console)
    dataset = open_dataset(data, steps)
    with steps.step("train", "foundation model") as step:
        console.print_json(data=train_fm(dataset, out, recipe=recipe, step=step))


@app.command()
def compare(
    data: DataDir,
    out: Annotated[Path, typer.Option(help="Folder for the runs.")],
    models: Annotated[
        str, typer.Option(help="Of kunlun, din, dcn, wukong, hstu, interformer; with commas.")
    ] = "kunlun,din,dcn,wukong,hstu,interformer",
    seeds: Annotated[int, typer.Option(help="Runs of each.")] = 1,
    recipe: Annotated[str, typer.Option(help="Whose FLOPs are the budget.")] = "quickstart",
    record: Annotated[
        str | None, typer.Option(help="Case under which to append to docs/results/foundation.csv.")
    ] = None,
) -> None:
    """Train Kunlun and its rivals on the same rows at the same FLOPs per sample, one thread each.

    All share embeddings, event encoders, match features, heads, data order and optimiser.
    """
    from services.cli.compare import run_compare

    run_compare(
        data,
        out,
        Console(),
        models=[name.strip() for name in models.split(",")],
        seeds=seeds,
        recipe=recipe,
        case=record,
    )


@app.command()
def transfer(
    data: DataDir,
    fm: FmDir,
    out: Annotated[Path, typer.Option(help="Run folder for transfer_log/, verticals/, bundle/.")],
    vertical: Annotated[str | None, typer.Option(help="Default: the schema's first.")] = None,
) -> None:
    """Write the transfer log, train the vertical models from it, and export the best as a bundle.

    The log holds the frozen model's probability and packed vector of every example, once.
    """
    from services.cli.distil import run_transfer

    run_transfer(data, fm, out, vertical=vertical, console=Console())


@app.command()
def precompute(
    data: DataDir,
    fm: FmDir,
    store: StoreUrl,
    arguments: Annotated[
        list[str] | None, typer.Argument(help="More for the worker; see -- --help.")
    ] = None,
) -> None:
    """Run the worker: score events with the foundation model and write vectors to the store."""
    from services.worker.main import main as worker

    given = ["--dataset", str(data), "--fm", str(fm), "--store", store, *(arguments or [])]
    raise typer.Exit(worker(given))


@app.command()
def serve(
    bundle: BundleDir,
    store: StoreUrl,
    grpc_port: Annotated[int, typer.Option(help="0 takes a free port.")] = 50051,
    http_port: Annotated[int, typer.Option(help="0 takes a free port.")] = 8080,
) -> None:
    """Run a ranker: gRPC and HTTP over one bundle and one store. No torch is loaded."""
    from services.ranker.main import main as ranker

    ports = ["--grpc-port", str(grpc_port), "--http-port", str(http_port)]
    raise typer.Exit(ranker(["--bundle", str(bundle), "--store", store, *ports]))


@app.command()
def up(
    run: RunDir = Path("runs/quickstart"),
    data: Annotated[
        Path | None, typer.Option(help="Log folder; default: data/ in the run folder.")
    ] = None,
    grpc_port: Annotated[int, typer.Option(help="0 takes a free port.")] = 50051,
    http_port: Annotated[int, typer.Option(help="0 takes a free port.")] = 8080,
) -> None:
    """Leave store, worker and ranker running on a finished run, until Ctrl-C.

    The run may also be one of your own: what `train` and `transfer` wrote, and its --data.
    """
    from services.cli.up import run_up

    run_up(run, data or run / "data", Console(), grpc_port=grpc_port, http_port=http_port)


@app.command()
def rank(
    user: Annotated[str, typer.Option(help="User id.")],
    items: Annotated[str, typer.Option(help="Item ids, separated by commas.")],
    vertical: Annotated[str, typer.Option(help="Vertical.")] = "shelf",
    address: Annotated[str, typer.Option(help="host:port of gRPC.")] = "localhost:50051",
    context: Annotated[
        list[str] | None, typer.Option(help="name=value, the same for every candidate.")
    ] = None,
    at_ms: Annotated[
        int | None, typer.Option(help="Moment of the request, Unix ms; default: now.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole answer.")] = False,
) -> None:
    """Ask a running ranker for one ranking and print it.

    The store of `gemcutter up` is as of the end of its log. For a log that ended long ago give
    --at-ms (the end of `test` in its splits.yaml), or everything in the store is too old to use.
    """
    from services.cli.rank import print_ranking

    print_ranking(
        user,
        [item.strip() for item in items.split(",")],
        at_ms=at_ms,
        vertical=vertical,
        address=address,
        context=dict(_pair(text) for text in context or []),
        console=Console(),
        as_json=as_json,
    )


@app.command()
def loadtest(
    run: RunDir = Path("runs/quickstart"),
    target: Annotated[
        str | None, typer.Option(help="grpc://host:port or http://host:port; default: starts one.")
    ] = None,
    rate: Annotated[float, typer.Option(help="Requests per second, Poisson.")] = 50.0,
    seconds: Annotated[float, typer.Option(help="Measured time; 5 s of warm-up come on top.")] = 20,
    candidates: Annotated[int, typer.Option(help="Candidates per request.")] = 200,
    is_recorded: Annotated[
        bool, typer.Option("--record", help="Append the figures to docs/results.")
    ] = False,
) -> None:
    """Send an open-loop load and report latency from the moment each request was due."""
    from services.cli.loadtest import run_loadtest

    run_loadtest(
        run,
        Console(),
        target=target,
        rate_qps=rate,
        duration_s=seconds,
        num_candidates=candidates,
        is_recorded=is_recorded,
    )


@bundle_app.command("show")
def bundle_show(bundle: Annotated[Path, typer.Argument(help="Bundle folder.")]) -> None:
    """Print a bundle's manifest."""
    from ranking.bundle import load_bundle

    Console().print_json(data=_plain(load_bundle(bundle).manifest))


@bundle_app.command("verify")
def bundle_verify(bundle: Annotated[Path, typer.Argument(help="Bundle folder.")]) -> None:
    """Check every hash and id of a bundle and replay its golden requests."""
    from services.cli.bundles import verify

    Console().print(verify(bundle))


add_world(app)


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise typer.BadParameter(f"expected name=value, got {text!r}")
    return name, value


def _plain(value: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(type(value)).dump_python(value, mode="json")


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main() -> None:
    """Run the command; a mistake of the user's is told in one line, without a traceback."""
    from services.cli.processes import ChildError

    silence_torch_notice()
    # By default these two end Python at once, and would leave a run's child processes behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
    try:
        app()
    except (GemcutterError, ChildError, OSError) as error:
        Console(stderr=True).print(f"[red]{type(error).__name__}[/red] {error}", highlight=False)
        sys.exit(2)


if __name__ == "__main__":
    main()
