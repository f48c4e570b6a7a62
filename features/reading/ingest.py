"""Reads a log's files into sorted columns: two passes, each a batch at a time.

The first pass looks at keys and moments: it finds how large each table is and where its ranges
begin, and counts what vocabularies are fitted on. The second checks and encodes every column and
sorts by ranges. What is wrong with any row of any table is told at the end of the second, all at
once; nothing is kept then.

Cost: memory for one range of rows, the distinct values, the tables of items and users, and 8 bytes
for each impression; disk for twice the columns of one table.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from features.arrays import Arrays, IntArray
from features.encoding import FIRST, NULL, UNKNOWN, Encoder, collision_frac
from features.entities import EntityTable
from features.errors import BadRows, DataError
from features.log import Splits
from features.numbers import encode_numbers
from features.reading.columnfiles import ColumnWriter
from features.reading.columns import (
    OWNERS,
    EncodingCounts,
    Owner,
    entity_columns,
    entity_keys,
    event_columns,
    event_keys,
    example_column,
    file_batches,
    impression_columns,
    impression_keys,
    read_arrays,
)
from features.reading.prepared import (
    IMPRESSIONS,
    event_dtypes,
    events_folder,
    impression_dtypes,
    repeated,
    segment_dtypes,
    to_events,
)
from features.reading.progress import Progress
from features.reading.rejections import Rejections
from features.reading.report import IngestReport
from features.reading.sorting import KeySample, RangeSorter
from features.reading.tables import feature_type
from features.reading.vocabularies import EntityValues, VocabularyCounts
from features.schema import FeatureSpec, Schema, SourceSpec
from features.segments import Segment


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What the first pass found.

    Attributes:
        samples: of the key that each table is sorted by.
        encoder: given, or fitted.
    """

    samples: dict[str, KeySample]
    encoder: Encoder


def scan_log(
    folder: Path, schema: Schema, *, encoder: Encoder | None, splits: Splits, progress: Progress
) -> Scan:
    """Make the first pass.

    Args:
        folder: of the data set.
        schema: of its tables.
        encoder: to use, or None to fit one on what is before the end of `splits.fm_train`.
        splits: windows.
        progress: told of rows.

    Raises:
        DataError: a file or a whole column is not what the schema says. Bad rows are left to the
            second pass, which sees more of each.
    """
    ignored = Rejections()
    counts = None
    if encoder is None:
        entities = {owner: _entity_values(folder, schema, owner, ignored) for owner in OWNERS}
        counts = VocabularyCounts(schema, entities, until_ms=splits.fm_train[1])
    samples = {
        IMPRESSIONS: KeySample(),
        **{f"events/{s.name}": KeySample() for s in schema.sources},
    }
    columns = impression_keys(schema)
    more = counts.impression_columns() if counts else []
    batches = file_batches(folder, schema.impressions, columns, *more)
    for batch, arrays in read_arrays(batches, columns, ignored):
        samples[IMPRESSIONS].add(arrays["at_ms"])
        if counts:
            counts.add_impressions(batch, arrays)
        progress("scanning impressions", samples[IMPRESSIONS].num_rows)
    for source in schema.sources:
        columns, sample = event_keys(schema, source), samples[f"events/{source.name}"]
        more = counts.event_columns(source) if counts else []
        for batch, arrays in read_arrays(
            file_batches(folder, source, columns, *more), columns, ignored
        ):
            sample.add(arrays["user_keys"])
            if counts:
                counts.add_events(source, batch, arrays)
            progress(f"scanning {source.name}", sample.num_rows)
    fitted = encoder if counts is None else counts.encoder()
    assert fitted is not None
    return Scan(samples=samples, encoder=fitted)


def write_columns(
    folder: Path, schema: Schema, scan: Scan, out: Path, *, progress: Progress
) -> IngestReport:
    """Make the second pass: check, encode and sort everything.

    Args:
        folder: of the data set.
        schema: of its tables.
        scan: of the same files.
        out: where the columns go; exists and is empty.
        progress: told of rows.

    Raises:
        DataError: with a line for each thing that is wrong.
    """
    ingest = _Ingest(folder, schema, scan, out, progress)
    ingest.impressions()
    for owner in OWNERS:
        ingest.entities(owner)
    for source in schema.sources:
        ingest.events(source)
    ingest.rejections.raise_if_any()
    return ingest.report()


