"""The transfer log: what the foundation model says of every example, for any vertical to read.

A folder of Parquet shards and `log.json`, which names the shards that belong to the log. A shard is
written beside its place and renamed, and `log.json` comes last, so a log is either whole or not
there; shards of a run that did not finish are not named and are overwritten by the next one.

    column        type                    of
    example_id    int64                   the impression; for an engagement an id of its own
    kind          dictionary of string    "impression" or "engagement"
    request_id    int64                   the request; for an engagement 0
    user_key      int64
    item_key      int64
    at_ms         int64                   Unix ms UTC
    p_f_<name>    float, null             probability of each objective; null for an engagement
    z             fixed size binary       packed vector, `features.packed.quantise`

Every shard also carries the log's `TransferMeta` as file metadata, so that one from another model
cannot slip in. Vertical models read the packed bytes: they train on exactly what they will be
served.

Errors: DataError, naming the file and what was expected and found there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from features.arrays import FloatArray, IntArray
from features.errors import DataError
from features.packed import ByteArray, VectorDtype, dequantise, vector_bytes

LAYOUT_VERSION = 1
LOG_FILE = "log.json"
_PREFIX = "p_f_"
_METADATA_KEY = b"gemcutter.transfer_log"
_INT_COLUMNS = {
    "example_id": "example_ids",
    "request_id": "request_ids",
    "user_key": "user_keys",
    "item_key": "item_keys",
    "at_ms": "at_ms",
}


class RowKind(IntEnum):
    """What a row was made from."""

    IMPRESSION = 0
    ENGAGEMENT = 1


@dataclass(frozen=True, kw_only=True)
class TransferMeta:
    """Where a log comes from and how its vectors are packed.

    Attributes:
        schema_id, encoder_id, space_id: 16 hex digits each.
        fm_version: name of the foundation model's checkpoint.
        dim, dtype: of the vectors.
        objectives: names of the probabilities, in order.
    """

    schema_id: str
    encoder_id: str
    space_id: str
    fm_version: str
    dim: int
    dtype: VectorDtype
    objectives: tuple[str, ...]
    layout_version: int = LAYOUT_VERSION


@dataclass(frozen=True, kw_only=True, eq=False)
class TransferRows:
    """Rows of a transfer log.

    Shapes:
        example_ids, request_ids, user_keys, item_keys, at_ms: (n,), int64.
        kinds: (n,), int8, of `RowKind`.
        p: objective to (n,), float32; not-a-number for engagements.
        packed: (n, vector_bytes(dim, dtype)), uint8.
    """

    example_ids: IntArray
    kinds: npt.NDArray[np.int8]
    request_ids: IntArray
    user_keys: IntArray
    item_keys: IntArray
    at_ms: IntArray
    p: dict[str, FloatArray]
    packed: ByteArray
    dim: int
    dtype: VectorDtype

    def __len__(self) -> int:
        return len(self.example_ids)

    def z(self) -> FloatArray:
        """Unpack the vectors, (n, dim), float32."""
        return dequantise(self.packed, self.dtype, dim=self.dim)

    def take(self, index: IntArray | npt.NDArray[np.bool_]) -> TransferRows:
        """Give the rows at these places."""
        columns = {name: getattr(self, name)[index] for name in (*_INT_COLUMNS.values(), "kinds")}
        p = {name: values[index] for name, values in self.p.items()}
        return replace(self, p=p, packed=self.packed[index], **columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class TransferLog:
    """A whole log in memory."""

    meta: TransferMeta
    rows: TransferRows


class TransferLogWriter:
    """Adds shards to a log; they count once it is closed.

    Args:
        folder: made if it is not there. A finished log in it is continued.
        meta: of all rows.

    Raises:
        DataError: the folder holds a finished log of another model, schema or format.
    """

    def __init__(self, folder: Path, meta: TransferMeta) -> None:
        self._folder = folder
        self._meta = meta
        self._shards: dict[str, int] = {}
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / LOG_FILE).exists():
            held, self._shards = _read_log_file(folder)
            _require_same_meta(folder / LOG_FILE, expected=meta, got=held)

    def write(self, rows: TransferRows) -> Path:
        """Write rows as one shard and give its path.

        Raises:
            DataError: columns differ in length, in width or from the log's objectives, or an
                impression has a probability outside 0 to 1; or the shard cannot be written, and
                nothing of it stays.
        """
        name = f"rows-{len(self._shards):05d}.parquet"
        table = _to_table(rows, self._meta, where=str(self._folder / name))
        unfinished, path = self._folder / f".{name}.unfinished", self._folder / name
        try:
            pq.write_table(table, unfinished, compression="zstd")
            os.replace(unfinished, path)
        except OSError as error:
            raise DataError(f"{path}: cannot be written: {error}") from error
        finally:
            unfinished.unlink(missing_ok=True)
        self._shards[name] = len(rows)
        return path

    def close(self) -> None:
        """Make everything written part of the log."""
        document = {"meta": asdict(self._meta), "shards": self._shards}
        unfinished = self._folder / f".{LOG_FILE}.unfinished"
        unfinished.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        os.replace(unfinished, self._folder / LOG_FILE)

    def __enter__(self) -> TransferLogWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()


def read_transfer_log(folder: Path, *, schema_id: str) -> TransferLog:
    """Read a finished log.

    Raises:
        DataError: there is none, it is of another schema, or a shard is missing or of another
            model, format, number of rows or columns.
    """
    meta, shards = _read_log_file(folder)
    if meta.schema_id != schema_id:
        raise DataError(
            f"{folder / LOG_FILE}, schema_id: expected {schema_id}, got {meta.schema_id}; "
            "the log was written for another schema, write it again"
        )
    tables = [_read_shard(folder / name, meta, num_rows=n) for name, n in shards.items()]
    if not tables:
        tables = [_arrow_schema(meta).empty_table()]
    rows = _to_rows(pa.concat_tables(tables).combine_chunks(), meta)
    _require_valid(rows, meta, where=str(folder))
    return TransferLog(meta=meta, rows=rows)


def _read_log_file(folder: Path) -> tuple[TransferMeta, dict[str, int]]:
    path = folder / LOG_FILE
    if not path.exists():
        raise DataError(f"{path}: expected a finished transfer log, found none")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return _to_meta(document["meta"], where=str(path)), dict(document["shards"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: expected a transfer log's description, got {error}") from error


def _read_shard(path: Path, meta: TransferMeta, *, num_rows: int) -> pa.Table:
    if not path.exists():
        raise DataError(f"{path}: expected a shard of {num_rows} rows, found no file")
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: expected a Parquet file, got {error}") from error
    metadata: Mapping[bytes, bytes] = table.schema.metadata or {}
    if _METADATA_KEY not in metadata:
        raise DataError(f"{path}: expected file metadata of a transfer log, found none")
    got = _to_meta(json.loads(metadata[_METADATA_KEY]), where=str(path))
    _require_same_meta(path, expected=meta, got=got)
    expected = _arrow_schema(meta)
    if not table.schema.equals(expected):
        raise DataError(
            f"{path}: expected columns {_describe(expected)}, got {_describe(table.schema)}"
        )
    if table.num_rows != num_rows:
        raise DataError(f"{path}: expected {num_rows} rows, got {table.num_rows}")
    return table


def _to_meta(document: dict[str, Any], *, where: str) -> TransferMeta:
    names = {field.name for field in fields(TransferMeta)}
    if set(document) != names:
        raise DataError(f"{where}: expected the fields {sorted(names)}, got {sorted(document)}")
    return TransferMeta(**{**document, "objectives": tuple(document["objectives"])})


def _require_same_meta(path: Path, *, expected: TransferMeta, got: TransferMeta) -> None:
    for field in fields(TransferMeta):
        one, other = getattr(expected, field.name), getattr(got, field.name)
        if one != other:
            raise DataError(f"{path}, {field.name}: expected {one}, got {other}")


def _arrow_schema(meta: TransferMeta) -> pa.Schema:
    columns: list[tuple[str, pa.DataType]] = [("example_id", pa.int64())]
    columns.append(("kind", pa.dictionary(pa.int8(), pa.string())))
    columns += [(name, pa.int64()) for name in list(_INT_COLUMNS)[1:]]
    columns += [(_PREFIX + name, pa.float32()) for name in meta.objectives]
    columns.append(("z", pa.binary(vector_bytes(meta.dim, meta.dtype))))
    return pa.schema(columns, metadata={_METADATA_KEY: json.dumps(asdict(meta))})


def _describe(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _to_table(rows: TransferRows, meta: TransferMeta, *, where: str) -> pa.Table:
    _require_valid(rows, meta, where=where)
    schema = _arrow_schema(meta)
    names = [kind.name.lower() for kind in RowKind]
    columns: dict[str, Any] = {
        column: pa.array(getattr(rows, name), pa.int64()) for column, name in _INT_COLUMNS.items()
    }
    columns["kind"] = pa.DictionaryArray.from_arrays(
        pa.array(rows.kinds, pa.int8()), pa.array(names)
    )
    for name in meta.objectives:
        columns[_PREFIX + name] = pa.array(rows.p[name], pa.float32(), from_pandas=True)
    packed = np.ascontiguousarray(rows.packed)
    columns["z"] = pa.FixedSizeBinaryArray.from_buffers(
        schema.field("z").type, len(rows), [None, pa.py_buffer(packed)]
    )
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _to_rows(table: pa.Table, meta: TransferMeta) -> TransferRows:
    ints = {name: table[column].to_numpy() for column, name in _INT_COLUMNS.items()}
    kinds = np.zeros(table.num_rows, dtype=np.int8)
    kinds[table["kind"].to_numpy() == RowKind.ENGAGEMENT.name.lower()] = RowKind.ENGAGEMENT
    size = vector_bytes(meta.dim, meta.dtype)
    chunks = [chunk for chunk in table["z"].chunks if len(chunk)]
    packed = [
        np.frombuffer(chunk.buffers()[1], np.uint8, len(chunk) * size, chunk.offset * size)
        for chunk in chunks
    ]
    joined = np.concatenate([np.zeros(0, dtype=np.uint8), *packed])
    return TransferRows(
        **ints,
        kinds=kinds,
        p={name: table[_PREFIX + name].to_numpy() for name in meta.objectives},
        packed=joined.reshape(-1, size),
        dim=meta.dim,
        dtype=meta.dtype,
    )


def _require_valid(rows: TransferRows, meta: TransferMeta, *, where: str) -> None:
    n, size = len(rows), vector_bytes(meta.dim, meta.dtype)
    if (rows.dim, rows.dtype, rows.packed.shape) != (meta.dim, meta.dtype, (n, size)):
        raise DataError(
            f"{where}, z: expected {meta.dtype} of dim {meta.dim} in ({n}, {size}) bytes, "
            f"got {rows.dtype} of dim {rows.dim} in {rows.packed.shape}"
        )
    if set(rows.p) != set(meta.objectives):
        raise DataError(f"{where}: expected p of {meta.objectives}, got {tuple(rows.p)}")
    columns = {name: getattr(rows, name) for name in (*_INT_COLUMNS.values(), "kinds")}
    for name, column in {**columns, **rows.p}.items():
        if column.shape != (n,):
            raise DataError(f"{where}, {name}: expected {n} values, got {column.shape}")
    if not np.isin(rows.kinds, list(RowKind)).all():
        raise DataError(f"{where}, kinds: expected {list(RowKind)}, got {np.unique(rows.kinds)}")
    is_impression = rows.kinds == RowKind.IMPRESSION
    for name, p in rows.p.items():
        wrong = np.flatnonzero(is_impression & ~((p >= 0) & (p <= 1)))
        if len(wrong):
            raise DataError(
                f"{where}, {_PREFIX}{name}: expected 0 to 1 for impressions, got {p[wrong[0]]} in "
                f"row {wrong[0]} and {len(wrong) - 1} more"
            )
