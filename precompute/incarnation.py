"""Which store this is: a committed position is worth nothing without the vectors written before it.

A store that was emptied or replaced has another incarnation, so a worker that keeps its position
under that name starts over by itself. Nothing is lost by it, for repeats change nothing.
"""

from __future__ import annotations

import uuid

from features.errors import StoreError
from features.store import Store, Swap

INCARNATION_KEY = "precompute:incarnation"


class StoreReplaced(StoreError):  # noqa: N818 (named for what happened)
    """The store was emptied or replaced: what was committed is not in it."""


def require_incarnation(store: Store, expected: str) -> None:
    """Check that a store is still the one that it was.

    Raises:
        StoreReplaced: it is not.
        StoreError: the store failed.
    """
    held = store.read([INCARNATION_KEY]).values[0]
    if held is None or held.decode("ascii", errors="replace") != expected:
        raise StoreReplaced("the store was emptied or replaced since this worker started")


def store_incarnation(store: Store) -> str:
    """Give the store's incarnation, 32 hex digits; names it where it has none yet.

    Raises:
        StoreError: the store failed.
    """
    held = store.read([INCARNATION_KEY]).values[0]
    if held is None:
        fresh = uuid.uuid4().hex.encode()
        store.swap([Swap(key=INCARNATION_KEY, expected=None, value=fresh)])
        # Another worker may have been first.
        held = store.read([INCARNATION_KEY]).values[0] or fresh
    return held.decode("ascii", errors="replace")
