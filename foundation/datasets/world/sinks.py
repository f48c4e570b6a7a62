"""Where a world goes: a log folder of Parquet files with its oracle beside it.

    <out>/log/      schema.yaml, splits.yaml, items.parquet, and a folder for each other table
    <out>/oracle/   world.json and the exact probabilities; no schema names it

Every shard writes one file in each table's folder, `part-<i>-of-<n>.parquet`, under a hidden name
until it is whole; shards may run at once, on several machines, into the same place.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from features.errors import DataError
from features.files import write_whole
from features.log import Splits
from features.splits import save_splits
from foundation.datasets.world.catalogue import FORMATS, OBJECTIVES
from foundation.datasets.world.config import WorldConfig
from foundation.datasets.world.latent import NUM_STAGES, UserBlock, surface_names
from foundation.datasets.world.oracle import WORLD_JSON, describe, read_config
from foundation.datasets.world.organic import Columns, organic_sources
from foundation.datasets.world.randomness import Numbers, Stream, generator
from foundation.datasets.world.ticks import AD_CLICK, CONVERSION, Piece, World, shard_blocks

Progress = Callable[[float, str], None]

LOG, ORACLE = "log", "oracle"
_ROWS_PER_GROUP = 1_000_000
# Shares of the days at which the windows begin: history, fm_train, vm_train, tune, test, the end.
_SPLIT_FRACS = (0.0, 0.2, 0.6, 0.8, 0.87, 1.0)
_USER_NOISE = 0.7
_NUM_AGES, _NUM_REGIONS, _NUM_PURSES = 7, 12, 6
_HIGH_CARDINALITY = frozenset(
    {"event_id", "example_id", "request_id", "user_id", "at_ms", "arrived_ms", "event_number"}
)


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a shard wrote.

    Attributes:
        num_rows: by table; the oracle's are those of the impressions.
        num_bytes: of the files of this shard.
    """

    folder: Path
    num_rows: dict[str, int]
    num_bytes: int

    @property
    def num_events(self) -> int:
        """Rows of all tables."""
        return sum(self.num_rows.values())


def write_parquet(
    world: World, out: Path, *, shard: int = 0, num_shards: int = 1, tell: Progress
) -> Written:
    """Write a shard of a world, and what all shards share.

    Raises:
        DataError: there is no such shard.
    """
    config = world.config
    blocks = shard_blocks(config, shard, num_shards)
    name = f"part-{shard:05d}-of-{num_shards:05d}.parquet"
    _require_same_world(config, out, num_shards)
    _write_shared(world, out)
    files = {table: _TableFile(out / LOG / table / name) for table in _tables(world)}
    oracle = _TableFile(out / ORACLE / name)
    users = _TableFile(out / LOG / "users" / name)
    everything = [*files.values(), oracle, users]
    try:
        for block in blocks:
            users.add(pa.table(user_columns(config, world.users(block), block)))
        num_pieces = config.num_ticks * len(blocks)
        for done, piece in enumerate(world.pieces(blocks)):
            for table, batch in arrow_tables(world, piece).items():
                files[table].add(batch)
            oracle.add(pa.table(piece.oracle))
            tell((done + 1) / num_pieces, f"day {piece.tick // config.ticks_per_day + 1}")
        num_bytes = sum(file.close() for file in everything)
    finally:
        for file in everything:
            file.discard()
    return Written(
        folder=out,
        num_rows={table: file.num_rows for table, file in files.items()},
        num_bytes=num_bytes,
    )


def arrow_tables(world: World, piece: Piece) -> dict[str, pa.Table]:
    """Give a piece's tables as they are in a log: surfaces by name."""
    names = pa.array(surface_names(world.config))
    tables = {}
    for table, columns in piece.tables.items():
        arrays: dict[str, Any] = dict(columns)
        if "surface" in columns:
            codes = pa.array(columns["surface"].astype(np.int8))
            arrays["surface"] = pa.DictionaryArray.from_arrays(codes, names)
        tables[table] = pa.table(arrays)
    return tables


def item_columns(world: World) -> dict[str, Any]:
    """Give the table of the ads that live in the log."""
    catalogue, config = world.catalogue, world.config
    newest = catalogue.alive(config.num_days - 1)
    numbers = np.arange(len(catalogue))
    kept = np.flatnonzero(numbers <= newest[numbers % config.num_ads])
    semantic = catalogue.semantic[kept]
    return {
        "item_id": kept + 1,
        "topic": catalogue.topic[kept],
        "department": world.topics.department[catalogue.topic[kept]].astype(np.int16),
        "advertiser": catalogue.advertiser[kept],
        "style": catalogue.style[kept].astype(np.int16),
        "format": pa.array(FORMATS).take(pa.array(catalogue.format[kept])),
        "objective": pa.array(OBJECTIVES).take(pa.array(catalogue.objective[kept])),
        "price": np.exp(catalogue.log_price[kept]),
        "semantic": pa.FixedSizeListArray.from_arrays(semantic.ravel(), semantic.shape[1]).cast(
            pa.list_(pa.float32())
        ),
    }


