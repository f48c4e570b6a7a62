"""The tables of a log as they were written: typed and timed, not yet encoded.

Columns are found here by what they mean (a feature's or an objective's name), so that one column
of a file may be an id, a category and a number at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from features.arrays import IntArray
from features.ids import IdDtype, to_keys
from features.schema import IdSpec, Schema, SourceSpec
from features.tables import feature_type, id_type, read_columns, time_type
from features.times import to_ms

Owner = Literal["item", "user"]
_Wanted = dict[str, tuple[str, pa.DataType | None]]


@dataclass(frozen=True, kw_only=True)
class RawImpressions:
    """The impression table in the order of its file.

    Attributes:
        where: the file, for errors.
        item_ids, user_ids: as written; the keys are theirs.
        features, labels, weights: columns by name of the feature or objective.
    """

    where: str
    example_ids: IntArray
    request_ids: IntArray
    user_ids: pa.ChunkedArray
    user_keys: IntArray
    item_ids: pa.ChunkedArray
    item_keys: IntArray
    at_ms: IntArray
    features: dict[str, pa.ChunkedArray]
    labels: dict[str, pa.ChunkedArray]
    weights: dict[str, pa.ChunkedArray]


@dataclass(frozen=True, kw_only=True)
class RawEvents:
    """One source's table in the order of its file."""

    where: str
    user_ids: pa.ChunkedArray
    user_keys: IntArray
    item_ids: pa.ChunkedArray | None
    item_keys: IntArray | None
    at_ms: IntArray
    arrival_ms: IntArray
    features: dict[str, pa.ChunkedArray]


@dataclass(frozen=True, kw_only=True)
class RawEntities:
    """The table of items or users in the order of its file."""

    where: str
    keys: IntArray
    features: dict[str, pa.ChunkedArray]


@dataclass(frozen=True, kw_only=True)
class RawLog:
    """Every table that a schema names."""

    impressions: RawImpressions
    entities: dict[Owner, RawEntities]
    events: dict[str, RawEvents]


def read_log(folder: Path, schema: Schema) -> RawLog:
    """Read the tables of a data set folder.

    Raises:
        DataError: a file, column, id, moment or value is not what the schema says.
    """
    return RawLog(
        impressions=_read_impressions(folder, schema),
        entities={
            "item": _read_entities(folder / schema.items.path, schema, "item"),
            "user": _read_entities(folder / schema.users.path, schema, "user"),
        },
        events={source.name: _read_events(folder, schema, source) for source in schema.sources},
    )


def _read_impressions(folder: Path, schema: Schema) -> RawImpressions:
    shown, path = schema.impressions, folder / schema.impressions.path
    wanted: _Wanted = {
        "example": (shown.example_column, pa.int64()),
        "request": (shown.request_column, None),
        "at": (schema.time.column, time_type(schema.time)),
        "user": (schema.user.column, id_type(schema.user)),
        "item": (schema.item.column, id_type(schema.item)),
    }
    context = schema.features_of("context")
    wanted |= {f"feature {f.name}": (f.column, feature_type(f)) for f in context}
    for objective in schema.objectives:
        wanted[f"label {objective.name}"] = (objective.label_column, pa.float64())
        if objective.weight_column is not None:
            wanted[f"weight {objective.name}"] = (objective.weight_column, pa.float64())
    table = read_columns(path, wanted)
    request_dtype: IdDtype = "int64" if pa.types.is_integer(table["request"].type) else "string"
    return RawImpressions(
        where=str(path),
        example_ids=_keys(table["example"], path, shown.example_column, "int64"),
        request_ids=_keys(table["request"], path, shown.request_column, request_dtype),
        user_ids=table["user"],
        user_keys=_keys(table["user"], path, schema.user.column, schema.user.dtype),
        item_ids=table["item"],
        item_keys=_keys(table["item"], path, schema.item.column, schema.item.dtype),
        at_ms=to_ms(table["at"], schema.time, where=str(path)),
        features=_part(table, "feature"),
        labels=_part(table, "label"),
        weights=_part(table, "weight"),
    )


def _read_events(folder: Path, schema: Schema, source: SourceSpec) -> RawEvents:
    path = folder / source.path
    wanted: _Wanted = {
        "user": (source.user_column, id_type(schema.user)),
        "at": (source.time.column, time_type(source.time)),
    }
    if source.item_column is not None:
        wanted["item"] = (source.item_column, id_type(schema.item))
    if source.arrival is not None:
        wanted["arrival"] = (source.arrival.column, time_type(source.arrival))
    wanted |= {f"feature {f.name}": (f.column, feature_type(f)) for f in source.columns}
    table = read_columns(path, wanted)
    at_ms = to_ms(table["at"], source.time, where=str(path))
    arrival_ms, items, item_keys = at_ms, None, None
    if source.arrival is not None:
        arrival_ms = to_ms(table["arrival"], source.arrival, where=str(path))
    if source.item_column is not None:
        items = table["item"]
        item_keys = _keys(items, path, source.item_column, schema.item.dtype)
    return RawEvents(
        where=str(path),
        user_ids=table["user"],
        user_keys=_keys(table["user"], path, source.user_column, schema.user.dtype),
        item_ids=items,
        item_keys=item_keys,
        at_ms=at_ms,
        arrival_ms=arrival_ms,
        features=_part(table, "feature"),
    )


def _read_entities(path: Path, schema: Schema, owner: Owner) -> RawEntities:
    spec: IdSpec = schema.item if owner == "item" else schema.user
    wanted: _Wanted = {"id": (spec.column, id_type(spec))}
    wanted |= {f"feature {f.name}": (f.column, feature_type(f)) for f in schema.features_of(owner)}
    table = read_columns(path, wanted)
    keys = _keys(table["id"], path, spec.column, spec.dtype)
    return RawEntities(where=str(path), keys=keys, features=_part(table, "feature"))


def _part(table: pa.Table, kind: str) -> dict[str, pa.ChunkedArray]:
    mark = f"{kind} "
    return {
        name.removeprefix(mark): table[name] for name in table.column_names if name.startswith(mark)
    }


def _keys(column: pa.ChunkedArray, path: Path, name: str, dtype: IdDtype) -> IntArray:
    return to_keys(column, dtype, where=f"{path}, column {name!r}")
