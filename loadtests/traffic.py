"""Ranking requests made from the impressions of a log: real users, real baskets, real placements.

A request asks for the items of one logged request, first in their logged order, and is filled up
to a stated number of candidates with other items of the same window. What the log says of a whole
request (the hour, the shop) is the request's own; what differs between its items (the placement)
comes with each item from the row it was shown in.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from features.arrays import IntArray
from features.errors import DataError
from features.reading.tables import feature_type, id_type, read_table, time_type
from features.schema import FeatureSpec, Schema, VerticalSpec, load_schema
from features.times import to_ms
from protos import ranking_pb2

# Of the lognormal law of bids: half of them below 1 currency unit, one in forty above 4.
_BID_SIGMA = 0.7
_MICROS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class TrafficPlan:
    """What the requests should look like.

    Attributes:
        num_requests: more than the log has: its requests come again, filled up differently.
        num_candidates: in every request; a logged request with more is cut.
        start_ms, end_ms: window of the impressions used, half-open; None for no bound.
        seed: of the choice of requests, of the filling and of the bids.
    """

    vertical: str
    num_requests: int
    num_candidates: int
    start_ms: int | None = None
    end_ms: int | None = None
    seed: int = 0


def build_requests(folder: Path, plan: TrafficPlan) -> list[ranking_pb2.RankRequest]:
    """Give ranking requests made from a data set folder; the same plan gives the same requests.

    Bids are lognormal around one currency unit.

    Raises:
        SchemaError: the vertical is unknown, or the schema is wrong.
        DataError: the window has no impression of the vertical, or too few items to fill with.
        ValueError: a number in the plan is below 1.
    """
    for name in ("num_requests", "num_candidates"):
        if getattr(plan, name) < 1:
            raise ValueError(f"{name}: expected 1 or more, got {getattr(plan, name)}")
    schema = load_schema(folder / "schema.yaml")
    vertical = schema.vertical(plan.vertical)
    log = _read(folder, schema, vertical, start_ms=plan.start_ms, end_ms=plan.end_ms)
    rng = np.random.default_rng(plan.seed)
    rounds = -(-plan.num_requests // len(log.starts))
    order = np.concatenate([rng.permutation(len(log.starts)) for _ in range(rounds)])
    requests = []
    for number, place in enumerate(order[: plan.num_requests].tolist()):
        own = np.arange(log.starts[place], log.stops[place])
        rows = _fill(log, own, plan.num_candidates, rng)
        request = _request(log, int(own[0]), rows, request_id=f"load-{number}", vertical=vertical)
        bids = np.rint(rng.lognormal(0.0, _BID_SIGMA, len(rows)) * _MICROS).astype("<i8")
        request.candidates.bid_micros_le = bids.tobytes()
        requests.append(request)
    return requests


@dataclass(frozen=True, kw_only=True)
class LoggedRequest:
    """A request exactly as the log has it, without bids.

    Shapes:
        example_ids: (N,), int64; the impression of each candidate, in the request's order.
    """

    request: ranking_pb2.RankRequest
    at_ms: int
    example_ids: IntArray


def logged_requests(
    folder: Path, vertical: str, *, start_ms: int, end_ms: int
) -> list[LoggedRequest]:
    """Give the requests of a window as they were, in time order.

    Raises:
        SchemaError, DataError: as for build_requests.
    """
    schema = load_schema(folder / "schema.yaml")
    spec = schema.vertical(vertical)
    log = _read(folder, schema, spec, start_ms=start_ms, end_ms=end_ms)
    examples = np.asarray(log.table[schema.impressions.example_column], dtype=np.int64)
    logged = []
    for start, stop in zip(log.starts.tolist(), log.stops.tolist(), strict=True):
        rows = np.arange(start, stop)
        request = _request(log, start, rows, request_id=f"log-{start}", vertical=spec)
        logged.append(
            LoggedRequest(request=request, at_ms=int(log.at_ms[start]), example_ids=examples[rows])
        )
    return logged


@dataclass(frozen=True, kw_only=True)
class _Log:
    """Impressions of a window, sorted by request.

    Shapes:
        starts: (R,), int64; first row of each request. rows of request r: starts[r] to stops[r].
        one_row_per_item: (V,), int64; a row for each different item, to fill up with.
    """

    schema: Schema
    table: pa.Table
    at_ms: IntArray
    item_index: IntArray
    starts: IntArray
    stops: IntArray
    one_row_per_item: IntArray
    of_request: tuple[FeatureSpec, ...]
    of_candidate: tuple[FeatureSpec, ...]
    values: dict[str, npt.NDArray[np.object_]]


def _read(
    folder: Path,
    schema: Schema,
    vertical: VerticalSpec,
    *,
    start_ms: int | None,
    end_ms: int | None,
) -> _Log:
    table, at_ms = _read_window(folder, schema, vertical, start_ms=start_ms, end_ms=end_ms)
    requests = _index(table[schema.impressions.request_column])
    users = _index(table[schema.user.column])
    order = np.lexsort((np.arange(len(at_ms)), users, requests, at_ms))
    table, at_ms = table.take(pa.array(order)), at_ms[order]
    columns = (at_ms, requests[order], users[order])
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = np.any([np.diff(column) != 0 for column in columns], axis=0)
    starts = np.flatnonzero(is_first).astype(np.int64)
    items = _index(table[schema.item.column])
    context = [f for f in schema.features_of("context") if f.name in vertical.features]
    differs = {f.name: _differs(_index(table[f.column]), starts) for f in context}
    return _Log(
        schema=schema,
        table=table,
        at_ms=at_ms,
        item_index=items,
        starts=starts,
        stops=np.append(starts[1:], len(order)).astype(np.int64),
        one_row_per_item=np.unique(items, return_index=True)[1].astype(np.int64),
        of_request=tuple(f for f in context if not differs[f.name]),
        of_candidate=tuple(f for f in context if differs[f.name]),
        values={f.name: _values(f, table[f.column]) for f in context},
    )


def _read_window(
    folder: Path,
    schema: Schema,
    vertical: VerticalSpec,
    *,
    start_ms: int | None,
    end_ms: int | None,
) -> tuple[pa.Table, IntArray]:
    shown = schema.impressions
    types: dict[str, pa.DataType | None] = {
        shown.request_column: None,
        shown.example_column: pa.int64(),
        shown.surface_column: pa.string(),
        schema.time.column: time_type(schema.time),
        schema.user.column: id_type(schema.user),
        schema.item.column: id_type(schema.item),
    }
    types |= {feature.column: feature_type(feature) for feature in schema.features_of("context")}
    table = read_table(folder, shown, types)
    at_ms = to_ms(table[schema.time.column], schema.time, where=shown.path)
    is_used = np.isin(table[shown.surface_column].to_pylist(), vertical.surfaces)
    if start_ms is not None:
        is_used &= at_ms >= start_ms
    if end_ms is not None:
        is_used &= at_ms < end_ms
    if not is_used.any():
        raise DataError(
            f"{folder / shown.path}: no impression on {list(vertical.surfaces)} in "
            f"[{start_ms}, {end_ms})"
        )
    return table.filter(pa.array(is_used)), at_ms[is_used]


def _request(
    log: _Log, first: int, rows: IntArray, *, request_id: str, vertical: VerticalSpec
) -> ranking_pb2.RankRequest:
    """Give the request of row `first`'s user and moment for the candidates of these rows."""
    schema = log.schema
    request = ranking_pb2.RankRequest(
        request_id=request_id, vertical=vertical.name, at_ms=int(log.at_ms[first])
    )
    user = log.table[schema.user.column][first].as_py()
    if schema.user.dtype == "int64":
        request.user_id_int = user
    else:
        request.user_id_str = user
    for feature in log.of_request:
        _set_value(request.context[feature.name], log.values[feature.name][first])
    items = log.table[schema.item.column].take(pa.array(rows))
    if schema.item.dtype == "int64":
        request.candidates.item_ids_le = np.asarray(items, dtype="<i8").tobytes()
    else:
        request.candidates.item_ids_str.extend(items.to_pylist())
    for feature in log.of_candidate:
        column = request.candidates.columns.add(name=feature.name)
        kept = column.numbers if feature.kind == "numeric" else column.texts
        kept.extend(log.values[feature.name][rows].tolist())
    return request