def user_columns(config: WorldConfig, users: UserBlock, block: int) -> Columns:
    """Give the table of a block's users: noisy readings of what they are."""
    rng = generator(config.seed, Stream.USERS, tick=1, block=block)
    noise = _USER_NOISE * rng.standard_normal((3, config.users_per_block))[:, : len(users)]
    even = rng.random((2, config.users_per_block))[:, : len(users)]
    purse = (users.budget - np.log(30.0)) / 0.6
    stage = np.where(even[0] < 0.8, users.stage, NUM_STAGES * even[1]).astype(np.int8)
    return {
        "user_id": users.first + np.arange(len(users)),
        "age": _banded(users.z[:, 0] + noise[0], _NUM_AGES),
        "region": _banded(users.z[:, 1] + noise[1], _NUM_REGIONS),
        "purse": _banded(purse + noise[2], _NUM_PURSES),
        "stage": stage,
    }


def schema_document(config: WorldConfig) -> dict[str, Any]:
    """Give the schema of a world's log."""
    path = Path(__file__).with_name("schema.yaml")
    document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["impressions"]["surfaces"] = list(surface_names(config))
    for vertical in document["verticals"]:
        vertical["surfaces"] = list(surface_names(config))
    kept = {spec.name for spec in organic_sources(config)} | {AD_CLICK, CONVERSION}
    sources = [source for source in document["sources"] if source["name"] in kept]
    for source in sources:
        source["max_length"] = max(source["max_length"], config.horizon)
    for feature in document["features"]:
        if feature["name"] == "semantic":
            feature["dim"] = min(feature["dim"], config.num_dims)
    document["sources"] = sources
    return document


def splits(config: WorldConfig) -> Splits:
    """Give the windows of a world's log."""
    length_ms = config.end_ms - config.start_ms
    edges = [config.start_ms + int(frac * length_ms) for frac in _SPLIT_FRACS]
    return Splits(
        history_start_ms=edges[0],
        fm_train=(edges[1], edges[2]),
        vm_train=(edges[2], edges[3]),
        tune=(edges[3], edges[4]),
        test=(edges[4], edges[5]),
    )


class _TableFile:
    """A Parquet file that grows by row groups; hidden until it is closed."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._hidden = path, path.with_name(f".{path.name}.part")
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._num_waiting = self.num_rows = 0

    def add(self, table: pa.Table) -> None:
        """Add rows."""
        self._waiting.append(table)
        self._num_waiting += table.num_rows
        if self._num_waiting >= _ROWS_PER_GROUP:
            self._write()

    def close(self) -> int:
        """Write what waits, show the file, and give its size in bytes."""
        if self._waiting:
            self._write()
        if self._writer is None:
            return 0
        self._writer.close()
        self._writer = None
        self._hidden.replace(self._path)
        return self._path.stat().st_size

    def discard(self) -> None:
        """Remove what was not closed."""
        if self._writer is not None:
            self._writer.close()
        self._hidden.unlink(missing_ok=True)

    def _write(self) -> None:
        table = pa.concat_tables(self._waiting)
        if self._writer is None:
            names = [name for name in table.column_names if name not in _HIGH_CARDINALITY]
            self._writer = pq.ParquetWriter(
                self._hidden,
                table.schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=[n for n in names if _is_small(table.schema.field(n).type)],
                column_encoding={
                    n: "DELTA_BINARY_PACKED" for n in table.column_names if n in _HIGH_CARDINALITY
                },
                write_statistics=["at_ms", "user_id"],
            )
        self._writer.write_table(table, row_group_size=_ROWS_PER_GROUP)
        self.num_rows += table.num_rows
        self._waiting, self._num_waiting = [], 0


def _is_small(kind: pa.DataType) -> bool:
    is_short = pa.types.is_integer(kind) and kind.bit_width <= 16
    return bool(is_short or pa.types.is_dictionary(kind))


def _tables(world: World) -> tuple[str, ...]:
    return ("impressions", *world.source_names)


def _require_same_world(config: WorldConfig, out: Path, num_shards: int) -> None:
    """Refuse a folder whose rows would not be of one world, each of them once."""
    if (out / ORACLE / WORLD_JSON).exists():
        there = read_config(out / ORACLE)
        changed = [name for name, value in asdict(config).items() if value != getattr(there, name)]
        if changed:
            raise DataError(
                f"{out}: holds a world of other {changed}; delete it or write elsewhere"
            )
    stray = [p for p in (out / ORACLE).glob("part-*") if f"-of-{num_shards:05d}." not in p.name]
    if stray:
        raise DataError(
            f"{out}: holds {stray[0].name}, of another number of shards than {num_shards}; its "
            "rows would be there twice. Delete it or write elsewhere"
        )


def _write_shared(world: World, out: Path) -> None:
    """Write what every shard has in common, the same bytes from each."""
    for folder in (out / LOG, out / ORACLE):
        folder.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(schema_document(world.config), sort_keys=False)
    write_whole(out / LOG / "schema.yaml", text.encode())
    save_splits(out / LOG / "splits.yaml", splits(world.config))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(item_columns(world)), sink)
    write_whole(out / LOG / "items.parquet", sink.getvalue().to_pybytes())
    described = json.dumps(describe(world.config), indent=1)
    write_whole(out / ORACLE / WORLD_JSON, described.encode())


def _banded(values: Numbers, num_bands: int) -> Numbers:
    """Give the band of each value of about N(0, 1 + noise^2), the bands about equally full."""
    scaled = values / np.sqrt(1 + _USER_NOISE**2)
    logistic = 1 / (1 + np.exp(-1.702 * scaled))
    found: Numbers = np.minimum(logistic * num_bands, num_bands - 1).astype(np.int8)
    return found
