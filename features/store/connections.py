"""Connections to a server: bounded in number, and every wait bounded in time.

A connection answers in the order of its questions, so one whose answer was not read to the end
would give it to the next caller. Hence the one rule of this module: a connection goes back to the
pool only after every reply of its pipeline was read; in any other case, time-outs, errors and
interrupts included, it is closed.

Must not know: what the commands mean.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, parse_url
from redis.retry import Retry

from features.errors import StoreTimeout, StoreUnavailable

Command = tuple[str | bytes | int, ...]
Answer = Any  # what the protocol carries: integers, bytes, lists of them, or a server's error


@dataclass(frozen=True)
class Deadline:
    """A moment after which nobody waits for the answer."""

    at_s: float
    what: str

    @classmethod
    def after(cls, timeout_ms: float, what: str) -> Deadline:
        """Give the moment this many milliseconds from now."""
        return cls(time.monotonic() + timeout_ms / 1000, f"{what} within {timeout_ms:g} ms")

    def left_s(self) -> float:
        """Seconds left, above 0.

        Raises:
            StoreTimeout: none are left.
        """
        left_s = self.at_s - time.monotonic()
        if left_s <= 0:
            raise StoreTimeout(f"{self.what}: no complete answer")
        return left_s


class _Wire(Protocol):
    """What is used of a redis-py connection, most of which has no types."""

    _sock: socket.socket | None

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def pack_commands(self, commands: Sequence[Command]) -> list[bytes]: ...
    def send_packed_command(self, command: list[bytes], check_health: bool) -> None: ...
    def read_response(self) -> Answer: ...


class Link:
    """One connection. Not safe to share between threads while in use."""

    def __init__(self, connection: _Wire) -> None:
        self._connection = connection

    def ask(self, commands: Sequence[Command], deadline: Deadline) -> list[Answer]:
        """Send commands in one write and read all replies; a server's error is a reply too.

        Raises:
            redis.ConnectionError, redis.TimeoutError, StoreTimeout: the link must be closed.
        """
        self._wait_at_most(deadline)
        # In one piece: redis-py would send each command by itself.
        packed = b"".join(self._connection.pack_commands(commands))
        self._connection.send_packed_command([packed], check_health=False)
        return [self._read_one(deadline) for _ in commands]

    def close(self) -> None:
        """Close the socket; whatever the server still sends goes nowhere."""
        self._connection.disconnect()

    def _read_one(self, deadline: Deadline) -> Answer:
        self._wait_at_most(deadline)
        try:
            return self._connection.read_response()
        except redis.ResponseError as error:
            return error

    def _wait_at_most(self, deadline: Deadline) -> None:
        # redis-py fixes the time-out when a connection is made; each of our calls has its own.
        sock = self._connection._sock
        if sock is None:
            raise redis.ConnectionError("connection closed")
        sock.settimeout(deadline.left_s())


class LinkPool:
    """At most max_links connections to one URL, the last used one first.

    Raises:
        ValueError: the URL is not one, or has options that redis-py does not know.
    """

    def __init__(self, url: str, *, max_links: int) -> None:
        options = parse_url(url)  # type: ignore[no-untyped-call]
        host_port = f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
        self.address = str(options.get("path", host_port))  # for messages: no password
        self._kind = cast(Callable[..., _Wire], options.pop("connection_class", Connection))
        self._options: dict[str, Any] = {
            **options,
            "decode_responses": False,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
        }
        try:
            self._kind(**self._options)
        except TypeError as error:
            raise ValueError(f"store at {self.address}, options of the URL: {error}") from error
        self._permits = threading.Semaphore(max_links)
        self._lock = threading.Lock()
        self._idle: list[Link] = []
        self._is_closed = False
        self.num_in_use = 0

    def take(self, deadline: Deadline) -> Link:
        """Wait for a free place and give a connection, which must be given back or dropped.

        Raises:
            StoreTimeout: all connections stayed in use, or connecting took too long.
            StoreUnavailable: nobody listens, or the pool is closed.
        """
        if not self._permits.acquire(timeout=deadline.left_s()):
            raise StoreTimeout(f"{deadline.what}: all connections stayed in use")
        with self._lock:
            self.num_in_use += 1
            link = self._idle.pop() if self._idle else None
            is_closed = self._is_closed
        try:
            if is_closed:
                raise StoreUnavailable(f"{deadline.what}: the store is closed")
            return link or self._connect(deadline)
        except BaseException:
            self._leave()
            raise

    def give_back(self, link: Link) -> None:
        """Keep a connection whose replies were all read."""
        with self._lock:
            is_kept = not self._is_closed
            if is_kept:
                self._idle.append(link)
        if not is_kept:
            link.close()
        self._leave()

    def drop(self, link: Link) -> None:
        """Close a connection that may still have an answer under way."""
        link.close()
        self._leave()

    def drop_idle(self) -> None:
        """Close what is not in use: the server that was there may be another one now."""
        with self._lock:
            idle, self._idle = self._idle, []
        for link in idle:
            link.close()

    def close(self) -> None:
        """Close idle connections now and the others when they come back."""
        with self._lock:
            self._is_closed = True
        self.drop_idle()

    def _leave(self) -> None:
        with self._lock:
            self.num_in_use -= 1
        self._permits.release()

    def _connect(self, deadline: Deadline) -> Link:
        left_s = deadline.left_s()
        waits = {"socket_timeout": left_s, "socket_connect_timeout": left_s}
        connection = self._kind(**{**self._options, **waits})
        try:
            connection.connect()
        except redis.TimeoutError as error:
            raise StoreTimeout(f"{deadline.what}: {error}") from error
        except (redis.ConnectionError, redis.ResponseError) as error:
            raise StoreUnavailable(f"{deadline.what}: {error}") from error
        return Link(connection)
