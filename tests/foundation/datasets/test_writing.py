"""Raw files are found, checked and read in batches; tables appear whole or not at all."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import BadRows, DataError
from foundation.datasets.layouts import LAYOUTS, convert
from foundation.datasets.layouts.layout import request_ids, windows
from foundation.datasets.layouts.logwriter import DistinctRows, LogWriter
from foundation.datasets.layouts.rawfiles import RawFiles, RawTable, integers
from tests.foundation.datasets.made_up import WRITERS

TABLE = RawTable(pattern="rows.csv", columns=("id",))
TEMPLATE = LAYOUTS["avazu"].template


def silent(what: str, num_rows: int) -> None:
    """Tell nobody."""


def test_a_compressed_file_is_read_like_a_plain_one(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "rows.csv.gz", "wt") as file:
        file.write("id\n7\n8\n")
    files = RawFiles(tmp_path, [TABLE], layout="x")
    values = [v for batch in files.batches(TABLE) for v in integers(batch, "id").to_pylist()]
    assert values == [7, 8]


def test_a_bad_value_is_told_with_its_file_column_and_row(tmp_path: Path) -> None:
    # More than one batch of text, so the row is not one of the first batch.
    lines = [str(10**7 + row) for row in range(1_000_000)]
    lines[999_999] = "1e3"
    (tmp_path / "rows.csv").write_text("id\n" + "\n".join(lines) + "\n")
    files = RawFiles(tmp_path, [TABLE], layout="x")
    with pytest.raises(BadRows, match=r"rows.csv, column 'id'.*first rows \[999999\].*'1e3'"):
        [integers(batch, "id") for batch in files.batches(TABLE)]


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected the folder with the raw files"):
        RawFiles(tmp_path / "none", [TABLE], layout="x")


def test_a_failed_build_leaves_an_earlier_log_as_it_was(tmp_path: Path) -> None:
    raw, log = tmp_path / "raw", tmp_path / "log"
    WRITERS["avazu"](raw)
    convert(LAYOUTS["avazu"], raw, log, silent)
    before = {path.name: path.read_bytes() for path in log.iterdir()}
    path = raw / "train.csv"
    path.write_text(path.read_text().replace(",15706,", ",ad,"))
    with pytest.raises(DataError, match="column 'C14'"):
        convert(LAYOUTS["avazu"], raw, log, silent)
    assert {path.name: path.read_bytes() for path in log.iterdir()} == before


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="expected a folder that can be written"):
        LogWriter(tmp_path / "file", TEMPLATE, silent).__enter__()


def test_tables_grow_by_batches_and_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []
    with LogWriter(tmp_path, TEMPLATE, lambda what, n: told.append((what, n))) as log:
        log.add("rows", {"id": np.array([1, 2])})
        log.add("rows", {"id": np.array([3])})
    assert pq.read_table(tmp_path / "rows.parquet")["id"].to_pylist() == [1, 2, 3]
    assert told == [("writing rows", 2), ("writing rows", 3)]
    assert (tmp_path / "schema.yaml").read_bytes() == (TEMPLATE / "schema.yaml").read_bytes()


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=12), max_size=8))
def test_distinct_rows_are_those_of_a_set(parts: list[list[tuple[int, int]]]) -> None:
    found = DistinctRows()
    for part in [[], *parts]:
        found.add(
            {
                "a": pa.array([a for a, _ in part], pa.int64()),
                "b": pa.array([b for _, b in part], pa.int64()),
            }
        )
    rows = found.rows()
    pairs = list(zip(rows["a"].to_pylist(), rows["b"].to_pylist(), strict=True))
    assert pairs == sorted({row for part in parts for row in part})


@given(st.sets(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1)), min_size=1))
def test_request_ids_differ_for_each_user_and_second(pairs: set[tuple[int, int]]) -> None:
    users = pa.chunked_array([[user for user, _ in pairs]], pa.int64())
    ids = request_ids(users, np.array([at_s for _, at_s in pairs]), "here")
    assert len(set(ids.tolist())) == len(pairs)
    assert (ids >= 0).all()


@pytest.mark.parametrize("user", [-1, 2**31, None])
def test_a_user_that_leaves_no_request_id_is_refused(user: int | None) -> None:
    users = pa.chunked_array([[1, user]], pa.int64())
    with pytest.raises(DataError, match="here: expected user ids of 0 to 2147483647"):
        request_ids(users, np.array([5, 5]), "here")


def test_too_few_rows_for_four_windows_are_told() -> None:
    with pytest.raises(DataError, match="layout x: expected rows for four windows"):
        windows(0, [0, 1, 1, 2, 3], place="layout x")
