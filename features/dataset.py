"""A data set folder, read, checked and encoded.

A folder holds `schema.yaml`, `splits.yaml` and the tables that the schema names. The first load
fits the encoder on what was known before the foundation model's training window ends, and keeps it
in `prepared/encoder.json`, so that every later step reads the same codes. It is never refitted
behind the user's back: an encoder of another schema or window is refused until it is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.arrays import FloatArray, IntArray
from features.encoding import NULL, UNKNOWN, Encoder
from features.entities import EntityTable
from features.errors import DataError
from features.log import Events, Impressions, Splits
from features.rawlog import Owner, RawEntities, RawEvents, RawImpressions, read_log
from features.schema import SURFACE, FeatureSpec, Schema, SourceSpec, load_schema
from features.splits import load_splits
from features.vocabularies import fit_encoder

__all__ = ["PREPARED", "LogDataset", "load_dataset", "load_splits"]

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
    """Read a data set folder; keeps the encoder in it if there is none yet and all is well.

    Several processes may load one folder at once.

    Raises:
        SchemaError: `schema.yaml` is wrong.
        DataError: a table, column, value or label is not what the schema says, with its place;
            or `prepared/` was made for another schema or training window.
    """
    schema = load_schema(folder / "schema.yaml")
    splits = load_splits(folder / "splits.yaml")
    path, until_ms = folder / PREPARED / "encoder.json", splits.fm_train[1]
    prepared = _read_prepared(path, schema, until_ms)
    log = read_log(folder, schema)
    encoder = prepared or fit_encoder(schema, log, until_ms=until_ms)
    dataset = LogDataset(
        folder=folder,
        schema=schema,
        splits=splits,
        encoder=encoder,
        items=_entities(schema, encoder, log.entities["item"], "item"),
        users=_entities(schema, encoder, log.entities["user"], "user"),
        impressions=_impressions(schema, encoder, log.impressions),
        events={s.name: _events(s, encoder, log.events[s.name]) for s in schema.sources},
    )
    if prepared is None:
        _keep(path, encoder)
    return dataset


def _read_prepared(path: Path, schema: Schema, until_ms: int) -> Encoder | None:
    if not path.exists():
        return None
    remedy = f"delete {path.parent} to fit again (models that were trained on it are then refused)"
    try:
        encoder = Encoder.load(path)
    except DataError as error:
        raise DataError(f"{error}; {remedy}") from error
    if encoder.schema_id != schema.schema_id:
        raise DataError(
            f"{path}: fitted for schema {encoder.schema_id}, but schema.yaml is now "
            f"{schema.schema_id}; {remedy}"
        )
    # An encoder without the note was fitted by hand: whoever put it here answers for its window.
    if encoder.fitted_until_ms not in {None, until_ms}:
        raise DataError(
            f"{path}: fitted on what was before {encoder.fitted_until_ms}, but fm_train in "
            f"splits.yaml now ends at {until_ms}; {remedy}"
        )
    return encoder


def _keep(path: Path, encoder: Encoder) -> None:
    try:
        encoder.save(path)
    except OSError as error:
        raise DataError(
            f"{path}: the fitted encoder cannot be kept ({error}); make the folder writable for "
            "the first load, since every later step must read the same codes"
        ) from error


def _entities(schema: Schema, encoder: Encoder, table: RawEntities, owner: Owner) -> EntityTable:
    order = np.argsort(table.keys, kind="stable")
    keys = table.keys[order]
    repeated = np.flatnonzero(np.diff(keys) == 0)
    if len(repeated):
        rows = sorted(order[repeated + 1].tolist())[:5]
        raise DataError(f"{table.where}: {len(repeated)} ids are repeated; first rows {rows}")
    features = schema.features_of(owner)
    codes, numeric = _encode(encoder, features, table.features, table.where)
    # Of a user without a row nothing is known, online as here; an item without one is unknown.
    cold = UNKNOWN if owner == "item" else NULL
    code_table = np.full((len(keys) + 1, len(codes)), cold, dtype=np.int64)
    for place, column in enumerate(codes.values()):
        code_table[1:, place] = column[order]
    number_table = np.zeros((len(keys) + 1, len(numeric)), dtype=np.float32)
    for place, (name, numbers) in enumerate(numeric.items()):
        number_table[1:, place] = numbers[order]
        feature = schema.feature(name)
        if feature.default is not None:
            number_table[0, place] = encoder.numeric(feature, [None])[0]
    return EntityTable(
        keys=keys,
        codes=code_table,
        feature_names=tuple(codes),
        numeric=number_table,
        numeric_names=tuple(numeric),
    )


def _encode(
    encoder: Encoder,
    features: tuple[FeatureSpec, ...],
    columns: Mapping[str, pa.ChunkedArray],
    where: str,
) -> tuple[dict[str, IntArray], dict[str, FloatArray]]:
    codes, numeric = {}, {}
    for feature in features:
        values = columns[feature.name]
        try:
            if feature.vocabulary is not None:
                codes[feature.name] = encoder.codes(feature.vocabulary, values)
            else:
                numeric[feature.name] = encoder.numeric(feature, values)
        except DataError as error:
            raise DataError(f"{where}: {error}") from error
    return codes, numeric


def _events(source: SourceSpec, encoder: Encoder, table: RawEvents) -> Events:
    codes, numeric = _encode(encoder, source.columns, table.features, table.where)
    return Events(
        user_keys=table.user_keys,
        at_ms=table.at_ms,
        arrival_ms=table.arrival_ms,
        item_keys=table.item_keys,
        codes=codes,
        numeric=numeric,
    )


def _impressions(schema: Schema, encoder: Encoder, table: RawImpressions) -> Impressions:
    where = table.where
    _require_surfaces(schema, table.features[SURFACE], where)
    _require_unique(table.example_ids, schema.impressions.example_column, where)
    codes, numeric = _encode(encoder, schema.features_of("context"), table.features, where)
    impressions = Impressions(
        example_ids=table.example_ids,
        request_ids=table.request_ids,
        user_keys=table.user_keys,
        item_keys=table.item_keys,
        at_ms=table.at_ms,
        codes=codes,
        numeric=numeric,
        labels={
            o.name: _label(table.labels[o.name], o.label_column, where) for o in schema.objectives
        },
        weights=_weights(schema, table),
    )
    return impressions.take(np.lexsort((table.example_ids, table.request_ids, table.at_ms)))


def _require_surfaces(schema: Schema, column: pa.ChunkedArray, where: str) -> None:
    known = pa.array(schema.surfaces, pa.string())
    stray = np.flatnonzero(~np.asarray(pc.is_in(column, value_set=known), dtype=bool))
    if len(stray):
        raise DataError(
            f"{where}, column {schema.impressions.surface_column!r}: {len(stray)} rows are on none "
            f"of {list(schema.surfaces)}; row {stray[0]} holds {column[int(stray[0])].as_py()!r}"
        )


def _require_unique(example_ids: IntArray, name: str, where: str) -> None:
    """What the foundation model says of an example is found by its id."""
    order = np.argsort(example_ids, kind="stable")
    repeated = order[1:][np.diff(example_ids[order]) == 0]
    if len(repeated):
        rows = sorted(repeated.tolist())[:5]
        raise DataError(
            f"{where}, column {name!r}: {len(repeated)} example ids are there already in an "
            f"earlier row; first rows {rows}"
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


def _weights(schema: Schema, table: RawImpressions) -> FloatArray:
    columns = {o.weight_column: o.name for o in schema.objectives if o.weight_column is not None}
    if len(columns) > 1:
        raise DataError(
            f"{table.where}: objectives name different weight columns {sorted(columns)}"
        )
    if not columns:
        return np.ones(len(table.at_ms), dtype=np.float32)
    ((name, objective),) = columns.items()
    weights = table.weights[objective].to_numpy()
    bad = np.flatnonzero(~((weights > 0) & (weights <= np.finfo(np.float32).max)))
    if len(bad):
        raise DataError(
            f"{table.where}, column {name!r}: {len(bad)} weights are missing, not finite or not "
            f"above 0; first rows {bad[:5].tolist()}"
        )
    narrow: FloatArray = weights.astype(np.float32)
    return narrow
