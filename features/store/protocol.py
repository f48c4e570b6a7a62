"""What a store does: bytes in, bytes out, one call is one round trip.

The store knows one thing about the bytes it holds: where the newest event time of a packed vector
lies (`features.packed.NEWEST_AT_OFFSET`), because "newer wins" has to be decided where the writes
meet. Keys are built in `features.keys`, meaning is given to them in `features.vectorstore`.

Errors, from `features.errors`: StoreError, with StoreTimeout (no answer in time; a write may or
may not have happened) and StoreUnavailable (nothing there, or it refuses). Every write is safe to
repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a read found.

    Attributes:
        values: one for each key asked for, in that order; None where there is none.
        hashes: one for each hash asked for, in that order, field to value; empty where there is
            none.
    """

    values: list[bytes | None]
    hashes: list[dict[bytes, bytes]]


@dataclass(frozen=True, kw_only=True)
class Swap:
    """A write that happens only if the key still holds what the writer saw.

    Attributes:
        expected: the content seen; None if there was none.
        ttl_ms: time to live from the write; None keeps the value for ever.
    """

    key: str
    expected: bytes | None
    value: bytes
    ttl_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class Newest:
    """A write of a packed vector that happens unless what is held is newer.

    Attributes:
        field: field of a hash, or None for a plain key.
        ttl_ms: time to live of the whole key from the write; None leaves it without one.
    """

    key: str
    field: str | None
    value: bytes
    ttl_ms: int | None = None


class Store(Protocol):
    """A key-value store shared by one writer and many readers. Safe to use from many threads."""

    def read(
        self, keys: Sequence[str], hashes: Sequence[str] = (), *, timeout_ms: float | None = None
    ) -> Reply:
        """Read keys and whole hashes in one round trip; keys are read before hashes.

        Units:
            timeout_ms: bound on the whole call, waiting for a connection included; None means the
                store's own.

        Raises:
            StoreTimeout: no complete answer in time.
            StoreUnavailable: the store cannot be reached.
        """

    def swap(self, swaps: Sequence[Swap]) -> list[bool]:
        """Write each value whose key still holds what was expected; say which were written.

        A key that already holds the new value counts as written, so a repeat changes nothing.
        """

    def put_newest(self, writes: Sequence[Newest]) -> list[bool]:
        """Write each packed vector unless a newer one is held; say which were written.

        Equal event times are written again: the later write wins.
        """

    def trim_newest(self, hashes: Sequence[str], *, max_fields: int) -> list[int]:
        """Keep the newest max_fields packed vectors of each hash; say how many were removed.

        Among equal event times the larger field, by bytes, stays.
        """

    def put(self, items: Mapping[str, bytes], *, ttl_ms: int | None = None) -> None:
        """Write values whatever is held."""

    def delete(self, keys: Sequence[str]) -> int:
        """Remove keys or whole hashes; say how many there were."""

    def flush(self) -> None:
        """Remove everything."""

    def ping(self, timeout_ms: float) -> bool:
        """Tell whether the store answers within the time. Never raises StoreError."""

    def close(self) -> None:
        """Give back connections, and stop the server if this store owns one."""
