"""What each column of each table means: from a file's values to arrays, by the schema's word.

One table is a tuple of columns; one column of a file may be an id, a category and a number at
once. Names of arrays: `user_keys`, `at_ms`, `codes/<feature>`, `numeric/<feature>`,
`labels/<objective>`, `weights/<objective>`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.arrays import FloatArray, IntArray
from features.encoding import NULL, UNKNOWN, Encoder
from features.errors import BadRows, SeveralBadRows
from features.ids import to_keys
from features.numbers import encode_numbers
from features.reading.rejections import Rejections
from features.reading.tables import TableBatch, feature_type, id_type, read_batches, time_type
from features.schema import (
    SURFACE,
    FeatureSpec,
    IdSpec,
    ObjectiveSpec,
    Schema,
    SourceSpec,
    TableFiles,
)
from features.times import TimeSpec, to_ms

Owner = Literal["item", "user"]
AnyArray = npt.NDArray[Any]
Arrays = dict[str, AnyArray]


class EncodingCounts:
    """Counts, by table and feature ("impressions/slot"), of values that say nothing.

    Attributes:
        num_null: missing values. num_unknown: not in the vocabulary.
        num_clipped: numbers moved to a bound.
        is_used: by hashed vocabulary, which of its codes occurred.
    """

    def __init__(self) -> None:
        self.is_used: dict[str, npt.NDArray[np.bool_]] = {}
        self.num_null: Counter[str] = Counter()
        self.num_unknown: Counter[str] = Counter()
        self.num_clipped: Counter[str] = Counter()


@dataclass(frozen=True, kw_only=True)
class Column:
    """One array that is made of one column of a table's files.

    Attributes:
        name: of the array.
        column: of the files.
        kind: Arrow type that it is read in; None as it is.
        convert: gives the array from the values and their place (file and column).
    """

    name: str
    column: str
    kind: pa.DataType | None
    convert: Callable[[pa.ChunkedArray, str], AnyArray]


def read_arrays(
    batches: Iterator[TableBatch], columns: Sequence[Column], rejections: Rejections
) -> Iterator[tuple[TableBatch, Arrays]]:
    """Give the arrays of each batch in which every row is well; note the others' rows.

    Raises:
        DataError: a column that is wrong as a whole.
    """
    for batch in batches:
        arrays: Arrays = {}
        for column in columns:
            with rejections.noting(batch.where, batch.first_row):
                values = batch.column(column.column, column.kind)
                place = f"{batch.where}, column {column.column!r}"
                arrays[column.name] = column.convert(values, place)
        if len(arrays) == len(columns):
            yield batch, arrays


def file_batches(
    folder: Any, table: TableFiles, columns: Sequence[Column], *more: str
) -> Iterator[TableBatch]:
    """Read the files' columns that these arrays, and `more`, are made of."""
    return read_batches(folder, table, [*(c.column for c in columns), *more])


def id_column(name: str, column: str, spec: IdSpec) -> Column:
    """Keys of users or items."""
    return Column(
        name=name,
        column=column,
        kind=id_type(spec),
        convert=lambda values, place: to_keys(values, spec.dtype, where=place),
    )


def time_column(name: str, spec: TimeSpec) -> Column:
    """Moments in Unix milliseconds."""
    return Column(
        name=name,
        column=spec.column,
        kind=time_type(spec),
        # `to_ms` names the column itself.
        convert=lambda values, place: to_ms(values, spec, where=place.rsplit(", column", 1)[0]),
    )


def impression_keys(schema: Schema) -> tuple[Column, ...]:
    """When an impression was, and of whom and what."""
    return (
        time_column("at_ms", schema.time),
        id_column("user_keys", schema.user.column, schema.user),
        id_column("item_keys", schema.item.column, schema.item),
    )


def impression_columns(
    schema: Schema, encoder: Encoder, counts: EncodingCounts
) -> tuple[Column, ...]:
    """All arrays of the impressions."""
    shown = schema.impressions
    example = IdSpec(column=shown.example_column, dtype="int64")
    found = [
        *impression_keys(schema),
        id_column("example_ids", shown.example_column, example),
        Column(name="request_ids", column=shown.request_column, kind=None, convert=_request_keys),
    ]
    for feature in schema.features_of("context"):
        column = feature_column(feature, encoder, counts, "impressions")
        found.append(_on_a_surface(column, schema) if feature.name == SURFACE else column)
    found += [_label_column(objective) for objective in schema.objectives]
    found += [_weight_column(o) for o in schema.objectives if o.weight_column is not None]
    return tuple(found)


def event_keys(schema: Schema, source: SourceSpec) -> tuple[Column, ...]:
    """When an event was and became known, and of whom and what."""
    found = [
        time_column("at_ms", source.time),
        id_column("user_keys", source.user_column, schema.user),
    ]
    if source.arrival is not None:
        found.append(time_column("arrival_ms", source.arrival))
    if source.item_column is not None:
        found.append(id_column("item_keys", source.item_column, schema.item))
    return tuple(found)


