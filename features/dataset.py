"""A data set folder, read, checked and encoded.

A folder holds `schema.yaml`, `splits.yaml` and the tables that the schema names. Loading it fits
the encoder on what was known before the foundation model's training window ends, and keeps the
encoder and the entity tables in `prepared/`, so that every later step reads the same codes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml
from pydantic import TypeAdapter, ValidationError

from features.arrays import FloatArray, IntArray
from features.encoding import NULL, UNKNOWN, Encoder
from features.entities import EntityTable
from features.errors import DataError
from features.ids import to_keys
from features.log import Events, Impressions, Splits
from features.schema import (
    SURFACE,
    FeatureSpec,
    IdSpec,
    Schema,
    SourceSpec,
    load_schema,
)
from features.tables import feature_type, id_type, read_table, time_type
from features.times import to_ms

PREPARED = "prepared"


@dataclass(frozen=True, kw_only=True)
class LogDataset:
    """Everything a step needs to know of a log."""

    folder: Path
    schema: Schema
    splits: Splits
    encoder: Encoder
    items: EntityTable
    users: EntityTable
    impressions: Impressions
    events: dict[str, Events]


def load_dataset(folder: Path) -> LogDataset:
    """Read a data set folder.

    Raises:
        SchemaError: `schema.yaml` is wrong.
        DataError: a table, column, value or label is not what the schema says, with its place.
    """
    schema = load_schema(folder / "schema.yaml")
    splits = load_splits(folder / "splits.yaml")
    raw = _read_tables(folder, schema)
    until_ms = splits.fm_train[1]
    encoder = _prepared_encoder(folder, schema, lambda: _fit(schema, raw, until_ms))
    entities = {
        owner: _entities(schema, encoder, raw[f"{owner}s"], owner, f"{folder}/{owner}s")
        for owner in ("item", "user")
    }
    for owner, table in entities.items():
        table.save(folder / PREPARED / f"{owner}s")
    return LogDataset(
        folder=folder,
        schema=schema,
        splits=splits,
        encoder=encoder,
        items=entities["item"],
        users=entities["user"],
        impressions=_impressions(schema, encoder, raw["impressions"], str(folder)),
        events={s.name: _events(schema, s, encoder, raw[s.name], s.path) for s in schema.sources},
    )


def load_splits(path: Path) -> Splits:
    """Read `splits.yaml`: the windows of time, in order and without overlap.

    Raises:
        DataError: a window is missing, empty, or reaches into the next.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        splits: Splits = TypeAdapter(Splits).validate_python(document)
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise DataError(f"{path}: {error}") from error
    end_ms = splits.history_start_ms
    for name in ("fm_train", "vm_train", "tune", "test"):
        start_ms, stop_ms = getattr(splits, name)
        if start_ms < end_ms or stop_ms <= start_ms:
            raise DataError(
                f"{path}: {name} is [{start_ms}, {stop_ms}), expected a window that is not empty "
                f"and starts at {end_ms} or later"
            )
        end_ms = stop_ms
    return splits


def _read_tables(folder: Path, schema: Schema) -> dict[str, pa.Table]:
    context = schema.features_of("context")
    shown = schema.impressions
    impressions: dict[str, pa.DataType | None] = {
        shown.example_column: pa.int64(),
        shown.request_column: None,
        schema.time.column: time_type(schema.time),
        schema.user.column: id_type(schema.user),
        schema.item.column: id_type(schema.item),
    }
    impressions |= {feature.column: feature_type(feature) for feature in context}
    for objective in schema.objectives:
        impressions[objective.label_column] = pa.float64()
        if objective.weight_column is not None:
            impressions[objective.weight_column] = pa.float64()
    tables = {"impressions": read_table(folder / shown.path, impressions)}
    for owner, id_spec, path in (
        ("item", schema.item, schema.items.path),
        ("user", schema.user, schema.users.path),
    ):
        tables[f"{owner}s"] = _read_entities(folder / path, schema, id_spec, owner)
    for source in schema.sources:
        tables[source.name] = read_table(folder / source.path, _source_types(schema, source))
    return tables


def _read_entities(path: Path, schema: Schema, id_spec: IdSpec, owner: Any) -> pa.Table:
    """Features read the id column itself where they name it, as text; the id stays exact."""
    ids = read_table(path, {id_spec.column: id_type(id_spec)})
    features = schema.features_of(owner)
    columns = read_table(path, {feature.column: feature_type(feature) for feature in features})
    return pa.table({"id": ids[id_spec.column]} | {f.name: columns[f.column] for f in features})


