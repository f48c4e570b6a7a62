"""A store behind the Redis protocol: one pipeline a call, bytes in and bytes out.

What happens when something is wrong:

    no answer in time          the connection is closed, StoreTimeout; not repeated
    connection lost            all idle connections are closed, once again on a new one, then
                               StoreUnavailable
    READONLY (now a replica)   the same: whoever answers the address next may be the primary
    other refusals             the same; but StoreError for an operation on the wrong type
    script not cached          scripts are loaded and the pipeline is sent again
    interrupted half-way       the connection is closed

Repeating is safe because every write is idempotent. Errors are those of `features.store.protocol`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import redis

from features.errors import StoreError, StoreTimeout, StoreUnavailable
from features.store import scripts
from features.store.connections import Answer, Command, Deadline, Link, LinkPool
from features.store.protocol import Newest, Reply, Swap

DEFAULT_TIMEOUT_MS = 1000.0
DEFAULT_MAX_CONNECTIONS = 16


class _Server(Protocol):
    def stop(self) -> None: ...


class RedisStore:
    """A store on a Redis or Valkey server.

    Args:
        url: redis://, rediss:// or unix://.
        max_connections: most connections at once; callers beyond that wait within their time-out.
        timeout_ms: bound on each call that names none.
        server: a server to stop at close, if this store owns one.
    """

    def __init__(
        self,
        url: str,
        *,
        max_connections: int = DEFAULT_MAX_CONNECTIONS,
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        server: _Server | None = None,
    ) -> None:
        self.url = url
        self._pool = LinkPool(url, max_links=max_connections)
        self._timeout_ms = timeout_ms
        self._server = server

    @property
    def num_connections_in_use(self) -> int:
        """How many connections are out for a call at this moment."""
        return self._pool.num_in_use

    def read(
        self, keys: Sequence[str], hashes: Sequence[str] = (), *, timeout_ms: float | None = None
    ) -> Reply:
        """See `Store.read`: one MGET and one HGETALL a hash."""
        commands: list[Command] = [("MGET", *keys)] if keys else []
        commands += [("HGETALL", key) for key in hashes]
        answers = self._run(commands, timeout_ms=timeout_ms)
        flat = answers[1:] if keys else answers
        return Reply(
            values=answers[0] if keys else [],
            hashes=[dict(zip(pairs[::2], pairs[1::2], strict=True)) for pairs in flat],
        )

    def swap(self, swaps: Sequence[Swap]) -> list[bool]:
        """See `Store.swap`: one script call a key."""
        commands: list[Command] = [
            _call(
                scripts.SWAP,
                swap.key,
                0 if swap.expected is None else 1,
                swap.expected or b"",
                swap.value,
                swap.ttl_ms or 0,
            )
            for swap in swaps
        ]
        return [bool(answer) for answer in self._run(commands)]

    def put_newest(self, writes: Sequence[Newest]) -> list[bool]:
        """See `Store.put_newest`: one script call a key, or a hash with all its fields."""
        groups: dict[tuple[str, bool, int | None], list[int]] = {}
        for place, write in enumerate(writes):
            # Writes to one plain key stay separate calls, in their order.
            is_field = write.field is not None
            group = (write.key, is_field, write.ttl_ms if is_field else place)
            groups.setdefault(group, []).append(place)
        answers = self._run([_put([writes[i] for i in places]) for places in groups.values()])
        written = [False] * len(writes)
        for places, answer in zip(groups.values(), answers, strict=True):
            for place, flag in zip(places, _as_list(answer), strict=True):
                written[place] = bool(flag)
        return written

    def trim_newest(self, hashes: Sequence[str], *, max_fields: int) -> list[int]:
        """See `Store.trim_newest`: one script call a hash."""
        commands = [_call(scripts.TRIM_NEWEST, key, max_fields) for key in hashes]
        return [int(answer) for answer in self._run(commands)]

    def put(self, items: Mapping[str, bytes], *, ttl_ms: int | None = None) -> None:
        """See `Store.put`."""
        expiry: Command = () if ttl_ms is None else ("PX", ttl_ms)
        self._run([("SET", key, value, *expiry) for key, value in items.items()])

    def delete(self, keys: Sequence[str]) -> int:
        """See `Store.delete`."""
        return sum(self._run([("DEL", *keys)])) if keys else 0

    def flush(self) -> None:
        """See `Store.flush`: empties the database the URL names."""
        self._run([("FLUSHDB",)])

    def ping(self, timeout_ms: float) -> bool:
        """See `Store.ping`."""
        try:
            return self._run([("PING",)], timeout_ms=timeout_ms) == [b"PONG"]
        except StoreError:
            return False

    def close(self) -> None:
        """Close the connections, and stop the server if this store owns one."""
        self._pool.close()
        if self._server is not None:
            self._server.stop()

    def _run(self, commands: Sequence[Command], *, timeout_ms: float | None = None) -> list[Answer]:
        if not commands:
            return []
        bound_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        deadline = Deadline.after(bound_ms, f"store at {self._pool.address}")
        try:
            return self._run_once(commands, deadline)
        except StoreUnavailable:
            # Whatever is still connected may lead to the same server; start afresh, once.
            self._pool.drop_idle()
            return self._run_once(commands, deadline)

    def _run_once(self, commands: Sequence[Command], deadline: Deadline) -> list[Answer]:
        link = self._pool.take(deadline)
        is_clean = False
        try:
            answers = _ask_with_scripts(link, commands, deadline)
            refusal = next((a for a in answers if isinstance(a, redis.ResponseError)), None)
            is_clean = not isinstance(refusal, redis.ReadOnlyError)
        except redis.TimeoutError as error:
            raise StoreTimeout(f"{deadline.what}: {error}") from error
        except redis.ConnectionError as error:
            raise StoreUnavailable(f"{deadline.what}: {error}") from error
        finally:
            if is_clean:
                self._pool.give_back(link)
            else:
                self._pool.drop(link)
        if refusal is None:
            return answers
        # redis-py keeps the code of an error in the text or turns it into a class, never both.
        text = f"{type(refusal).__name__}: {refusal}"
        kind = StoreError if "WRONGTYPE" in text else StoreUnavailable
        raise kind(f"{deadline.what}: refused, {text}")


def _ask_with_scripts(link: Link, commands: Sequence[Command], deadline: Deadline) -> list[Answer]:
    answers = link.ask(commands, deadline)
    if any(isinstance(answer, redis.exceptions.NoScriptError) for answer in answers):
        link.ask([("SCRIPT", "LOAD", script.source) for script in scripts.ALL], deadline)
        answers = link.ask(commands, deadline)
    return answers


def _call(script: scripts.Script, key: str, *arguments: str | bytes | int) -> Command:
    return ("EVALSHA", script.sha, 1, key, *arguments)


def _put(writes: Sequence[Newest]) -> Command:
    first = writes[0]
    if first.field is None:
        return _call(scripts.PUT_NEWEST, first.key, first.ttl_ms or 0, first.value)
    fields = [part for write in writes for part in (write.field or "", write.value)]
    return _call(scripts.PUT_NEWEST_FIELDS, first.key, first.ttl_ms or 0, *fields)


def _as_list(answer: Answer) -> list[int]:
    return answer if isinstance(answer, list) else [answer]
