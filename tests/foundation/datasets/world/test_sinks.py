"""A world as files: what the loader reads, what it can never see, and shards into one place."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features.dataset import LogDataset, load_dataset
from features.errors import DataError
from foundation.datasets.world import oracle
from foundation.datasets.world.config import WorldConfig
from foundation.datasets.world.sinks import LOG, ORACLE, Written, schema_document, write_parquet
from foundation.datasets.world.ticks import World
from tests.foundation.datasets.world.worlds import small


def write(config: WorldConfig, out: Path, shard: int = 0, num_shards: int = 1) -> Written:
    return write_parquet(
        World(config), out, shard=shard, num_shards=num_shards, tell=lambda share, what: None
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("world")
    write(small(num_users=300, users_per_block=64, num_days=10), out)
    return out


@pytest.fixture(scope="module")
def log(folder: Path) -> LogDataset:
    return load_dataset(folder / LOG)


def test_the_loader_reads_every_row(folder: Path, log: LogDataset) -> None:
    world = World(oracle.read_config(folder / ORACLE))
    pieces = list(world.pieces())
    assert len(log.impressions) == sum(len(p.tables["impressions"]["click"]) for p in pieces)
    assert set(log.events) == set(world.source_names)
    for name, events in log.events.items():
        assert len(events) == sum(len(p.tables[name]["user_id"]) for p in pieces)
    assert len(log.users) == 300
    for window in ("fm_train", "vm_train", "tune", "test"):
        assert len(log.impressions.between(*getattr(log.splits, window)))


def test_every_impression_has_one_row_in_the_oracle(folder: Path, log: LogDataset) -> None:
    truth = oracle.read_oracle(folder / ORACLE, log.impressions.example_ids)
    np.testing.assert_array_equal(truth["user_id"], log.impressions.user_keys)
    p = truth["p_click"].astype(np.float64)
    surplus = log.impressions.labels["click"].sum() - p.sum()
    assert abs(surplus) < 4 * np.sqrt((p * (1 - p)).sum())


def test_no_column_of_the_oracle_can_be_reached_from_the_log(folder: Path) -> None:
    files = sorted((folder / LOG).rglob("*.parquet"))
    assert len(files) >= 11
    for file in files:
        assert not oracle.columns_named(pq.read_schema(file).names), file
    hidden = {name for f in (folder / ORACLE).glob("*.parquet") for name in pq.read_schema(f).names}
    assert set(oracle.columns_named(sorted(hidden))) == hidden - {"example_id", "user_id"}
    text = (folder / LOG / "schema.yaml").read_text() + (folder / LOG / "splits.yaml").read_text()
    assert not [name for name in hidden - {"example_id", "user_id"} if name in text]
    assert ORACLE not in text


def test_no_number_of_the_log_is_the_oracles_under_another_name(folder: Path) -> None:
    """A column that holds p or its logit would correlate with it as nothing else does."""
    seen = pq.read_table(folder / LOG / "impressions")
    truth = oracle.read_oracle(folder / ORACLE, np.asarray(seen["example_id"]))
    for name in set(seen.column_names) - {"surface", "click", "convert"}:
        column = np.asarray(seen[name], dtype=np.float64)
        for hidden in ("p_click", "p_convert", "logit_memory", "propensity"):
            found = np.corrcoef(column, truth[hidden])[0, 1]
            assert abs(found) < 0.6, (name, hidden, found)


def test_an_example_of_another_world_has_no_row_in_the_oracle(folder: Path) -> None:
    with pytest.raises(DataError, match="1 examples have no row"):
        oracle.read_oracle(folder / ORACLE, np.array([17]))


def test_shards_in_one_place_are_the_whole_world(tmp_path: Path) -> None:
    config = small(num_users=200)
    for shard in (2, 0, 1):
        write(config, tmp_path / "shards", shard, 3)
    write(config, tmp_path / "whole")
    names = sorted(path.name for path in (tmp_path / "whole" / LOG).iterdir())
    assert names == sorted(path.name for path in (tmp_path / "shards" / LOG).iterdir())
    for name in [n for n in names if not n.endswith(".yaml")] + ["../oracle"]:
        shards, whole = (rows_in(tmp_path / kind / LOG / name) for kind in ("shards", "whole"))
        assert shards.equals(whole), name


def rows_in(path: Path) -> pa.Table:
    files = [path] if path.is_file() else sorted(path.glob("*.parquet"))
    return pa.concat_tables(map(pq.read_table, files)).sort_by(_order(path.name))


def _order(name: str) -> list[tuple[str, str]]:
    keys = {
        "users": ["user_id"],
        "items.parquet": ["item_id"],
        "impressions": ["example_id"],
        "oracle": ["example_id"],
        "ad_click": ["example_id"],
        "conversion": ["example_id", "is_refund"],
    }
    return [(key, "ascending") for key in keys.get(name, ["event_id", "arrived_ms"])]


def test_a_folder_of_another_world_is_left_alone(tmp_path: Path) -> None:
    write(small(), tmp_path)
    with pytest.raises(DataError, match="rho"):
        write(small(rho=2.0), tmp_path)
    with pytest.raises(DataError, match="number of shards"):
        write(small(), tmp_path, 0, 2)
    write(small(), tmp_path)  # the same again does no harm


def test_a_shard_that_was_stopped_leaves_no_file_that_looks_whole(tmp_path: Path) -> None:
    def stop(share: float, what: str) -> None:
        if share > 0.3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_parquet(World(small()), tmp_path, tell=stop)
    assert not list(tmp_path.rglob("*part-*"))
    write(small(), tmp_path)
    assert len(load_dataset(tmp_path / LOG).impressions)


@pytest.mark.parametrize(
    "dials",
    [{"num_sources": 4, "num_surfaces": 2}, {"num_sources": 8, "num_surfaces": 7, "num_dims": 4}],
)
def test_the_schema_is_that_of_the_dials(tmp_path: Path, dials: dict[str, int]) -> None:
    config = small(**dials)
    write(config, tmp_path)
    log = load_dataset(tmp_path / LOG)
    assert len(log.schema.surfaces) == dials["num_surfaces"]
    assert len(log.schema.sources) == dials["num_sources"] + 2


def test_histories_are_long_enough_for_the_horizon() -> None:
    document = schema_document(replace(WorldConfig(), horizon=4096))
    assert {source["max_length"] for source in document["sources"]} == {4096}
