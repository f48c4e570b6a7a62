"""A user's own features as they are stored: a small JSON object with the moment they are from."""

from __future__ import annotations

import json
from collections.abc import Mapping

ProfileValue = str | int | float | None


def pack_profile(features: Mapping[str, ProfileValue], *, at_ms: int) -> bytes:
    """Give the stored form of a user's raw features."""
    document = {"features": dict(features), "at_ms": at_ms}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def unpack_profile(data: bytes | None) -> tuple[dict[str, ProfileValue], int] | None:
    """Give a user's raw features and their moment; None when absent or not readable."""
    if data is None:
        return None
    try:
        document = json.loads(data)
        features, at_ms = document["features"], document["at_ms"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not isinstance(features, dict) or type(at_ms) is not int:
        return None
    kept = {k: v for k, v in features.items() if v is None or isinstance(v, str | int | float)}
    return kept, at_ms
