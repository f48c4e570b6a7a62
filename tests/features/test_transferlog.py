"""A transfer log is whole or not there, and never a mixture."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features.errors import DataError
from features.memory import snap
from features.packed import quantise
from features.transferlog import (
    LOG_FILE,
    RowKind,
    TransferLogWriter,
    TransferMeta,
    TransferRows,
    read_transfer_log,
)
from tests.features.vectors import SPACE, draw_z

META = TransferMeta(
    schema_id="5" * 16,
    encoder_id="e" * 16,
    space_id=SPACE,
    fm_version="kunlun-1",
    dim=5,
    dtype="int4",
    objectives=("click", "buy"),
)


def rows_of(n: int, *, seed: int = 0) -> TransferRows:
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 2, n).astype(np.int8)

    def draw_p() -> Any:
        p = rng.uniform(0, 1, n).astype(np.float32)
        return np.where(kinds == RowKind.IMPRESSION, p, np.float32("nan"))

    ids = rng.integers(-(2**63), 2**63 - 1, (4, n))
    return TransferRows(
        example_ids=ids[0],
        kinds=kinds,
        request_ids=ids[1],
        user_keys=ids[2],
        item_keys=ids[3],
        at_ms=np.arange(n) + 1_700_000_000_000,
        p={"click": draw_p(), "buy": draw_p()},
        packed=quantise(draw_z(n, 5, seed=seed), "int4"),
        dim=5,
        dtype="int4",
    )


def write(folder: Path, *shards: TransferRows, meta: TransferMeta = META) -> None:
    with TransferLogWriter(folder, meta) as writer:
        for rows in shards:
            writer.write(rows)


def read(folder: Path) -> TransferRows:
    return read_transfer_log(folder, schema_id=META.schema_id).rows


def assert_same(got: TransferRows, *expected: TransferRows) -> None:
    names = ("example_ids", "kinds", "request_ids", "user_keys", "item_keys", "at_ms", "packed")
    for name in names:
        joined = np.concatenate([getattr(rows, name) for rows in expected])
        np.testing.assert_array_equal(getattr(got, name), joined, err_msg=name, strict=True)
    for name in META.objectives:
        joined = np.concatenate([rows.p[name] for rows in expected])
        np.testing.assert_array_equal(got.p[name], joined, err_msg=name, strict=True)


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    first, second = rows_of(7), rows_of(3, seed=1)
    write(tmp_path / "log", first, second)

    log = read_transfer_log(tmp_path / "log", schema_id=META.schema_id)

    assert log.meta == META
    assert_same(log.rows, first, second)
    np.testing.assert_array_equal(log.rows.z()[:7], snap(draw_z(7, 5), "int4"))
    assert set(log.rows.kinds.tolist()) == {0, 1}


def test_some_rows_can_be_taken(tmp_path: Path) -> None:
    rows = rows_of(7)

    assert_same(
        rows.take(rows.kinds == RowKind.IMPRESSION),
        *[rows.take(np.array([i])) for i in np.flatnonzero(rows.kinds == RowKind.IMPRESSION)],
    )
    np.testing.assert_array_equal(rows.take(np.array([2, 0])).z(), rows.z()[[2, 0]])


def test_a_log_without_rows_is_a_log(tmp_path: Path) -> None:
    write(tmp_path)
    assert_same(read(tmp_path), rows_of(0))

    write(tmp_path, rows_of(0))
    assert_same(read(tmp_path), rows_of(0))
    assert read(tmp_path).z().shape == (0, 5)


def test_a_finished_log_can_be_continued(tmp_path: Path) -> None:
    first, second = rows_of(4), rows_of(2, seed=1)
    write(tmp_path, first)
    write(tmp_path, second)

    assert_same(read(tmp_path), first, second)


def write_and_fail(folder: Path, rows: TransferRows) -> None:
    with TransferLogWriter(folder, META) as writer:
        writer.write(rows)
        raise KeyboardInterrupt


def test_a_run_that_did_not_finish_leaves_no_log(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_and_fail(tmp_path, rows_of(4))
    with pytest.raises(DataError, match=r"log\.json: expected a finished transfer log"):
        read(tmp_path)

    write(tmp_path, rows_of(2, seed=1))
    assert_same(read(tmp_path), rows_of(2, seed=1))


def test_a_run_that_did_not_finish_leaves_a_finished_log_as_it_was(tmp_path: Path) -> None:
    write(tmp_path, rows_of(4))
    with pytest.raises(KeyboardInterrupt):
        write_and_fail(tmp_path, rows_of(2, seed=1))

    assert_same(read(tmp_path), rows_of(4))


def test_a_log_for_another_schema_is_refused(tmp_path: Path) -> None:
    write(tmp_path, rows_of(1))

    with pytest.raises(
        DataError, match="schema_id: expected 6666666666666666, got 5555555555555555"
    ):
        read_transfer_log(tmp_path, schema_id="6" * 16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"space_id": "f" * 16}, f"space_id: expected {SPACE}, got ffffffffffffffff"),
        ({"fm_version": "kunlun-2"}, "fm_version: expected kunlun-1, got kunlun-2"),
        ({"encoder_id": "0" * 16}, "encoder_id"),
        ({"layout_version": 2}, "layout_version: expected 1, got 2"),
    ],
)
def test_a_shard_of_another_model_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    other = tmp_path / "other"
    write(other, rows_of(3), meta=replace(META, **change))
    write(tmp_path / "log", rows_of(3), rows_of(3))
    (other / "rows-00000.parquet").replace(tmp_path / "log" / "rows-00001.parquet")

    with pytest.raises(DataError, match=rf"rows-00001\.parquet, {message}"):
        read(tmp_path / "log")


def test_a_log_of_another_model_is_not_continued(tmp_path: Path) -> None:
    write(tmp_path, rows_of(3))

    with pytest.raises(DataError, match=r"log\.json, fm_version: expected new, got kunlun-1"):
        TransferLogWriter(tmp_path, replace(META, fm_version="new"))


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns(["p_f_buy"]), "expected columns .*p_f_buy.*, got"),
        (lambda table: table.slice(1), "expected 3 rows, got 2"),
        (lambda table: table.replace_schema_metadata({}), "expected file metadata"),
        (
            lambda table: table.set_column(5, "at_ms", pa.array([0.5, 1, 2])),
            "at_ms int64.*got.*at_ms double",
        ),
    ],
)
def test_a_shard_that_was_changed_is_refused_by_name(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    write(tmp_path, rows_of(3))
    rewrite(tmp_path / "rows-00000.parquet", change)

    with pytest.raises(DataError, match=rf"rows-00000\.parquet.*{message}"):
        read(tmp_path)


def test_a_shard_that_is_gone_or_cut_short_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, rows_of(3))
    shard = tmp_path / "rows-00000.parquet"
    shard.write_bytes(shard.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"rows-00000\.parquet: expected a Parquet file"):
        read(tmp_path)

    shard.unlink()
    with pytest.raises(DataError, match=r"rows-00000\.parquet: expected a shard of 3 rows"):
        read(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"meta": {}, "shards": {}})])
def test_a_description_that_is_none_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / LOG_FILE).write_text(text)

    with pytest.raises(DataError, match=r"log\.json: expected"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"at_ms": np.arange(2)}, r"at_ms: expected 3 values, got \(2,\)"),
        ({"kinds": np.array([0, 1, 2], dtype=np.int8)}, r"kinds: expected .* got \[0 1 2\]"),
        ({"dim": 6}, "z: expected int4 of dim 5"),
        ({"dtype": "int8"}, "z: expected int4 of dim 5"),
        ({"packed": np.zeros((3, 2), dtype=np.uint8)}, r"in \(3, 3\) bytes, .* in \(3, 2\)"),
        ({"p": {"click": np.zeros(3, dtype=np.float32)}}, "expected p of"),
        (
            {"kinds": np.zeros(3, dtype=np.int8), "p": {"click": [0, 2, np.nan], "buy": [0, 0, 0]}},
            "p_f_click: expected 0 to 1 for impressions, got 2.0 in row 1 and 1 more",
        ),
    ],
)
def test_rows_that_do_not_fit_are_not_written(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    if "kinds" in change and "p" in change:
        p = {name: np.array(values, dtype=np.float32) for name, values in change["p"].items()}
        change = {**change, "p": p}
    with (
        pytest.raises(DataError, match=message),
        TransferLogWriter(tmp_path, META) as writer,
    ):
        writer.write(replace(rows_of(3), **change))
    assert not list(tmp_path.iterdir())