class _Ingest:
    def __init__(
        self, folder: Path, schema: Schema, scan: Scan, out: Path, progress: Progress
    ) -> None:
        self._folder, self._schema, self._scan = folder, schema, scan
        self._out, self._progress = out, progress
        self.rejections = Rejections()
        self._counts = EncodingCounts()
        self._num_rows: dict[str, int] = {}
        self._num_dropped: Counter[str] = Counter()

    def report(self) -> IngestReport:
        return IngestReport(
            num_rows=self._num_rows,
            num_dropped=dict(self._num_dropped),
            num_null=dict(self._counts.num_null),
            num_unknown=dict(self._counts.num_unknown),
            num_clipped=dict(+self._counts.num_clipped),
            collision_frac={
                name: collision_frac(int(used[FIRST:].sum()), len(used) - FIRST)
                for name, used in self._counts.is_used.items()
            },
        )

    def impressions(self) -> None:
        """Write the impressions, by time."""
        schema = self._schema
        columns = impression_columns(schema, self._scan.encoder, self._counts)
        sorter = RangeSorter(
            self._out / "ranges",
            impression_dtypes(schema),
            key="at_ms",
            bounds=self._scan.samples[IMPRESSIONS].bounds(),
        )
        with closing(sorter):
            num_read = 0
            batches = file_batches(self._folder, schema.impressions, columns)
            for batch, arrays in read_arrays(batches, columns, self.rejections):
                num_read += len(batch)
                sorter.add(self._kept(self._weighted(arrays)))
                self._progress("reading impressions", num_read)
            self._num_rows[IMPRESSIONS] = sorter.write(self._out / IMPRESSIONS, _by_time)
        self._require_unique_examples()

    def _weighted(self, arrays: Arrays) -> Arrays:
        """Give each row the one weight that the objectives name, or 1."""
        names = {o.name: o.weight_column for o in self._schema.objectives if o.weight_column}
        found = sorted(set(names.values()))
        if len(found) > 1:
            raise DataError(
                f"{self._schema.impressions.path}: objectives name different weight columns {found}"
            )
        weights = [arrays.pop(f"weights/{name}") for name in names]
        num_rows = len(arrays["at_ms"])
        arrays["weights"] = weights[0] if weights else np.ones(num_rows, dtype=np.float32)
        return arrays

    def _kept(self, arrays: Arrays) -> Arrays:
        """Leave out rows without a label, where the schema asks for it, and count them."""
        is_kept = np.ones(len(arrays["at_ms"]), dtype=bool)
        for objective in self._schema.objectives:
            is_bad = np.isnan(arrays[f"labels/{objective.name}"])
            if is_bad.any():
                self._num_dropped[objective.name] += int(is_bad.sum())
                is_kept &= ~is_bad
        if is_kept.all():
            return arrays
        return {name: column[is_kept] for name, column in arrays.items()}

    def _require_unique_examples(self) -> None:
        """What the foundation model says of an example is found by its id."""
        twice = repeated(np.load(self._out / IMPRESSIONS / "example_ids.npy"))
        if not len(twice):
            return
        column = example_column(self._schema)
        seen = np.zeros(len(twice), dtype=bool)
        batches = file_batches(self._folder, self._schema.impressions, [column])
        for batch, arrays in read_arrays(batches, [column], Rejections()):
            again = _repeats(arrays["example_ids"], twice, seen)
            if again:
                place = f"{batch.where}, column {column.column!r}"
                problem = "example ids are there already in an earlier row"
                self.rejections.note(BadRows(place, problem, again).moved(batch.first_row))

    def events(self, source: SourceSpec) -> None:
        """Write a source's events, by user and time, and where each user's begin."""
        columns = event_columns(self._schema, source, self._scan.encoder, self._counts)
        place, dtypes = events_folder(self._out, source.name), event_dtypes(source)
        bounds = self._scan.samples[f"events/{source.name}"].bounds()
        sorter = RangeSorter(self._out / "ranges", dtypes, key="user_keys", bounds=bounds)
        with closing(sorter):
            num_read = 0
            batches = file_batches(self._folder, source, columns)
            for batch, arrays in read_arrays(batches, columns, self.rejections):
                num_read += len(batch)
                sorter.add(arrays)
                self._progress(f"reading {source.name}", num_read)
            num_rows = 0
            with (
                ColumnWriter(place, dtypes) as writer,
                ColumnWriter(place, segment_dtypes()) as segments,
            ):
                for part in sorter.ranges(_as_they_are):
                    segment = Segment.sort(source.name, to_events(part))
                    writer.append(_of_events(segment, dtypes))
                    segments.append(
                        {
                            "users": segment.users,
                            "starts": segment.starts[:-1] + num_rows,
                            "max_delay_ms": segment.max_delay_ms,
                        }
                    )
                    num_rows += len(segment)
                segments.append({"starts": np.array([num_rows])})
        self._num_rows[source.name] = num_rows

    def entities(self, owner: Owner) -> None:
        """Write the table of items or users."""
        schema = self._schema
        table = schema.items if owner == "item" else schema.users
        if table is None:
            self._save_entities(owner, {"keys": np.zeros(0, dtype=np.int64)})
            return
        columns = entity_columns(schema, owner, self._scan.encoder, self._counts)
        parts: list[Arrays] = []
        files: list[tuple[str, int, int]] = []
        batches = file_batches(self._folder, table, columns)
        for batch, arrays in read_arrays(batches, columns, self.rejections):
            parts.append(arrays)
            files.append((batch.where, batch.first_row, len(batch)))
        if not parts:
            return  # every batch had bad rows, which are noted
        arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        again = _repeats(arrays["keys"], repeated(arrays["keys"]), None)
        if again:
            self._note_repeated(again, files)
            return
        self._save_entities(owner, arrays)

    def _save_entities(self, owner: Owner, arrays: Arrays) -> None:
        made = _entity_table(self._schema, owner, arrays)
        made.save(self._out / f"{owner}s")
        self._num_rows[f"{owner}s"] = len(made)

    def _note_repeated(self, rows: list[int], files: list[tuple[str, int, int]]) -> None:
        start = 0
        for where, first_row, num_rows in files:
            here = [row - start for row in rows if start <= row < start + num_rows]
            if here:
                self.rejections.note(BadRows(where, "ids are repeated", here).moved(first_row))
            start += num_rows


