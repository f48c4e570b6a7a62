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
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType

from features.errors import GemcutterError
from services.lifeline import end_with_owner
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
    signals = _Signals.catch()
    end_with_owner()
    try:
        process = RankerProcess.start(config)
    except (GemcutterError, ValueError, RuntimeError, OSError) as error:
        _log.error("cannot start", extra={"reason": str(error)})
        return _FAILED
    while not signals.count and not process.readiness.wait_until_ready(_POLL_S):
        pass
    if not signals.count:
        sys.stdout.write(json.dumps(process.announcement()) + "\n")
        sys.stdout.flush()
    while not signals.count:
        time.sleep(_POLL_S)
    _log.info("stopping")
    stopping = threading.Thread(target=process.stop, name="stop")
    stopping.start()
    while stopping.is_alive():
        stopping.join(_POLL_S)
    _log.info("stopped")
    return 0


@dataclass
class _Signals:
    """How often the process was told to stop.

    It is asked in short waits. A handler runs only when the main thread next executes Python, and
    the system may hand a signal to another thread, so the main thread must never wait without end;
    nor may a handler set an Event, whose lock the interrupted main thread may hold.
    """

    count: int = 0

    @classmethod
    def catch(cls) -> _Signals:
        signals = cls()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signals._on_signal)
        return signals

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count > 1:
            os._exit(_ENDED_AT_ONCE)


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    # Not sys.exit: that waits for threads whose calls were cut off at the end of the grace.
    os._exit(code)
