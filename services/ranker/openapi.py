"""What OpenAPI says of the ranking call; the words are those of `protos/ranking.proto`."""

from __future__ import annotations

from typing import Any

_VALUE = {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]}
_ID = {"anyOf": [{"type": "integer", "format": "int64"}, {"type": "string"}]}
_INT64 = {"type": "integer", "format": "int64"}

_CANDIDATE = {
    "type": "object",
    "required": ["item_id"],
    "properties": {"item_id": _ID, "bid_micros": {**_INT64, "minimum": 0}},
    "additionalProperties": _VALUE,
    "description": "Further properties are the candidate's own context features.",
}
_REQUEST = {
    "type": "object",
    "required": ["user_id", "candidates"],
    "additionalProperties": False,
    "properties": {
        "request_id": {"type": "string"},
        "vertical": {"type": "string"},
        "user_id": _ID,
        "at_ms": {**_INT64, "description": "Unix ms UTC; 0 or absent: now"},
        "user_features": {"type": "object", "additionalProperties": _VALUE},
        "context": {"type": "object", "additionalProperties": _VALUE},
        "candidates": {"type": "array", "items": _CANDIDATE},
        "top_k": {"type": "integer", "minimum": 0, "description": "0 = all"},
        "by_request_order": {"type": "boolean"},
    },
}
_RANKED = {
    "type": "object",
    "properties": {
        "item_id": _ID,
        "index": {"type": "integer"},
        "rank": {"type": "integer"},
        "score": {"type": "number"},
        "ecpm_micros": _INT64,
        "p": {"type": "object", "additionalProperties": {"type": "number"}},
        "tier": {"type": "string"},
        "pair_age_ms": _INT64,
        "similarity": {"type": "number"},
        "is_stale": {"type": "boolean"},
        "is_cold_item": {"type": "boolean"},
        "is_fallback": {"type": "boolean"},
    },
}
_ANSWER = {
    "type": "object",
    "properties": {
        "request_id": {"type": "string"},
        "ranked": {"type": "array", "items": _RANKED},
        "degraded": {"type": "array", "items": {"type": "string"}},
        "vertical": {"type": "string"},
        "bundle_id": {"type": "string"},
        "space_id": {"type": "string"},
        "schema_id": {"type": "string"},
        "engine": {"type": "string"},
        "stage_times": {"type": "object", "additionalProperties": {"type": "integer"}},
        "num_fallback": {"type": "integer"},
    },
}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in ("code", "message", "field")},
        }
    },
}
_FAULTS = {
    400: "a field is wrong",
    404: "no such vertical",
    413: "too many bytes",
    429: "too many calls; see Retry-After",
    500: "our fault",
    503: "not ready",
    504: "no time left",
}


def _described(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


RANK_OPENAPI: dict[str, Any] = {
    "responses": {
        200: _described("ranked, perhaps degraded", _ANSWER),
        **{status: _described(text, _ERROR) for status, text in _FAULTS.items()},
    },
    "openapi_extra": {
        "parameters": [
            {
                "name": "x-deadline-ms",
                "in": "header",
                "schema": {"type": "integer", "minimum": 0},
                "description": "how long the caller waits",
            }
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _REQUEST}},
        },
    },
}
