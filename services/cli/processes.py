"""Child processes of the command: started, watched until they say they listen, and stopped."""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from services.lifeline import OWNED

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0


class ChildError(RuntimeError):
    """A process of the command ended or stayed silent when it should have started."""


class Child:
    """One of our own modules running as a process of its own; it ends if this one is killed.

    Args:
        module: what `python -m` runs.
        arguments: its command line.
        log: file that takes its standard error.

    Raises:
        ChildError: the process ended, or printed no JSON line within a minute.
    """

    def __init__(self, module: str, arguments: Sequence[str], *, log: Path) -> None:
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 (our own module, no shell)
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,  # a line left in a buffer would not wake the selector
                env={**os.environ, "PYTHONUNBUFFERED": "1", OWNED: "1"},
            )
        self.announcement = self._first_json_line(module)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def _first_json_line(self, module: str) -> dict[str, Any]:
        """The line in which the process says where it listens."""
        out = self._process.stdout
        assert out is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                if selector.select(timeout=0.2):
                    line = out.readline()
                    if line.startswith(b"{"):
                        announcement: dict[str, Any] = json.loads(line)
                        return announcement
                if not self.is_running:
                    break
        self.kill()
        tail = self._log.read_text(errors="replace")[-2000:]
        raise ChildError(f"{module} did not start; the end of {self._log}:\n{tail}")

    def stop(self) -> int:
        """Ask the process to finish, wait, and return its exit code."""
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout=STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        return self._close()

    def kill(self) -> int:
        """End the process at once."""
        self._process.kill()
        return self._close()

    def _close(self) -> int:
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return code

    def __enter__(self) -> Self:
        """The child itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the process."""
        self.stop()