def _source_types(schema: Schema, source: SourceSpec) -> dict[str, pa.DataType | None]:
    types = {column.column: feature_type(column) for column in source.columns}
    types[source.user_column] = id_type(schema.user)
    types[source.time.column] = time_type(source.time)
    if source.item_column is not None:
        types[source.item_column] = id_type(schema.item)
    if source.arrival is not None:
        types[source.arrival.column] = time_type(source.arrival)
    return types


def _fit(schema: Schema, raw: Mapping[str, pa.Table], until_ms: int) -> Encoder:
    """Fit on whole entity tables, but ids and events only as far as training may look."""
    columns: dict[str, list[pa.ChunkedArray]] = {v.name: [] for v in schema.vocabularies}
    columns[SURFACE].append(pa.chunked_array([pa.array(schema.surfaces, pa.string())]))
    shown = raw["impressions"]
    early = to_ms(shown[schema.time.column], schema.time, where="impressions") < until_ms
    shown = shown.filter(pa.array(early))
    for feature in schema.features:
        if feature.vocabulary is None or feature.name == SURFACE:
            continue
        if feature.of == "context":
            columns[feature.vocabulary].append(shown[feature.column])
        elif feature.of == "item" and feature.column == schema.item.column:
            columns[feature.vocabulary].append(pc.cast(shown[schema.item.column], pa.string()))
            columns[feature.vocabulary] += _event_items(schema, raw, until_ms)
        else:
            columns[feature.vocabulary].append(raw[f"{feature.of}s"][feature.name])
    for source in schema.sources:
        for column in source.columns:
            if column.vocabulary is not None:
                events = _before(raw[source.name], source, until_ms)
                columns[column.vocabulary].append(events[column.column])
    return Encoder.fit(schema, columns)


def _event_items(
    schema: Schema, raw: Mapping[str, pa.Table], until_ms: int
) -> list[pa.ChunkedArray]:
    return [
        pc.cast(_before(raw[source.name], source, until_ms)[source.item_column], pa.string())
        for source in schema.sources
        if source.item_column is not None
    ]


def _before(table: pa.Table, source: SourceSpec, until_ms: int) -> pa.Table:
    moments = to_ms(table[source.time.column], source.time, where=source.path)
    return table.filter(pa.array(moments < until_ms))


def _prepared_encoder(folder: Path, schema: Schema, fit: Callable[[], Encoder]) -> Encoder:
    """Read the encoder that was fitted before, or fit it now and keep it."""
    path = folder / PREPARED / "encoder.json"
    if not path.exists():
        encoder = fit()
        encoder.save(path)
        return encoder
    encoder = Encoder.load(path)
    if encoder.schema_id != schema.schema_id:
        raise DataError(
            f"{path}: fitted for schema {encoder.schema_id}, but schema.yaml is now "
            f"{schema.schema_id}; delete {path.parent} to fit again"
        )
    return encoder


def _entities(
    schema: Schema, encoder: Encoder, table: pa.Table, owner: Any, where: str
) -> EntityTable:
    spec = schema.item if owner == "item" else schema.user
    keys = to_keys(table["id"], spec.dtype, where=f"{where}, column {spec.column!r}")
    order = np.argsort(keys, kind="stable")
    repeated = np.flatnonzero(np.diff(keys[order]) == 0)
    if len(repeated):
        rows = order[repeated[:5] + 1].tolist()
        raise DataError(f"{where}: {len(repeated)} ids are repeated; first rows {rows}")
    features = schema.features_of(owner)
    categorical = [f for f in features if f.kind == "categorical"]
    numeric = [f for f in features if f.kind == "numeric"]
    # Of a user without a row nothing is known, online as here; an item without one is unknown.
    cold = UNKNOWN if owner == "item" else NULL
    codes = np.full((len(keys) + 1, len(categorical)), cold, dtype=np.int64)
    for place, feature in enumerate(categorical):
        codes[1:, place] = encoder.codes(feature.vocabulary or "", table[feature.name])[order]
    numbers = np.zeros((len(keys) + 1, len(numeric)), dtype=np.float32)
    for place, feature in enumerate(numeric):
        numbers[1:, place] = encoder.numeric(feature, table[feature.name])[order]
        if feature.default is not None:
            numbers[0, place] = encoder.numeric(feature, [None])[0]
    return EntityTable(
        keys=keys[order],
        codes=codes,
        feature_names=tuple(f.name for f in categorical),
        numeric=numbers,
        numeric_names=tuple(f.name for f in numeric),
    )