def _entity_values(
    folder: Path, schema: Schema, owner: Owner, rejections: Rejections
) -> EntityValues:
    """Read the categories of items or users, each value held once."""
    table = schema.items if owner == "item" else schema.users
    if table is None:
        return EntityValues.of(np.zeros(0, dtype=np.int64), {})
    columns = entity_keys(schema, owner)
    features = [f for f in schema.features_of(owner) if f.vocabulary is not None]
    keys: list[IntArray] = []
    values: dict[str, list[pa.ChunkedArray]] = {feature.name: [] for feature in features}
    batches = file_batches(folder, table, columns, *(f.column for f in features))
    for batch, arrays in read_arrays(batches, columns, rejections):
        keys.append(arrays["keys"])
        for feature in features:
            column = batch.column(feature.column, feature_type(feature))
            values[feature.name].append(column.dictionary_encode())
    chunks = {
        name: pa.chunked_array([c for part in parts for c in part.chunks], _dictionary_type())
        for name, parts in values.items()
    }
    whole = {name: column.unify_dictionaries() for name, column in chunks.items()}
    found = np.concatenate(keys) if keys else np.zeros(0, dtype=np.int64)
    return EntityValues.of(found, whole)


def _dictionary_type() -> pa.DataType:
    return pa.dictionary(pa.int32(), pa.string())


def _entity_table(schema: Schema, owner: Owner, arrays: Arrays) -> EntityTable:
    order = np.argsort(arrays["keys"], kind="stable")
    features = schema.features_of(owner)
    categories = [f.name for f in features if f.vocabulary is not None]
    numbers = [f for f in features if f.vocabulary is None]
    # Of a user without a row nothing is known, online as here; an item without one is unknown.
    cold = UNKNOWN if owner == "item" else NULL
    code_table = np.full((len(order) + 1, len(categories)), cold, dtype=np.int64)
    for place, name in enumerate(categories):
        code_table[1:, place] = arrays[f"codes/{name}"][order]
    number_table = np.zeros((len(order) + 1, len(numbers)), dtype=np.float32)
    for place, feature in enumerate(numbers):
        number_table[1:, place] = arrays[f"numeric/{feature.name}"][order]
        number_table[0, place] = _cold_number(feature)
    return EntityTable(
        keys=arrays["keys"][order],
        codes=code_table,
        feature_names=tuple(categories),
        numeric=number_table,
        numeric_names=tuple(feature.name for feature in numbers),
    )


def _cold_number(feature: FeatureSpec) -> float:
    if feature.default is None:
        return 0.0
    return float(encode_numbers(feature, pa.array([None], pa.float64())).values[0])


def _by_time(columns: Arrays) -> IntArray:
    return np.lexsort((columns["example_ids"], columns["request_ids"], columns["at_ms"]))


def _as_they_are(columns: Arrays) -> IntArray:
    return np.arange(len(columns["user_keys"]))


def _of_events(segment: Segment, dtypes: dict[str, type]) -> Arrays:
    events = segment.events
    found: Arrays = {"user_keys": events.user_keys, "at_ms": events.at_ms}
    found["arrival_ms"] = events.arrival_ms
    if events.item_keys is not None:
        found["item_keys"] = events.item_keys
    found |= {f"codes/{name}": column for name, column in events.codes.items()}
    found |= {f"numeric/{name}": column for name, column in events.numeric.items()}
    return {name: found[name] for name in dtypes}


def _repeats(values: IntArray, twice: IntArray, seen: np.ndarray | None) -> list[int]:
    """Give the rows of values that were there before; `seen` carries over from earlier batches."""
    if not len(twice):
        return []
    seen = np.zeros(len(twice), dtype=bool) if seen is None else seen
    rows = []
    for row in np.flatnonzero(np.isin(values, twice)).tolist():
        place = int(np.searchsorted(twice, values[row]))
        if seen[place]:
            rows.append(row)
        seen[place] = True
    return rows
