"""Tables from CSV, Parquet and Arrow files, in batches, with the types that the schema says.

What a column means never depends on what it holds, how long it is, or where a batch ends. In a CSV
only an empty field is null (`NA`, `nan` and `null` are text), and text is in the declared encoding,
with or without a byte-order mark. A value that does not fit its type is an error with its file and
row. Rows in errors are counted from 0 in each file, a CSV header not counted.

Cost: memory for one batch, whatever the size of the files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from features.errors import BadRows, DataError
from features.reading.casting import cast_column
from features.reading.csvtext import require_encoding
from features.schema import FeatureSpec, IdSpec, TableFiles
from features.times import TimeSpec

ColumnTypes = Mapping[str, pa.DataType | None]
Wanted = Mapping[str, tuple[str, pa.DataType | None]]

_ARROW = (".arrow", ".feather", ".ipc")
SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", *_ARROW)

_ROWS_PER_BATCH = 262_144
_BLOCK_BYTES = 1 << 23  # of CSV text; no row may be longer
_STREAM_BYTES = 1 << 20  # of a Parquet column at a time, instead of its whole row group


def id_type(spec: IdSpec) -> pa.DataType:
    """The Arrow type of an id column."""
    return pa.int64() if spec.dtype == "int64" else pa.string()


def feature_type(feature: FeatureSpec) -> pa.DataType:
    """The Arrow type of a feature's column: categories are text, so 007 and 7 stay apart."""
    if feature.element is not None:
        return pa.list_(pa.float64())
    return pa.string() if feature.kind == "categorical" else pa.float64()


def time_type(spec: TimeSpec) -> pa.DataType | None:
    """The Arrow type of a time column: None, as it is; `to_ms` knows what the unit allows."""
    return None


@dataclass(frozen=True)
class TableBatch:
    """Some rows of one file.

    Attributes:
        where: the file, for errors.
        first_row: place in the file of the first of them.
        raw: the columns of the file that were wanted, as they are.
    """

    where: str
    first_row: int
    raw: pa.Table

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.raw.num_rows)

    def column(self, name: str, kind: pa.DataType | None) -> pa.ChunkedArray:
        """Give a column in a type.

        Raises:
            BadRows: values that do not fit it, counted from the first row of this batch.
            DataError: a column of a type that never does.
        """
        return cast_column(self.raw[name], kind, f"{self.where}, column {name!r}")


def table_files(folder: Path, table: TableFiles) -> tuple[Path, ...]:
    """Give the files of a table, sorted by name: one, those of a folder, or those of a pattern.

    Raises:
        DataError: there is none, or one is of no known kind.
    """
    path = folder / table.path
    if path.is_dir():
        found = [p for p in path.rglob("*") if p.is_file() and not p.name.startswith((".", "_"))]
        what = f"{path}: expected files in this folder"
    elif any(mark in table.path for mark in "*?["):
        found = [p for p in folder.glob(table.path) if p.is_file()]
        what = f"{path}: expected files of this pattern"
    else:
        found, what = [path], str(path)
        if not path.is_file():
            raise DataError(f"{path}: expected a file, a folder or a pattern; there is none")
    if not found:
        raise DataError(f"{what}, found none")
    for file in found:
        if not file.name.endswith(SUFFIXES):
            raise DataError(f"{file}: expected a file that ends in one of {', '.join(SUFFIXES)}")
    return tuple(sorted(found))


def column_names(folder: Path, table: TableFiles) -> tuple[str, ...]:
    """Give the columns of a table's first file.

    Raises:
        DataError: there is none, or it is no table.
    """
    path = table_files(folder, table)[0]
    with _explained(path):
        if path.name.endswith(".parquet"):
            return tuple(pq.read_schema(path).names)
        if path.suffix in _ARROW:
            with pa.memory_map(str(path)) as source:
                return tuple(_open_arrow(source)[0].names)
        read, parse = _csv_options(table)
        with pyarrow.csv.open_csv(path, read_options=read, parse_options=parse) as reader:
            return tuple(reader.schema.names)


def read_batches(
    folder: Path, table: TableFiles, names: list[str], *, rows_per_batch: int = _ROWS_PER_BATCH
) -> Iterator[TableBatch]:
    """Read columns of all files of a table, a batch at a time, in the order of the files.

    Args:
        folder: that the table's path starts from.
        table: path, text encoding and delimiter.
        names: columns of the files; repeated names are read once.
        rows_per_batch: at most.

    Raises:
        DataError: a file cannot be read, is no table, lacks a column or has it twice.
    """
    names = list(dict.fromkeys(names))
    for path in table_files(folder, table):
        first_row = 0
        with _explained(path):
            for raw in _reader(path)(path, table, names, rows_per_batch):
                yield TableBatch(str(path), first_row, raw)
                first_row += raw.num_rows