def event_columns(
    schema: Schema, source: SourceSpec, encoder: Encoder, counts: EncodingCounts
) -> tuple[Column, ...]:
    """All arrays of a source's events."""
    columns = [feature_column(f, encoder, counts, source.name) for f in source.columns]
    return (*event_keys(schema, source), *columns)


def entity_keys(schema: Schema, owner: Owner) -> tuple[Column, ...]:
    """Whose row it is."""
    spec = schema.item if owner == "item" else schema.user
    return (id_column("keys", schema.id_column(owner), spec),)


def entity_columns(
    schema: Schema, owner: Owner, encoder: Encoder, counts: EncodingCounts
) -> tuple[Column, ...]:
    """All arrays of the table of items or users."""
    columns = [feature_column(f, encoder, counts, f"{owner}s") for f in schema.features_of(owner)]
    return (*entity_keys(schema, owner), *columns)


def feature_column(
    feature: FeatureSpec, encoder: Encoder, counts: EncodingCounts, table: str
) -> Column:
    """Codes of a category, or a number after its transform; what says nothing is counted."""
    vocabulary, label = feature.vocabulary, f"{table}/{feature.name}"

    def to_codes(values: pa.ChunkedArray, place: str) -> AnyArray:
        codes = encoder.codes(str(vocabulary), values)
        counts.num_null[label] += int(np.count_nonzero(codes == NULL))
        counts.num_unknown[label] += int(np.count_nonzero(codes == UNKNOWN))
        if encoder.num_buckets(str(vocabulary)):
            size = encoder.size(str(vocabulary))
            counts.is_used.setdefault(str(vocabulary), np.zeros(size, dtype=bool))[codes] = True
        return codes

    def to_numbers(values: pa.ChunkedArray, place: str) -> AnyArray:
        encoded = encode_numbers(feature, values)
        counts.num_null[label] += encoded.num_missing
        counts.num_clipped[label] += encoded.num_clipped
        return encoded.values

    is_category = vocabulary is not None
    return Column(
        name=f"{'codes' if is_category else 'numeric'}/{feature.name}",
        column=feature.column,
        kind=feature_type(feature),
        convert=to_codes if is_category else to_numbers,
    )


def _request_keys(values: pa.ChunkedArray, place: str) -> IntArray:
    return to_keys(values, "int64" if pa.types.is_integer(values.type) else "string", where=place)


def _on_a_surface(column: Column, schema: Schema) -> Column:
    known = pa.array(schema.surfaces, pa.string())

    def convert(values: pa.ChunkedArray, place: str) -> AnyArray:
        stray = np.flatnonzero(~np.asarray(pc.is_in(values, value_set=known), dtype=bool)).tolist()
        if stray:
            raise BadRows(
                place,
                f"rows are on none of {list(schema.surfaces)}",
                stray,
                example=repr(values[stray[0]].as_py()),
            )
        return column.convert(values, place)

    return Column(name=column.name, column=column.column, kind=column.kind, convert=convert)


def _label_column(objective: ObjectiveSpec) -> Column:
    """Labels of 0 and 1; bad ones are not numbers where the schema says to drop their rows."""

    def convert(values: pa.ChunkedArray, place: str) -> FloatArray:
        numbers = values.to_numpy()
        missing = np.isnan(numbers)
        other = ~missing & (numbers != 0) & (numbers != 1)
        if objective.bad_labels == "drop":
            return np.where(missing | other, np.nan, numbers).astype(np.float32)
        bad = [
            _bad_labels(place, numbers, is_bad, problem)
            for is_bad, problem in ((missing, "are missing"), (other, "are not 0 or 1"))
            if is_bad.any()
        ]
        if bad:
            raise SeveralBadRows(bad)
        return np.asarray(numbers, dtype=np.float32)

    return Column(
        name=f"labels/{objective.name}",
        column=objective.label_column,
        kind=pa.float64(),
        convert=convert,
    )


def _bad_labels(place: str, numbers: AnyArray, is_bad: AnyArray, problem: str) -> BadRows:
    rows = np.flatnonzero(is_bad).tolist()
    return BadRows(
        place,
        f"labels {problem}",
        rows,
        example="nothing" if np.isnan(numbers[rows[0]]) else f"{numbers[rows[0]]:g}",
        hint="a row without a label is no negative; `bad_labels: drop` leaves it out",
    )


def _weight_column(objective: ObjectiveSpec) -> Column:
    def convert(values: pa.ChunkedArray, place: str) -> FloatArray:
        numbers = values.to_numpy()
        bad = np.flatnonzero(~((numbers > 0) & (numbers <= np.finfo(np.float32).max))).tolist()
        if bad:
            raise BadRows(place, "weights are missing, not finite or not above 0", bad)
        return np.asarray(numbers, dtype=np.float32)

    assert objective.weight_column is not None
    return Column(
        name=f"weights/{objective.name}",
        column=objective.weight_column,
        kind=pa.float64(),
        convert=convert,
    )