def _encode(
    encoder: Encoder, features: tuple[FeatureSpec, ...], table: pa.Table
) -> tuple[dict[str, IntArray], dict[str, FloatArray]]:
    codes, numeric = {}, {}
    for feature in features:
        if feature.kind == "categorical":
            codes[feature.name] = encoder.codes(feature.vocabulary or "", table[feature.column])
        else:
            numeric[feature.name] = encoder.numeric(feature, table[feature.column])
    return codes, numeric


def _events(
    schema: Schema, source: SourceSpec, encoder: Encoder, table: pa.Table, where: str
) -> Events:
    at_ms = to_ms(table[source.time.column], source.time, where=where)
    arrival_ms = at_ms
    if source.arrival is not None:
        arrival_ms = to_ms(table[source.arrival.column], source.arrival, where=where)
    items = None
    if source.item_column is not None:
        items = to_keys(table[source.item_column], schema.item.dtype, where=f"{where}, items")
    codes, numeric = _encode(encoder, source.columns, table)
    return Events(
        user_keys=to_keys(table[source.user_column], schema.user.dtype, where=f"{where}, users"),
        at_ms=at_ms,
        arrival_ms=arrival_ms,
        item_keys=items,
        codes=codes,
        numeric=numeric,
    )


def _impressions(schema: Schema, encoder: Encoder, table: pa.Table, folder: str) -> Impressions:
    shown, where = schema.impressions, f"{folder}/{schema.impressions.path}"
    _require_surfaces(schema, table[shown.surface_column], where)
    at_ms = to_ms(table[schema.time.column], schema.time, where=where)
    requests = table[shown.request_column]
    request_ids = to_keys(
        requests, "int64" if pa.types.is_integer(requests.type) else "string", where=where
    )
    examples = np.asarray(table[shown.example_column], dtype=np.int64)
    codes, numeric = _encode(encoder, schema.features_of("context"), table)
    impressions = Impressions(
        example_ids=examples,
        request_ids=request_ids,
        user_keys=to_keys(table[schema.user.column], schema.user.dtype, where=f"{where}, users"),
        item_keys=to_keys(table[schema.item.column], schema.item.dtype, where=f"{where}, items"),
        at_ms=at_ms,
        codes=codes,
        numeric=numeric,
        labels={
            o.name: _label(table[o.label_column], o.label_column, where) for o in schema.objectives
        },
        weights=_weights(schema, table, where),
    )
    return impressions.take(np.lexsort((examples, request_ids, at_ms)))


def _require_surfaces(schema: Schema, column: pa.ChunkedArray, where: str) -> None:
    known = pa.array(schema.surfaces, pa.string())
    stray = np.flatnonzero(~np.asarray(pc.is_in(column, value_set=known), dtype=bool))
    if len(stray):
        raise DataError(
            f"{where}, column {schema.impressions.surface_column!r}: {len(stray)} rows are on none "
            f"of {list(schema.surfaces)}; row {stray[0]} holds {column[int(stray[0])].as_py()!r}"
        )


def _label(column: pa.ChunkedArray, name: str, where: str) -> FloatArray:
    """A missing label is not a negative: it stops the load."""
    values = column.to_numpy()
    missing, other = np.isnan(values), ~np.isnan(values) & (values != 0) & (values != 1)
    if missing.any() or other.any():
        rows = np.flatnonzero(missing | other)[:5].tolist()
        raise DataError(
            f"{where}, column {name!r}: {int(missing.sum())} labels missing, {int(other.sum())} "
            f"outside {{0, 1}}; first rows {rows}"
        )
    labels: FloatArray = values.astype(np.float32)
    return labels


def _weights(schema: Schema, table: pa.Table, where: str) -> FloatArray:
    columns = {o.weight_column for o in schema.objectives if o.weight_column is not None}
    if len(columns) > 1:
        raise DataError(f"{where}: objectives name different weight columns {sorted(columns)}")
    if not columns:
        return np.ones(len(table), dtype=np.float32)
    name = columns.pop()
    weights: FloatArray = table[name].to_numpy().astype(np.float32)
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))
    if len(bad):
        raise DataError(
            f"{where}, column {name!r}: {len(bad)} weights are not above 0; rows {bad[:5].tolist()}"
        )
    return weights
