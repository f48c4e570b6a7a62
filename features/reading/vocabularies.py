"""What an encoder may learn its vocabularies from: nothing that training could not have seen.

A value counts once for every impression or event that it belongs to, where the row (and, for an
event, its arrival) is earlier than the end of the window: as its own column, or as a feature of the
row's item or user. So no value has a code without `min_count` chances to learn what it means. The
vocabulary of surfaces is the schema's list, whatever was seen.

Cost: memory for the distinct values, not for the rows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.arrays import Arrays, IntArray
from features.encoding import Encoder, as_text
from features.reading.columns import Owner
from features.reading.tables import TableBatch, feature_type, id_type
from features.schema import SURFACE, FeatureSpec, Schema, SourceSpec

_MAX_PENDING_ROWS = 1_000_000


class Tally:
    """How often each value was met."""

    def __init__(self) -> None:
        self._parts: list[pa.Table] = []
        self._num_pending = 0

    def add(self, values: pa.Array | pa.ChunkedArray, counts: Any = None) -> None:
        """Count values once each, or as often as `counts` says."""
        if counts is None:
            found = pc.value_counts(pc.drop_null(values))
            values, counts = found.field("values"), found.field("counts")
        part = pa.table({"value": as_text(values), "num": pc.cast(pa.array(counts), pa.int64())})
        self._parts.append(part)
        self._num_pending += part.num_rows
        # At least as much as is there already, so that it is not summed again at every call.
        if self._num_pending > max(_MAX_PENDING_ROWS, self._parts[0].num_rows):
            self._parts, self._num_pending = [self._joined()], 0

    def counts(self) -> dict[str, int]:
        """Give value to count."""
        if not self._parts:
            return {}
        table = self._joined()
        return dict(zip(table["value"].to_pylist(), table["num"].to_pylist(), strict=True))

    def _joined(self) -> pa.Table:
        sums = pa.concat_tables(self._parts).group_by("value").aggregate([("num", "sum")])
        return pa.table({"value": sums["value"], "num": sums["num_sum"]})


@dataclass(frozen=True)
class EntityValues:
    """The categories of items or users, as they are in their table.

    Shapes:
        keys: (V,), sorted. order: (V,), the row of each key. met: (V,), how often a key was met.
        columns: by feature, (V,), in the order of the table.
    """

    keys: IntArray
    order: IntArray
    met: IntArray
    columns: dict[str, pa.ChunkedArray]

    @classmethod
    def of(cls, keys: IntArray, columns: dict[str, pa.ChunkedArray]) -> EntityValues:
        """Build it from a table's rows in any order."""
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], order, np.zeros(len(keys), dtype=np.int64), columns)

    def meet(self, keys: IntArray) -> None:
        """Count the rows of these keys once for each time that the key is there."""
        if not len(self.keys):
            return
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        places = places[self.keys[places] == keys]
        self.met[:] += np.bincount(self.order[places], minlength=len(self.met))


class VocabularyCounts:
    """Counts the values of a log's batches and makes the encoder.

    Args:
        schema: says what feeds which vocabulary.
        entities: items and users.
        until_ms: end of the window.
    """

    def __init__(
        self, schema: Schema, entities: dict[Owner, EntityValues], *, until_ms: int
    ) -> None:
        self._schema, self._entities, self._until_ms = schema, entities, until_ms
        self._tallies: dict[str, Tally] = defaultdict(Tally)
        self._hashed = {v.name for v in schema.vocabularies if v.policy == "hashed"} | {SURFACE}

    def impression_columns(self) -> list[str]:
        """The files' columns that `add_impressions` looks at."""
        ids = [self._schema.user.column, self._schema.item.column]
        return [*ids, *(f.column for f in self._counted(self._schema.features_of("context")))]

    def event_columns(self, source: SourceSpec) -> list[str]:
        """The files' columns that `add_events` looks at."""
        ids = [source.user_column, *([source.item_column] if source.item_column else [])]
        return [*ids, *(column.column for column in self._counted(source.columns))]

    def add_impressions(self, batch: TableBatch, arrays: Arrays) -> None:
        """Count a batch of impressions."""
        early = arrays["at_ms"] < self._until_ms
        for feature in self._counted(self._schema.features_of("context")):
            self._count(batch, feature, early)
        self._meet("user", batch, self._schema.user.column, arrays["user_keys"], early)
        self._meet("item", batch, self._schema.item.column, arrays["item_keys"], early)

    def add_events(self, source: SourceSpec, batch: TableBatch, arrays: Arrays) -> None:
        """Count a batch of a source's events."""
        early = arrays["at_ms"] < self._until_ms
        if "arrival_ms" in arrays:
            early &= arrays["arrival_ms"] < self._until_ms
        for column in self._counted(source.columns):
            self._count(batch, column, early)
        self._meet("user", batch, source.user_column, arrays["user_keys"], early)
        if source.item_column is not None:
            self._meet("item", batch, source.item_column, arrays["item_keys"], early)

    def encoder(self) -> Encoder:
        """Give the encoder of what was counted."""
        for owner, entities in self._entities.items():
            for feature in self._counted(self._schema.features_of(owner)):
                if feature.column != self._schema.id_column(owner) and entities.met.any():
                    is_met = pa.array(entities.met > 0)
                    values = entities.columns[feature.name].filter(is_met)
                    has_value = np.asarray(pc.is_valid(values), dtype=bool)
                    met = entities.met[entities.met > 0][has_value]
                    self._tallies[str(feature.vocabulary)].add(pc.drop_null(values), met)
        counts = {name: tally.counts() for name, tally in self._tallies.items()}
        counts[SURFACE] = dict.fromkeys(self._schema.surfaces, 1)
        return Encoder.of_counts(self._schema, counts, until_ms=self._until_ms)

    def _counted(self, features: tuple[FeatureSpec, ...]) -> list[FeatureSpec]:
        return [
            feature
            for feature in features
            if feature.vocabulary is not None and feature.vocabulary not in self._hashed
        ]

    def _count(self, batch: TableBatch, feature: FeatureSpec, early: npt.NDArray[np.bool_]) -> None:
        values = batch.column(feature.column, feature_type(feature)).filter(pa.array(early))
        self._tallies[str(feature.vocabulary)].add(values)

    def _meet(
        self,
        owner: Owner,
        batch: TableBatch,
        column: str,
        keys: IntArray,
        early: npt.NDArray[np.bool_],
    ) -> None:
        self._entities[owner].meet(keys[early])
        spec = self._schema.item if owner == "item" else self._schema.user
        for feature in self._counted(self._schema.features_of(owner)):
            if feature.column == self._schema.id_column(owner):
                ids = batch.column(column, id_type(spec)).filter(pa.array(early))
                self._tallies[str(feature.vocabulary)].add(ids)
