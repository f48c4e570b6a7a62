"""What an encoder may learn its vocabularies from: nothing that training could not have seen."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.arrays import IntArray
from features.encoding import Encoder
from features.rawlog import Owner, RawLog
from features.schema import SURFACE, FeatureSpec, Schema


def fit_encoder(schema: Schema, log: RawLog, *, until_ms: int) -> Encoder:
    """Fit vocabularies on what was known before a moment.

    A value counts once for every impression or event that it belongs to, where the row (and, for
    an event, its arrival) is earlier: as its own column, or as a feature of the row's item or user.
    So no value has a code without `min_count` chances to learn what it means. The vocabulary of
    surfaces is the schema's list, whatever was seen.
    """
    window = _Window(schema, log, until_ms)
    columns: dict[str, list[pa.ChunkedArray]] = defaultdict(list)
    columns[SURFACE] = [pa.chunked_array([pa.array(schema.surfaces, pa.string())])]
    for feature in schema.features:
        if feature.vocabulary is not None and feature.vocabulary != SURFACE:
            columns[feature.vocabulary] += window.columns(feature)
    for source in schema.sources:
        for column in source.columns:
            if column.vocabulary is not None and column.vocabulary != SURFACE:
                values = log.events[source.name].features[column.name]
                columns[column.vocabulary].append(values.filter(window.events[source.name]))
    return Encoder.fit(schema, columns, until_ms=until_ms)


class _Window:
    """Which rows of each table are early enough."""

    def __init__(self, schema: Schema, log: RawLog, until_ms: int) -> None:
        self._schema, self._log = schema, log
        self.impressions = pa.array(log.impressions.at_ms < until_ms)
        self.events = {
            name: pa.array((events.at_ms < until_ms) & (events.arrival_ms < until_ms))
            for name, events in log.events.items()
        }

    def columns(self, feature: FeatureSpec) -> list[pa.ChunkedArray]:
        """The early values of a feature of context, items or users."""
        if feature.of == "context":
            return [self._log.impressions.features[feature.name].filter(self.impressions)]
        owner: Owner = "item" if feature.of == "item" else "user"
        spec = self._schema.item if owner == "item" else self._schema.user
        if feature.column == spec.column:
            return [pc.cast(ids, pa.string()) for ids in self._ids(owner)]
        entities = self._log.entities[owner]
        order = np.argsort(entities.keys, kind="stable")
        sorted_keys, keys = entities.keys[order], self._keys(owner)
        first = np.searchsorted(sorted_keys, keys, side="left")
        is_found = np.searchsorted(sorted_keys, keys, side="right") > first
        rows = order[first[is_found]]
        # As a dictionary, since there may be far more rows than items.
        return [entities.features[feature.name].dictionary_encode().take(pa.array(rows))]

    def _ids(self, owner: Owner) -> list[pa.ChunkedArray]:
        shown = self._log.impressions
        found = [(shown.item_ids if owner == "item" else shown.user_ids).filter(self.impressions)]
        for name, events in self._log.events.items():
            ids = events.item_ids if owner == "item" else events.user_ids
            if ids is not None:
                found.append(ids.filter(self.events[name]))
        return found

    def _keys(self, owner: Owner) -> IntArray:
        shown = self._log.impressions
        keys = shown.item_keys if owner == "item" else shown.user_keys
        found = [keys[np.asarray(self.impressions)]]
        for name, events in self._log.events.items():
            of_events = events.item_keys if owner == "item" else events.user_keys
            if of_events is not None:
                found.append(of_events[np.asarray(self.events[name])])
        return np.concatenate(found)
