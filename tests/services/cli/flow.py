"""A whole run on the tiny log: data, foundation model, transfer log, bundle. Made once."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from rich.console import Console

from features.dataset import LogDataset, load_dataset
from features.transferlog import TransferLog
from services.cli.distil import Distilled, distil
from services.cli.offline import train_fm, write_log
from services.cli.progress import Steps
from services.cli.run_folder import RunFolder
from tests.features.tiny_log import write_tiny_log


@cache
def finished_run() -> tuple[RunFolder, LogDataset, TransferLog, Distilled]:
    run = RunFolder(Path(mkdtemp(prefix="gemcutter-test-run-")))
    write_tiny_log(run.data, num_users=12, num_items=40)
    dataset = load_dataset(run.data)
    steps = Steps(Console(quiet=True))
    with steps.step("fm", "fm") as step:
        train_fm(dataset, run.fm, recipe="quickstart", step=step)
        log = write_log(dataset, run.fm, run.transfer_log, step=step)
        distilled = distil(dataset, log, run, vertical=None, step=step)
    return run, dataset, log, distilled