def read_table(folder: Path, table: TableFiles, types: ColumnTypes) -> pa.Table:
    """Read the named columns of all files of a table at once.

    Args:
        folder: that the table's path starts from.
        table: path, text encoding and delimiter.
        types: column name to type; a None type takes the column as it is (text in a CSV).

    Raises:
        DataError: as :func:`read_batches`, or a value is of another type.
    """
    return read_columns(folder, table, {name: (name, kind) for name, kind in types.items()})


def read_columns(folder: Path, table: TableFiles, wanted: Wanted) -> pa.Table:
    """Read columns under names of your own; one column may be read in several types.

    Args:
        folder: that the table's path starts from.
        table: path, text encoding and delimiter.
        wanted: name in the result to the column's name in the files and its type.

    Raises:
        DataError: as :func:`read_table`.
    """
    parts = []
    for batch in read_batches(folder, table, [name for name, _ in wanted.values()]):
        columns = {}
        for key, (name, kind) in wanted.items():
            columns[key] = _placed(batch, name, kind)
        parts.append(pa.table(columns))
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(f"{folder / table.path}: files do not fit one another: {error}") from error


def _placed(batch: TableBatch, name: str, kind: pa.DataType | None) -> pa.ChunkedArray:
    try:
        return batch.column(name, kind)
    except BadRows as bad:
        raise bad.moved(batch.first_row) from bad


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: {error}") from error


_Read = Callable[[Path, TableFiles, list[str], int], Iterator[pa.Table]]


def _reader(path: Path) -> _Read:
    if path.name.endswith(".parquet"):
        return _read_parquet
    return _read_arrow if path.suffix in _ARROW else _read_csv


def _read_parquet(
    path: Path, table: TableFiles, names: list[str], rows_per_batch: int
) -> Iterator[pa.Table]:
    with pq.ParquetFile(path, buffer_size=_STREAM_BYTES, pre_buffer=False) as file:
        _require_columns(path, file.schema_arrow.names, names)
        yield file.schema_arrow.empty_table().select(names)
        for batch in file.iter_batches(batch_size=rows_per_batch, columns=names):
            yield pa.Table.from_batches([batch])


def _read_arrow(
    path: Path, table: TableFiles, names: list[str], rows_per_batch: int
) -> Iterator[pa.Table]:
    with pa.memory_map(str(path)) as source:
        schema, parts = _open_arrow(source)
        _require_columns(path, schema.names, names)
        yield schema.empty_table().select(names)
        for part in parts:
            whole = pa.Table.from_batches([part]).select(names)
            for start in range(0, whole.num_rows, rows_per_batch):
                yield whole.slice(start, rows_per_batch)


def _open_arrow(source: pa.NativeFile) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Open the format with a footer, or the one that is a stream."""
    try:
        file = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        stream = pa.ipc.open_stream(source)
        return stream.schema, iter(stream)
    return file.schema, (file.get_batch(place) for place in range(file.num_record_batches))


def _csv_options(
    table: TableFiles,
) -> tuple[pyarrow.csv.ReadOptions, pyarrow.csv.ParseOptions]:
    read = pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES, encoding=table.encoding)
    return read, pyarrow.csv.ParseOptions(delimiter=table.delimiter, newlines_in_values=True)


def _read_csv(
    path: Path, table: TableFiles, names: list[str], rows_per_batch: int
) -> Iterator[pa.Table]:
    read, parse = _csv_options(table)
    # Every column as text: types are given to it where the row of a misfit is known.
    convert = pyarrow.csv.ConvertOptions(
        include_columns=names,
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    try:
        with pyarrow.csv.open_csv(path, read_options=read, parse_options=parse) as reader:
            _require_columns(path, reader.schema.names, names)
        with pyarrow.csv.open_csv(
            path, read_options=read, parse_options=parse, convert_options=convert
        ) as reader:
            yield reader.schema.empty_table()
            for part in reader:
                whole = pa.Table.from_batches([part])
                for start in range(0, whole.num_rows, rows_per_batch):
                    yield whole.slice(start, rows_per_batch)
    except (pa.ArrowInvalid, UnicodeError, LookupError):
        require_encoding(path, table)
        raise


def _require_columns(path: Path, found: list[str], wanted: list[str]) -> None:
    missing = [name for name in wanted if name not in found]
    if missing:
        raise DataError(f"{path}: columns {missing} are missing; it has {found}")
    repeated = [name for name in wanted if found.count(name) > 1]
    if repeated:
        raise DataError(f"{path}: columns {repeated} are there more than once; it has {found}")
