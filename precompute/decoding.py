"""From the bytes of one record to an event, or to why not.

The codes come from the same encoder as in training, so an unknown value has the same code online
and offline. Nothing here raises on what a record holds: a stream goes on behind a bad record.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from features.arrays import FloatArray, IntArray
from features.encoding import Encoder
from features.errors import GemcutterError
from features.ids import to_key
from features.schema import SURFACE, FeatureSpec, Schema
from precompute.events import BadRecord, EngagementEvent, Event, RequestEvent

# The window in which a moment in milliseconds is plausible: 1990 to 2100, as in `features.times`.
_EARLIEST_MS, _LATEST_MS = 631_152_000_000, 4_102_444_800_000
MAX_CANDIDATES = 10_000
MAX_CLOCK_SKEW_MS = 300_000


class EventDecoder:
    """Decodes JSON records of one schema; the format is in `precompute.sources.lines`.

    Args:
        schema, encoder: of the log.
        clock_s: Unix seconds; nothing has happened later than now.
    """

    def __init__(
        self, schema: Schema, encoder: Encoder, *, clock_s: Callable[[], float] = time.time
    ) -> None:
        self._clock_s = clock_s
        self._schema = schema
        self._encoder = encoder
        self._sources = {source.name: source for source in schema.sources}

    def decode(self, payload: bytes) -> Event | BadRecord:
        """Give the event in a record, or the reason why there is none. Never raises on content."""
        try:
            record = json.loads(payload.decode("utf-8"))
            if not isinstance(record, dict):
                raise ValueError(f"expected a JSON object, got {type(record).__name__}")
            kind = record.get("kind")
            if kind == "engagement":
                return self._engagement(record)
            if kind == "request":
                return self._request(record)
            raise ValueError(f"kind: expected 'engagement' or 'request', got {kind!r}")
        except (ValueError, TypeError, OverflowError, RecursionError, GemcutterError) as error:
            return BadRecord(reason=f"{type(error).__name__}: {error}", payload=payload)

    def _engagement(self, record: Mapping[str, Any]) -> EngagementEvent:
        name = record.get("source")
        source = self._sources.get(name) if isinstance(name, str) else None
        if source is None:
            raise ValueError(f"source: expected one of {sorted(self._sources)}, got {name!r}")
        columns = _object(record, "columns")
        item: int | None = None
        if source.item_column is not None:
            item = self._key(columns.get(source.item_column), source.item_column, is_user=False)
        at_ms = self._moment(record, "event_at_ms")
        arrival_ms = at_ms
        if record.get("arrival_at_ms") is not None:
            arrival_ms = self._moment(record, "arrival_at_ms")
        if arrival_ms < at_ms - MAX_CLOCK_SKEW_MS:
            # Nothing arrives before it happens: one of the clocks is wrong, and a time far ahead
            # would stay the newest of its user for as long.
            raise ValueError(
                f"arrival_at_ms: expected at most {MAX_CLOCK_SKEW_MS} ms before event_at_ms "
                f"{at_ms}, got {arrival_ms}"
            )
        values = {feature.name: [columns.get(feature.column)] for feature in source.columns}
        codes, numeric = self._encode(source.columns, values)
        return EngagementEvent(
            source=source.name,
            user_key=self._key(record.get("user"), "user", is_user=True),
            item_key=item,
            at_ms=at_ms,
            arrival_ms=arrival_ms,
            codes={name: int(column[0]) for name, column in codes.items()},
            numeric={name: float(column[0]) for name, column in numeric.items()},
        )

    def _request(self, record: Mapping[str, Any]) -> RequestEvent:
        items = record.get("items")
        if not isinstance(items, list) or not 1 <= len(items) <= MAX_CANDIDATES:
            raise ValueError(f"items: expected a list of 1 to {MAX_CANDIDATES}")
        context, columns = _object(record, "context"), _object(record, "columns")
        features = self._schema.features_of("context")
        known = {feature.name for feature in features}
        for place, given in (("context", context), ("columns", columns)):
            if stray := sorted(given.keys() - known):
                raise ValueError(f"{place}: expected names of {sorted(known)}, got {stray}")
        values: dict[str, Sequence[Any]] = {}
        for feature in features:
            value = columns.get(feature.name, [context.get(feature.name)] * len(items))
            if not isinstance(value, list) or len(value) != len(items):
                raise ValueError(
                    f"columns.{feature.name}: expected {len(items)} values, one for each item"
                )
            values[feature.name] = value
            if feature.name == SURFACE:
                self._check_surfaces(value)
        codes, numeric = self._encode(features, values)
        return RequestEvent(
            request_id=str(record.get("request_id", "")),
            user_key=self._key(record.get("user"), "user", is_user=True),
            at_ms=self._moment(record, "at_ms"),
            item_keys=np.array(
                [self._key(item, "items", is_user=False) for item in items], dtype=np.int64
            ),
            codes=codes,
            numeric=numeric,
        )

    def _check_surfaces(self, values: Sequence[Any]) -> None:
        for value in values:
            if value not in (None, "") and value not in self._schema.surfaces:
                raise ValueError(
                    f"surface: expected one of {list(self._schema.surfaces)}, got {value!r}"
                )

    def _moment(self, record: Mapping[str, Any], name: str) -> int:
        at_ms = _moment(record, name)
        now_ms = int(self._clock_s() * 1000)
        if at_ms > now_ms + MAX_CLOCK_SKEW_MS:
            raise ValueError(f"{name}: expected a moment before now, {now_ms}, got {at_ms}")
        return at_ms

    def _key(self, value: Any, where: str, *, is_user: bool) -> int:
        spec = self._schema.user if is_user else self._schema.item
        try:
            return to_key(value, spec.dtype)
        except GemcutterError as error:
            raise ValueError(f"{where}: {error}") from error

    def _encode(
        self, features: Sequence[FeatureSpec], values: Mapping[str, Sequence[Any]]
    ) -> tuple[dict[str, IntArray], dict[str, FloatArray]]:
        codes = {
            feature.name: self._encoder.codes(feature.vocabulary, values[feature.name])
            for feature in features
            if feature.kind == "categorical" and feature.vocabulary is not None
        }
        numeric = {
            feature.name: self._encoder.numeric(feature, values[feature.name])
            for feature in features
            if feature.kind == "numeric"
        }
        return codes, numeric


def _object(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name, {})
    if not isinstance(value, dict):
        raise ValueError(f"{name}: expected an object, got {type(value).__name__}")
    return value


def _moment(record: Mapping[str, Any], name: str) -> int:
    value = record.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name}: expected Unix milliseconds, got {value!r}")
    if not _EARLIEST_MS <= value < _LATEST_MS:
        raise ValueError(f"{name}: expected Unix milliseconds of 1990 to 2100, got {value}")
    return value
