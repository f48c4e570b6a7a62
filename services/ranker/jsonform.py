"""Between JSON bodies and the pipeline's calls and answers; decides nothing.

A body has the fields of the protobuf message under the same names, with two that are easier to
write: `user_id` (a number or text, as the schema says; an int64 may come as its decimal text) and
`candidates` as a list of objects, each with `item_id`, `bid_micros` if it has one, and the context
features that are its own. A body whose `candidates` is an object is the protobuf message itself in
its JSON mapping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import orjson
from google.protobuf import json_format

from features.arrays import IntArray
from features.lookup import Tier
from features.schema import IdSpec
from protos import ranking_pb2 as pb
from ranking.bundle import Bundle
from ranking.runtime.answer import RankAnswer
from ranking.runtime.errors import InvalidRequest
from ranking.runtime.request import RankCall, RawValue
from ranking.runtime.value import DEFAULT_BID_MICROS, MAX_BID_MICROS
from services.ranker.faults import Fault
from services.ranker.translate import answer_rows, read_request, user_key

_FIELDS = frozenset(
    {
        "request_id",
        "vertical",
        "user_id",
        "at_ms",
        "user_features",
        "context",
        "candidates",
        "top_k",
        "by_request_order",
    }
)
_MAX_INT64 = 2**63 - 1
_TIERS = {tier.value: tier.name.lower() for tier in Tier}


def parse_body(data: bytes) -> dict[str, Any]:
    """Read a body.

    Raises:
        InvalidRequest: it is not a JSON object.
    """
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest("body", expected="JSON", got=str(error)) from error
    if not isinstance(body, dict):
        raise InvalidRequest("body", expected="a JSON object", got=type(body).__name__)
    return body


def read_body(body: Mapping[str, Any], vertical: str, bundle: Bundle, now_ms: int) -> RankCall:
    """Give the call that a body stands for.

    Raises:
        InvalidRequest: an unknown field, or a value of another type than the field's.
    """
    if body.get("vertical", vertical) != vertical:
        raise InvalidRequest("vertical", expected=f"{vertical!r}", got=body["vertical"])
    if isinstance(body.get("candidates"), dict):
        return _read_message(body, bundle, now_ms)
    for name in body:
        if name not in _FIELDS:
            raise InvalidRequest(name, expected=f"one of {sorted(_FIELDS)}", got="an unknown field")
    if "user_id" not in body:
        raise InvalidRequest("user_id", expected=f"a {bundle.schema.user.dtype} id", got="none")
    candidates = _candidates(body)
    ids, keys = _item_ids(candidates, bundle.schema.item)
    return RankCall(
        request_id=_typed(body, "request_id", str, ""),
        user_key=user_key(body["user_id"], bundle.schema.user, "user_id"),
        at_ms=_integer(body, "at_ms") or now_ms,
        item_ids=ids,
        item_keys=keys,
        bid_micros=_bids(candidates),
        user_features=_features(body, "user_features"),
        context=_features(body, "context"),
        columns=_columns(candidates),
        top_k=_integer(body, "top_k"),
        is_in_request_order=_typed(body, "by_request_order", bool, False),
    )


def write_body(answer: RankAnswer) -> bytes:
    """Give the JSON text of an answer."""
    rows = answer_rows(answer)
    for row in rows:
        row["tier"] = _TIERS[row["tier"]]
    document = {
        "request_id": answer.request_id,
        "ranked": rows,
        "degraded": [reason.name.lower() for reason in answer.degraded],
        "vertical": answer.vertical,
        "bundle_id": answer.bundle_id,
        "space_id": answer.space_id,
        "schema_id": answer.schema_id,
        "engine": answer.engine,
        "stage_times": asdict(answer.stage_times),
        "num_fallback": answer.num_fallback,
    }
    return orjson.dumps(document)


def write_fault(fault: Fault) -> bytes:
    """Give the JSON text of what went wrong."""
    error = {"code": fault.code, "message": fault.message, "field": fault.field}
    return orjson.dumps({"error": error})


def _read_message(body: Mapping[str, Any], bundle: Bundle, now_ms: int) -> RankCall:
    try:
        message = json_format.ParseDict(body, pb.RankRequest())
    except json_format.ParseError as error:
        raise InvalidRequest("body", expected="a RankRequest", got=str(error)) from error
    return read_request(message, bundle, now_ms)


def _typed(body: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not kind:
        raise InvalidRequest(name, expected=kind.__name__, got=value)
    return value


def _integer(body: Mapping[str, Any], name: str) -> int:
    value: int = _typed(body, name, int, 0)
    if not 0 <= value <= _MAX_INT64:
        raise InvalidRequest(name, expected="0 to 2^63 - 1", got=value)
    return value


def _features(body: Mapping[str, Any], name: str) -> dict[str, RawValue]:
    given: dict[str, Any] = _typed(body, name, dict, {})
    return {key: _value(value, f"{name}.{key}") for key, value in given.items()}


def _value(value: Any, field: str) -> RawValue:
    if value is None or type(value) in (str, int, float):
        return value  # type: ignore[no-any-return]
    raise InvalidRequest(field, expected="text, a number or null", got=value)


def _candidates(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    candidates: list[Any] = _typed(body, "candidates", list, [])
    for place, candidate in enumerate(candidates):
        if not isinstance(candidate, dict):
            raise InvalidRequest(f"candidates[{place}]", expected="an object", got=candidate)
    return candidates


def _item_ids(
    candidates: Sequence[Mapping[str, Any]], spec: IdSpec
) -> tuple[Sequence[int] | Sequence[str], IntArray]:
    keys = [
        user_key(candidate.get("item_id", ""), spec, f"candidates[{place}].item_id")
        for place, candidate in enumerate(candidates)
    ]
    ids = keys if spec.dtype == "int64" else [str(c["item_id"]) for c in candidates]
    return ids, np.array(keys, dtype=np.int64)


def _bids(candidates: Sequence[Mapping[str, Any]]) -> IntArray | None:
    """Give the bids; who names none among those who do bids one unit."""
    if not any("bid_micros" in candidate for candidate in candidates):
        return None
    bids = []
    for place, candidate in enumerate(candidates):
        bid = candidate.get("bid_micros", DEFAULT_BID_MICROS)
        if type(bid) is not int or not 0 <= bid <= MAX_BID_MICROS:
            field = f"candidates[{place}].bid_micros"
            raise InvalidRequest(field, expected=f"an integer, 0 to {MAX_BID_MICROS}", got=bid)
        bids.append(bid)
    return np.array(bids, dtype=np.int64)


def _columns(candidates: Sequence[Mapping[str, Any]]) -> dict[str, Sequence[RawValue]]:
    names = {name: None for candidate in candidates for name in candidate}
    return {
        name: [
            _value(candidate.get(name), f"candidates[{place}].{name}")
            for place, candidate in enumerate(candidates)
        ]
        for name in names
        if name not in {"item_id", "bid_micros"}
    }
