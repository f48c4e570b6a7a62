"""A process that another one started ends with it, even if that one was killed.

The owner holds the other end of the process's standard input and writes nothing. When the owner is
gone, for whatever reason, the system closes it, and the process tells itself to stop as if it had
been asked to.
"""

from __future__ import annotations

import os
import signal
import threading

OWNED = "GEMCUTTER_ENDS_WITH_STDIN"
"""Set in the environment of a process that has an owner."""

_STDIN = 0


def end_with_owner() -> None:
    """Watch for the owner's end from now on, if there is one."""
    if os.environ.get(OWNED):
        threading.Thread(target=_watch, name="lifeline", daemon=True).start()


def _watch() -> None:
    while os.read(_STDIN, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