def _fill(log: _Log, own: IntArray, num_candidates: int, rng: np.random.Generator) -> IntArray:
    """Give the rows of a request's candidates: its own items once each, then others at random."""
    _, firsts = np.unique(log.item_index[own], return_index=True)
    own = own[np.sort(firsts)][:num_candidates]
    num_others = num_candidates - len(own)
    others = log.one_row_per_item
    others = others[~np.isin(log.item_index[others], log.item_index[own])]
    if num_others > len(others):
        raise DataError(
            f"{log.schema.impressions.path}: {len(log.one_row_per_item)} different items in the "
            f"window, expected at least the {num_candidates} candidates of a request"
        )
    return np.concatenate([own, rng.choice(others, num_others, replace=False)]).astype(np.int64)


def _set_value(slot: ranking_pb2.FeatureValue, value: str | float) -> None:
    if isinstance(value, str):
        slot.text = value
    else:
        slot.number = value


def _values(feature: FeatureSpec, column: pa.ChunkedArray) -> npt.NDArray[np.object_]:
    """Give values as the request carries them: no text for a null, the default for no number."""
    missing = "" if feature.kind == "categorical" else feature.default or 0.0
    return np.array(
        [missing if value is None else value for value in column.to_pylist()], dtype=object
    )


def _index(column: pa.ChunkedArray) -> IntArray:
    """Give the same number for the same value; for columns of any type, nulls included."""
    codes = column.combine_chunks().dictionary_encode(null_encoding="encode").indices
    return np.asarray(codes, dtype=np.int64)


def _differs(values: IntArray, starts: IntArray) -> bool:
    """Tell whether any request has two different values."""
    of_first = np.repeat(values[starts], np.diff(np.append(starts, len(values))))
    return bool((values != of_first).any())
