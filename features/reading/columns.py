"""What each column of each table means: from a file's values to arrays, by the schema's word.

One table is a tuple of columns; one column of a file may be an id, a category and a number at
once. Names of arrays: `user_keys`, `at_ms`, `codes/<feature>`, `numeric/<feature>`,
`labels/<objective>`, `weights/<objective>`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.arrays import AnyArray, Arrays, FloatArray
from features.encoding import NULL, UNKNOWN, Encoder
from features.errors import BadRows, SeveralBadRows
from features.ids import IdDtype, to_keys
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
OWNERS: tuple[Owner, ...] = ("item", "user")


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
    """What is made of one column of a table's files.

    Attributes:
        column: of the files.
        kind: Arrow type that it is read in; None as it is.
        convert: gives arrays by name from the values and their file.
    """

    column: str
    kind: pa.DataType | None
    convert: Callable[[pa.ChunkedArray, str], Arrays]


def read_arrays(
    batches: Iterator[TableBatch], columns: Sequence[Column], rejections: Rejections
) -> Iterator[tuple[TableBatch, Arrays]]:
    """Give the arrays of each batch in which every row is well; note the others' rows.

    Raises:
        DataError: a column that is wrong as a whole.
    """
    for batch in batches:
        arrays: Arrays = {}
        num_done = 0
        for column in columns:
            with rejections.noting(batch.where, batch.first_row):
                values = batch.column(column.column, column.kind)
                arrays |= column.convert(values, batch.where)
                num_done += 1
        if num_done == len(columns):
            yield batch, arrays


def file_batches(
    folder: Path, table: TableFiles, columns: Sequence[Column], *more: str
) -> Iterator[TableBatch]:
    """Read the files' columns that these arrays, and `more`, are made of."""
    return read_batches(folder, table, [*(c.column for c in columns), *more])


def id_column(name: str, column: str, spec: IdSpec) -> Column:
    """Keys of users or items."""

    def convert(values: pa.ChunkedArray, where: str) -> Arrays:
        return {name: to_keys(values, spec.dtype, where=_place(where, column))}

    return Column(column=column, kind=id_type(spec), convert=convert)


def time_column(name: str, spec: TimeSpec) -> Column:
    """Moments in Unix milliseconds."""

    def convert(values: pa.ChunkedArray, where: str) -> Arrays:
        return {name: to_ms(values, spec, where=where)}

    return Column(column=spec.column, kind=time_type(spec), convert=convert)


def impression_keys(schema: Schema) -> tuple[Column, ...]:
    """When an impression was, and of whom and what."""
    return (
        time_column("at_ms", schema.time),
        id_column("user_keys", schema.user.column, schema.user),
        id_column("item_keys", schema.item.column, schema.item),
    )


def example_column(schema: Schema) -> Column:
    """What an impression is called."""
    column = schema.impressions.example_column
    return id_column("example_ids", column, IdSpec(column=column, dtype="int64"))


def impression_columns(
    schema: Schema, encoder: Encoder, counts: EncodingCounts
) -> tuple[Column, ...]:
    """All arrays of the impressions."""
    found = [*impression_keys(schema), example_column(schema), _request_column(schema)]
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
    table, features = f"{owner}s", schema.features_of(owner)
    found = [feature_column(f, encoder, counts, table) for f in features if f.element is None]
    vectors: dict[str, list[FeatureSpec]] = defaultdict(list)
    for feature in features:
        if feature.element is not None:
            vectors[feature.column].append(feature)
    found += [vector_column(elements, counts, table) for elements in vectors.values()]
    return (*entity_keys(schema, owner), *found)


def feature_array(feature: FeatureSpec) -> str:
    """The name of a feature's array."""
    return f"{'numeric' if feature.vocabulary is None else 'codes'}/{feature.name}"


def feature_column(
    feature: FeatureSpec, encoder: Encoder, counts: EncodingCounts, table: str
) -> Column:
    """Codes of a category, or a number after its transform; what says nothing is counted."""
    vocabulary, label = feature.vocabulary, f"{table}/{feature.name}"

    def to_codes(values: pa.ChunkedArray, where: str) -> Arrays:
        codes = encoder.codes(str(vocabulary), values)
        counts.num_null[label] += int(np.count_nonzero(codes == NULL))
        counts.num_unknown[label] += int(np.count_nonzero(codes == UNKNOWN))
        if encoder.num_buckets(str(vocabulary)):
            size = encoder.size(str(vocabulary))
            counts.is_used.setdefault(str(vocabulary), np.zeros(size, dtype=bool))[codes] = True
        return {feature_array(feature): codes}

    def to_numbers(values: pa.ChunkedArray, where: str) -> Arrays:
        return {feature_array(feature): _numbers(feature, values, counts, label)}

    return Column(
        column=feature.column,
        kind=feature_type(feature),
        convert=to_codes if vocabulary is not None else to_numbers,
    )


