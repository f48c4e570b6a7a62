"""Between protobuf messages and the pipeline's calls and answers; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from features.arrays import IntArray
from features.errors import DataError
from features.ids import to_key, to_keys
from features.schema import IdSpec
from protos import ranking_pb2 as pb
from ranking.bundle import Bundle
from ranking.runtime.answer import RankAnswer
from ranking.runtime.errors import InvalidRequest
from ranking.runtime.request import RankCall, RawValue

INT64_BYTES = 8


def read_request(request: pb.RankRequest, bundle: Bundle, now_ms: int) -> RankCall:
    """Give the call that a message stands for.

    Raises:
        InvalidRequest: ids of the wrong type, two forms of the same, bytes that are no int64s.
    """
    schema, candidates = bundle.schema, request.candidates
    item_ids, item_keys = _items(candidates, schema.item)
    return RankCall(
        request_id=request.request_id,
        user_key=_user(request, schema.user),
        at_ms=request.at_ms or now_ms,
        item_ids=item_ids,
        item_keys=item_keys,
        bid_micros=_int64s(candidates, "bid_micros", "bid_micros_le"),
        user_features=_values(request.user_features),
        context=_values(request.context),
        columns=_columns(candidates),
        top_k=request.top_k,
        is_in_request_order=request.by_request_order,
    )


def write_answer(answer: RankAnswer) -> pb.RankResponse:
    """Give the message that an answer becomes."""
    response = pb.RankResponse(
        request_id=answer.request_id,
        degraded=[pb.DegradedReason.Name(reason.value) for reason in answer.degraded],
        vertical=answer.vertical,
        bundle_id=answer.bundle_id,
        space_id=answer.space_id,
        schema_id=answer.schema_id,
        engine=answer.engine,
        stage_times=pb.StageTimes(**asdict(answer.stage_times)),
        num_fallback=answer.num_fallback,
    )
    for row in answer_rows(answer):
        item_id = row.pop("item_id")
        row["item_id_str" if isinstance(item_id, str) else "item_id_int"] = item_id
        response.ranked.add(**row)
    return response


def answer_rows(answer: RankAnswer) -> list[dict[str, Any]]:
    """Give the candidates of an answer in its order, fields named as on the wire."""
    places = answer.places
    p = answer.p[places].astype(np.float64).tolist()
    columns: dict[str, npt.NDArray[Any]] = {
        "index": places,
        "rank": answer.rank[places],
        "score": answer.score[places],
        "ecpm_micros": np.rint(answer.score[places]).astype(np.int64),
        "tier": answer.tier[places],
        "pair_age_ms": answer.pair_age_ms[places],
        "similarity": answer.similarity[places],
        "is_stale": answer.is_stale[places],
        "is_cold_item": answer.is_cold_item[places],
        "is_fallback": answer.is_fallback[places],
    }
    names = list(columns)
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [
        {
            "item_id": answer.item_ids[place],
            "p": dict(zip(answer.objectives, p[k], strict=True)),
            **dict(zip(names, row, strict=True)),
        }
        for k, (place, row) in enumerate(zip(places.tolist(), rows, strict=True))
    ]


def _user(request: pb.RankRequest, spec: IdSpec) -> int:
    if spec.dtype == "int64":
        if request.user_id_str:
            raise InvalidRequest("user_id_str", expected="an int64 in user_id_int", got="text")
        return request.user_id_int
    if request.user_id_int:
        raise InvalidRequest("user_id_int", expected="text in user_id_str", got="a number")
    return user_key(request.user_id_str, spec, "user_id_str")


def user_key(value: str | int, spec: IdSpec, field: str) -> int:
    """Give the key of one id.

    Raises:
        InvalidRequest: it is empty, of another type, or does not fit.
    """
    try:
        return to_key(value, spec.dtype)
    except DataError as error:
        raise InvalidRequest(field, expected=f"a {spec.dtype} id", got=str(error)) from error


def _items(
    candidates: pb.Candidates, spec: IdSpec
) -> tuple[Sequence[int] | Sequence[str], IntArray]:
    if spec.dtype == "string":
        for field in ("item_ids_int", "item_ids_le"):
            if getattr(candidates, field):
                raise InvalidRequest(
                    f"candidates.{field}", expected="text in item_ids_str", got="numbers"
                )
        return _text_items(list(candidates.item_ids_str))
    if candidates.item_ids_str:
        raise InvalidRequest("candidates.item_ids_str", expected="int64 ids", got="text")
    keys = _int64s(candidates, "item_ids_int", "item_ids_le")
    if keys is None:
        return [], np.zeros(0, dtype=np.int64)
    return keys.tolist(), keys


def _text_items(ids: list[str]) -> tuple[list[str], IntArray]:
    for place, item_id in enumerate(ids):
        if not item_id:
            raise InvalidRequest(
                f"candidates.item_ids_str[{place}]", expected="an id", got="an empty text"
            )
    return ids, to_keys(ids, "string") if ids else np.zeros(0, dtype=np.int64)


def _int64s(candidates: pb.Candidates, plain: str, packed: str) -> IntArray | None:
    """Give the numbers of one of the two forms; None where neither is there."""
    numbers, data = getattr(candidates, plain), getattr(candidates, packed)
    if numbers and data:
        raise InvalidRequest(f"candidates.{packed}", expected=f"{plain} or this", got="both")
    if data:
        if len(data) % INT64_BYTES:
            raise InvalidRequest(
                f"candidates.{packed}", expected="8 bytes a number", got=f"{len(data)} bytes"
            )
        return np.frombuffer(data, dtype="<i8").astype(np.int64, copy=False)
    return np.array(numbers, dtype=np.int64) if numbers else None


def _values(values: Mapping[str, pb.FeatureValue]) -> dict[str, RawValue]:
    return {name: _value(value) for name, value in values.items()}


def _value(value: pb.FeatureValue) -> RawValue:
    kind = value.WhichOneof("kind")
    return None if kind is None else getattr(value, kind)


def _columns(candidates: pb.Candidates) -> dict[str, Sequence[RawValue]]:
    columns: dict[str, Sequence[RawValue]] = {}
    for place, column in enumerate(candidates.columns):
        field = f"candidates.columns[{place}]"
        if column.name in columns:
            raise InvalidRequest(f"{field}.name", expected="each name once", got=column.name)
        columns[column.name] = _column(column, field)
    return columns


def _column(column: pb.FeatureColumn, field: str) -> Sequence[RawValue]:
    forms = [form for form in (column.texts, column.integers, column.numbers) if form]
    if not column.name:
        raise InvalidRequest(f"{field}.name", expected="a feature", got="an empty text")
    if len(forms) > 1:
        raise InvalidRequest(f"{field}", expected="one of texts, integers and numbers", got="more")
    return list(forms[0]) if forms else []
