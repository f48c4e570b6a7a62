"""A user's own features as they are stored: a small JSON object with the moment they are from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

ProfileValue = str | int | float | None


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A user's raw features as they were stored.

    Attributes:
        at_ms: the moment they are from.
        num_refused: features that were there and are no text, number or null.
    """

    features: dict[str, ProfileValue]
    at_ms: int
    num_refused: int


def pack_profile(features: Mapping[str, ProfileValue], *, at_ms: int) -> bytes:
    """Give the stored form of a user's raw features."""
    document = {"features": dict(features), "at_ms": at_ms}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def unpack_profile(data: bytes | None) -> Profile | None:
    """Give a user's raw features; None when absent or not readable."""
    if data is None:
        return None
    try:
        document = json.loads(data)
        features, at_ms = document["features"], document["at_ms"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not isinstance(features, dict) or type(at_ms) is not int:
        return None
    kept = {name: value for name, value in features.items() if _is_value(value)}
    return Profile(features=kept, at_ms=at_ms, num_refused=len(features) - len(kept))


def _is_value(value: object) -> bool:
    return type(value) in {str, int, type(None)} or (
        isinstance(value, float) and math.isfinite(value)
    )
