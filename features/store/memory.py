"""A store inside the process, for tests and for training code that plays the stream.

It keeps to the same rules as the server's scripts (`features.store.scripts`); one suite of tests
runs on both. Time comes from the clock that is passed in.

Errors: StoreError where an operation meets a key of the other type; StoreUnavailable after close.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from features.errors import StoreError, StoreUnavailable
from features.packed import LAYOUT_VERSION, MAGIC, NEWEST_AT_OFFSET, newest_at
from features.store.protocol import Newest, Reply, Swap

_Value = bytes | dict[bytes, bytes]
_PREFIX = MAGIC + bytes([LAYOUT_VERSION])


def monotonic_ms() -> int:
    """Milliseconds of a clock that never goes back."""
    return time.monotonic_ns() // 1_000_000


@dataclass
class _Held:
    value: _Value
    expires_at_ms: int | None


class MemoryStore:
    """Keys and hashes in a dictionary, behind one lock.

    Args:
        clock_ms: current time in ms, from any origin; decides what has expired.
    """

    def __init__(self, *, clock_ms: Callable[[], int] = monotonic_ms) -> None:
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._is_closed = False

    def read(
        self, keys: Sequence[str], hashes: Sequence[str] = (), *, timeout_ms: float | None = None
    ) -> Reply:
        """See `Store.read`; the answer never takes long enough for a timeout."""
        with self._lock:
            values = [self._get(key) for key in keys]
            return Reply(
                # As MGET does, a hash reads as nothing.
                values=[value if isinstance(value, bytes) else None for value in values],
                hashes=[dict(self._hash(key)) for key in hashes],
            )

    def swap(self, swaps: Sequence[Swap]) -> list[bool]:
        """See `Store.swap`."""
        with self._lock:
            return [self._swap(swap) for swap in swaps]

    def put_newest(self, writes: Sequence[Newest]) -> list[bool]:
        """See `Store.put_newest`."""
        with self._lock:
            return [
                self._put_newest(write) if write.field is None else self._put_field(write)
                for write in writes
            ]

    def trim_newest(self, hashes: Sequence[str], *, max_fields: int) -> list[int]:
        """See `Store.trim_newest`."""
        with self._lock:
            return [self._trim(key, max_fields) for key in hashes]

    def put(self, items: Mapping[str, bytes], *, ttl_ms: int | None = None) -> None:
        """See `Store.put`."""
        with self._lock:
            self._require_open()
            for key, value in items.items():
                self._set(key, value, ttl_ms)

    def delete(self, keys: Sequence[str]) -> int:
        """See `Store.delete`."""
        with self._lock:
            found = [key for key in dict.fromkeys(keys) if self._get(key) is not None]
            for key in found:
                del self._held[key]
            return len(found)

    def flush(self) -> None:
        """See `Store.flush`."""
        with self._lock:
            self._require_open()
            self._held.clear()

    def ping(self, timeout_ms: float) -> bool:
        """See `Store.ping`."""
        return not self._is_closed

    def close(self) -> None:
        """Forget everything and refuse further calls."""
        with self._lock:
            self._held.clear()
            self._is_closed = True

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("memory store: closed")

    def _get(self, key: str) -> _Value | None:
        self._require_open()
        held = self._held.get(key)
        if held is None:
            return None
        if held.expires_at_ms is not None and self._clock_ms() >= held.expires_at_ms:
            del self._held[key]
            return None
        return held.value

    def _plain(self, key: str) -> bytes | None:
        value = self._get(key)
        if isinstance(value, dict):
            raise StoreError(f"memory store, key {key!r}: expected a value, found a hash")
        return value

    def _hash(self, key: str) -> dict[bytes, bytes]:
        value = self._get(key)
        if isinstance(value, bytes):
            raise StoreError(f"memory store, key {key!r}: expected a hash, found a value")
        return value or {}

    def _set(self, key: str, value: _Value, ttl_ms: int | None) -> None:
        expires_at_ms = None if ttl_ms is None else self._clock_ms() + ttl_ms
        self._held[key] = _Held(value, expires_at_ms)

    def _swap(self, swap: Swap) -> bool:
        held = self._plain(swap.key)
        if held not in (swap.expected, swap.value):
            return False
        self._set(swap.key, swap.value, swap.ttl_ms)
        return True

    def _put_newest(self, write: Newest) -> bool:
        if _is_older(self._plain(write.key), write.value):
            return False
        self._set(write.key, write.value, write.ttl_ms)
        return True

    def _put_field(self, write: Newest) -> bool:
        assert write.field is not None
        fields, name = self._hash(write.key), write.field.encode()
        if _is_older(fields.get(name), write.value):
            return False
        if not fields:
            self._set(write.key, fields, None)
        fields[name] = write.value
        if write.ttl_ms is not None:
            self._held[write.key].expires_at_ms = self._clock_ms() + write.ttl_ms
        return True

    def _trim(self, key: str, max_fields: int) -> int:
        fields = self._hash(key)
        oldest_first = sorted(fields, key=lambda name: (_rank(fields[name]), name))
        surplus = oldest_first[: max(len(fields) - max_fields, 0)]
        for name in surplus:
            del fields[name]
        if key in self._held and not fields:
            del self._held[key]
        return len(surplus)


def _is_older(held: bytes | None, value: bytes) -> bool:
    held_at_ms, at_ms = _newest_at(held), _newest_at(value)
    return held_at_ms is not None and (at_ms is None or at_ms < held_at_ms)


def _newest_at(value: bytes | None) -> int | None:
    if value is None or len(value) < NEWEST_AT_OFFSET + 8 or not value.startswith(_PREFIX):
        return None
    return newest_at(value)


def _rank(value: bytes) -> float:
    at_ms = _newest_at(value)
    return float("-inf") if at_ms is None else at_ms
