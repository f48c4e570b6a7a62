"""Events as the worker holds them: decoded, with ids as canonical keys and features as codes.

Decoding happens once, at the door (`precompute.decoding`, or a data set that is encoded already),
so that a record which cannot be used is found before anything depends on it.

Errors: SourceError (a GemcutterError), when a source cannot go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from features.arrays import FloatArray, IntArray
from features.errors import GemcutterError
from features.log import Events


class SourceError(GemcutterError):
    """A source of events cannot be read, or its position cannot be kept."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EngagementEvent:
    """Something a user did, or that was done to the user.

    Attributes:
        source: name of the event source in the schema.
        item_key: None where the source has no item column.
        arrival_ms: when it became known; histories show it from then on.
        codes, numeric: the source's own columns by feature name.
    """

    source: str
    user_key: int
    item_key: int | None
    at_ms: int
    arrival_ms: int
    codes: dict[str, int]
    numeric: dict[str, float]

    @property
    def known_at_ms(self) -> int:
        """The moment from which anyone could know of the event."""
        return max(self.at_ms, self.arrival_ms)


@dataclass(frozen=True, kw_only=True, eq=False)
class RequestEvent:
    """A ranking request: one user, N candidates, their context.

    Shapes:
        item_keys and every column: (N,); what is the same for all candidates is repeated.
    """

    request_id: str
    user_key: int
    at_ms: int
    item_keys: IntArray
    codes: dict[str, IntArray]
    numeric: dict[str, FloatArray]

    @property
    def known_at_ms(self) -> int:
        """The moment of the request."""
        return self.at_ms


@dataclass(frozen=True, kw_only=True)
class BadRecord:
    """A record that could not be decoded: why, and the bytes as they came (cut if huge)."""

    reason: str
    payload: bytes


Event: TypeAlias = EngagementEvent | RequestEvent


def to_columns(engagements: Sequence[EngagementEvent]) -> Events:
    """Give engagements of one source as columns, in the order given.

    Raises:
        ValueError: none were given, or they do not all have the columns of the first.
    """
    if not engagements:
        raise ValueError("engagements: expected at least one")
    first = engagements[0]
    shape = (first.source, first.item_key is None, first.codes.keys(), first.numeric.keys())
    for event in engagements:
        got = (event.source, event.item_key is None, event.codes.keys(), event.numeric.keys())
        if got != shape:
            raise ValueError(f"engagements: expected source, item and columns {shape}, got {got}")
    items = [event.item_key for event in engagements if event.item_key is not None]
    return Events(
        user_keys=np.array([event.user_key for event in engagements], dtype=np.int64),
        at_ms=np.array([event.at_ms for event in engagements], dtype=np.int64),
        arrival_ms=np.array([event.arrival_ms for event in engagements], dtype=np.int64),
        item_keys=np.array(items, dtype=np.int64) if items else None,
        codes={
            name: np.array([event.codes[name] for event in engagements], dtype=np.int64)
            for name in first.codes
        },
        numeric={
            name: np.array([event.numeric[name] for event in engagements], dtype=np.float32)
            for name in first.numeric
        },
    )
