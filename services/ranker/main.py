"""The ranker process: `python -m services.ranker.main --bundle DIR --store URL`.

Prints one JSON line on standard output once it is ready, with its addresses; the log goes to
standard error. SIGTERM and SIGINT drain it and end it with 0; a second one ends it at once.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

from features.errors import GemcutterError
from services.logs import start_logging
from services.ranker.config import parse_config
from services.ranker.process import RankerProcess

_POLL_S = 0.05
_FAILED = 1
_ENDED_AT_ONCE = 130

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a ranker until it is told to stop; gives the exit code."""
    config = parse_config(arguments)
    start_logging()
    _log.info("starting", extra={"config": config.shown()})
    is_stopping = _catch_signals()
    try:
        process = RankerProcess.start(config)
    except (GemcutterError, ValueError, RuntimeError, OSError) as error:
        _log.error("cannot start", extra={"reason": str(error)})
        return _FAILED
    while not is_stopping.is_set() and not process.readiness.wait_until_ready(_POLL_S):
        pass
    if not is_stopping.is_set():
        sys.stdout.write(json.dumps(process.announcement()) + "\n")
        sys.stdout.flush()
    is_stopping.wait()
    _log.info("stopping")
    process.stop()
    _log.info("stopped")
    return 0


def _catch_signals() -> threading.Event:
    is_stopping = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if is_stopping.is_set():
            os._exit(_ENDED_AT_ONCE)
        is_stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    return is_stopping


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    # Not sys.exit: that waits for threads whose calls were cut off at the end of the grace.
    os._exit(code)