def vector_column(elements: Sequence[FeatureSpec], counts: EncodingCounts, table: str) -> Column:
    """The numbers of vectors, all of one column."""
    column, dim = elements[0].column, len(elements)

    def convert(values: pa.ChunkedArray, where: str) -> Arrays:
        lengths = pc.list_value_length(values)
        is_other = np.asarray(pc.fill_null(pc.not_equal(lengths, dim), False), dtype=bool)
        if is_other.any():
            rows = np.flatnonzero(is_other).tolist()
            example = f"one of length {lengths[rows[0]].as_py()}"
            problem = f"vectors are not of length {dim}"
            raise BadRows(_place(where, column), problem, rows, example=example)
        return {
            feature_array(feature): _numbers(
                feature,
                pc.list_element(values, feature.element),
                counts,
                f"{table}/{feature.name}",
            )
            for feature in elements
        }

    return Column(column=column, kind=feature_type(elements[0]), convert=convert)


def _numbers(
    feature: FeatureSpec, values: pa.ChunkedArray, counts: EncodingCounts, label: str
) -> FloatArray:
    encoded = encode_numbers(feature, values)
    counts.num_null[label] += encoded.num_missing
    counts.num_clipped[label] += encoded.num_clipped
    return encoded.values


def _place(where: str, column: str) -> str:
    return f"{where}, column {column!r}"


def _request_column(schema: Schema) -> Column:
    column = schema.impressions.request_column

    def convert(values: pa.ChunkedArray, where: str) -> Arrays:
        dtype: IdDtype = "int64" if pa.types.is_integer(values.type) else "string"
        return {"request_ids": to_keys(values, dtype, where=_place(where, column))}

    return Column(column=column, kind=None, convert=convert)


def _on_a_surface(column: Column, schema: Schema) -> Column:
    known = pa.array(schema.surfaces, pa.string())

    def convert(values: pa.ChunkedArray, where: str) -> Arrays:
        stray = np.flatnonzero(~np.asarray(pc.is_in(values, value_set=known), dtype=bool)).tolist()
        if stray:
            raise BadRows(
                _place(where, column.column),
                f"rows are on none of {list(schema.surfaces)}",
                stray,
                example=repr(values[stray[0]].as_py()),
            )
        return column.convert(values, where)

    return replace(column, convert=convert)


def _label_column(objective: ObjectiveSpec) -> Column:
    """Labels of 0 and 1; bad ones are not numbers where the schema says to drop their rows."""
    name, column = f"labels/{objective.name}", objective.label_column

    def convert(values: pa.ChunkedArray, where: str) -> Arrays:
        numbers = values.to_numpy()
        missing = np.isnan(numbers)
        other = ~missing & (numbers != 0) & (numbers != 1)
        if objective.bad_labels == "drop":
            return {name: np.where(missing | other, np.nan, numbers).astype(np.float32)}
        bad = [
            _bad_labels(_place(where, column), numbers, is_bad, problem)
            for is_bad, problem in ((missing, "are missing"), (other, "are not 0 or 1"))
            if is_bad.any()
        ]
        if bad:
            raise SeveralBadRows(bad)
        return {name: np.asarray(numbers, dtype=np.float32)}

    return Column(column=column, kind=pa.float64(), convert=convert)


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
    column = objective.weight_column
    assert column is not None

    def convert(values: pa.ChunkedArray, where: str) -> Arrays:
        numbers = values.to_numpy()
        bad = np.flatnonzero(~((numbers > 0) & (numbers <= np.finfo(np.float32).max))).tolist()
        if bad:
            problem = "weights are missing, not finite or not above 0"
            raise BadRows(_place(where, column), problem, bad)
        return {f"weights/{objective.name}": np.asarray(numbers, dtype=np.float32)}

    return Column(column=column, kind=pa.float64(), convert=convert)
