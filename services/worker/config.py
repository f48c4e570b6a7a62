"""Settings of the worker process: command line and environment, read once, into one object."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

STORE_VARIABLE = "GEMCUTTER_STORE"
SPLITS = ("fm_train", "vm_train", "tune", "test")

_DESCRIPTION = """\
Reads events, lets the foundation model look at each, and keeps its vectors in the store:
LoopFM memories of what users did, SOLARIS pairs of users with the items they were asked about,
and vectors of items. The ranker only reads them; it goes on without this process.
"""

_EPILOG = """\
commit order
  poll, decode, remember, score, store acknowledged, dead letters on disk, commit.
  A position is committed only when its vectors are in the store, so a kill at any moment costs a
  repeat and never an event; repeats change nothing.

files in --state
  position-<store>.json  how far everything has been dealt with, for this store as it is now: one
                         that was emptied or replaced has another name, and the worker starts over
  deadletter.jsonl       records that could not be used, each with its reason

output
  stdout: one JSON line when the worker starts. stderr: JSON log lines.

exit codes
  0  the source ended, or SIGTERM or SIGINT came and the batch in hand was committed
  2  the command line is wrong
  3  the data set, the foundation model or their agreement is refused
  4  the source of events, its position or the dead letters failed
  5  the store failed for longer than --store-patience-s

examples
  python -m services.worker.main --dataset mydata --fm runs/my/fm --store redis://localhost \\
      --from test                           # replay the test weeks of a log as if they were now
  python -m services.worker.main --dataset mydata --fm runs/my/fm --store redis://localhost \\
      --events events.jsonl --follow        # follow an event file that grows
"""


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """Everything the process was told.

    Attributes:
        start, end: Unix ms, the name of a split, or None; see --from and --until.
    """

    dataset: Path
    fm: Path
    store: str
    state: Path
    vertical: str | None = None
    events: Path | None = None
    start: int | str | None = None
    end: int | str | None = None
    is_following: bool = False
    prometheus_port: int | None = None
    max_events: int = 256
    max_rows: int = 512
    max_tokens: int = 65_536
    store_patience_s: int = 120

    def shown(self) -> dict[str, Any]:
        """Give the settings for a log line, without the store's password."""
        values = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in asdict(self).items()
        }
        return values | {"store": mask_password(self.store)}


def mask_password(url: str) -> str:
    """Give a store URL with any password replaced."""
    return re.sub(r"(?<=://)([^/@]*):[^/@]*@", r"\1:***@", url)


def parse_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> WorkerSettings:
    """Give the settings of a command line; ends the process with code 2 where it is wrong."""
    parser = _parser()
    options = parser.parse_args(arguments)
    store = options.store or environment.get(STORE_VARIABLE)
    if not store:
        parser.error(f"--store: give a store URL here or in {STORE_VARIABLE}")
    state = options.state or options.fm / "worker"
    return WorkerSettings(**{**vars(options), "store": store, "state": state})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m services.worker.main",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for title, options in _OPTIONS.items():
        group = parser.add_argument_group(title)
        for flag, (details, text) in options.items():
            group.add_argument(flag, help=text, **details)
    return parser


def _moment(text: str) -> int | str:
    if text in SPLITS:
        return text
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(
        f"expected Unix milliseconds or one of {', '.join(SPLITS)}, got {text!r}"
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of 1 or more, got {text!r}")
    return int(text)


# Group, then flag, then how argparse takes it and what --help says.
_OPTIONS: dict[str, dict[str, tuple[dict[str, Any], str]]] = {
    "what to work on": {
        "--dataset": (
            {"type": Path, "required": True, "metavar": "DIR"},
            "log folder with schema.yaml and splits.yaml",
        ),
        "--fm": (
            {"type": Path, "required": True, "metavar": "DIR"},
            "frozen foundation model, trained on that log",
        ),
        "--store": (
            {"metavar": "URL"},
            f"redis://, rediss:// or unix:// URL; {STORE_VARIABLE} where not given, which keeps a "
            "password out of the process list",
        ),
        "--vertical": (
            {"metavar": "NAME"},
            "vertical whose memory source, lengths and lifetimes hold; default: the schema's first",
        ),
    },
    "which events": {
        "--events": (
            {"type": Path, "metavar": "FILE"},
            "JSON-lines event file instead of the log's own events and requests",
        ),
        "--from": (
            {"dest": "start", "type": _moment, "metavar": "WHEN"},
            f"replay the log from here, everything older is history: Unix ms, or a split "
            f"({', '.join(SPLITS)}) for its start; default: test. With --events: what of the log "
            "is history already; default: all of it",
        ),
        "--until": (
            {"dest": "end", "type": _moment, "metavar": "WHEN"},
            "end of the replay, exclusive: Unix ms, or a split for its end; default: the end of "
            "the log",
        ),
        "--follow": (
            {"dest": "is_following", "action": "store_true"},
            "wait for more at the end instead of exiting",
        ),
    },
    "how": {
        "--state": (
            {"type": Path, "metavar": "DIR"},
            "where position and dead letters are kept; default: worker/ in --fm",
        ),
        "--store-patience-s": (
            {"type": _positive, "default": 120, "metavar": "S"},
            "how long a write is tried again while the store is away (default: 120)",
        ),
        "--prometheus-port": (
            {"type": int, "metavar": "PORT"},
            "serve /metrics here; 0 takes a free port; default: off",
        ),
        "--max-events": (
            {"type": _positive, "default": 256, "metavar": "N"},
            "records scored, stored and committed together (default: 256)",
        ),
        "--max-rows": (
            {"type": _positive, "default": 512, "metavar": "N"},
            "examples in one pass of the model (default: 512)",
        ),
        "--max-tokens": (
            {"type": _positive, "default": 65_536, "metavar": "N"},
            "examples times their events in one pass (default: 65536)",
        ),
    },
}
