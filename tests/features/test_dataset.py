"""A folder is read as its schema says, point in time, and otherwise refused with the place."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml

from features.datacheck import check_dataset
from features.dataset import load_dataset
from features.encoding import NULL, UNKNOWN
from features.entities import EntityTable
from features.errors import DataError
from features.tables import read_table
from tests.features.tiny_log import START_MS, write_tiny_log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_log(tmp_path / "log")


def change(path: Path, **columns: Callable[[pa.ChunkedArray], pa.Array]) -> None:
    table = pq.read_table(path)
    for name, make in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, make(table[name]))
    pq.write_table(table, path)


def with_value(row: int, value: object) -> Callable[[pa.ChunkedArray], pa.Array]:
    def make(column: pa.ChunkedArray) -> pa.Array:
        values = column.to_pylist()
        values[row] = value
        return pa.array(values)

    return make


def test_a_log_is_read_in_time_order_with_codes_labels_and_events(folder: Path) -> None:
    dataset = load_dataset(folder)
    shown = dataset.impressions
    assert (np.diff(shown.at_ms) >= 0).all()
    assert shown.labels["click"].mean() > 0.1
    assert set(shown.codes) == {"slot", "surface"}
    assert dataset.events["purchase"].numeric["quantity"].min() > 0
    assert dataset.events["contact"].item_keys is None
    assert (dataset.events["purchase"].arrival_ms >= dataset.events["purchase"].at_ms).all()


def test_a_second_reading_uses_the_codes_of_the_first(folder: Path) -> None:
    first, second = load_dataset(folder), load_dataset(folder)
    assert second.encoder.encoder_id == first.encoder.encoder_id
    assert np.array_equal(second.items.codes, first.items.codes)
    kept = EntityTable.load(folder / "prepared" / "items")
    assert np.array_equal(kept.codes, first.items.codes)


def test_codes_fitted_for_another_schema_are_refused(folder: Path) -> None:
    load_dataset(folder)
    text = (folder / "schema.yaml").read_text()
    (folder / "schema.yaml").write_text(text.replace("memory_length: 4", "memory_length: 5"))
    with pytest.raises(DataError, match=r"encoder\.json: fitted for schema .* delete"):
        load_dataset(folder)


def test_what_is_seen_only_after_the_training_window_is_unknown(folder: Path) -> None:
    table = pq.read_table(folder / "impressions.parquet")
    late = np.argmax(table["ts"].to_numpy())
    change(folder / "impressions.parquet", slot=with_value(int(late), "brand-new"))
    dataset = load_dataset(folder)
    assert dataset.impressions.codes["slot"][-5:].tolist().count(UNKNOWN) == 1


def test_users_without_a_row_are_null_and_items_without_one_unknown(folder: Path) -> None:
    dataset = load_dataset(folder)
    assert (dataset.users.codes[0] == NULL).all()
    assert (dataset.items.codes[0] == UNKNOWN).all()
    assert dataset.items.rows(np.array([999_999, 100])).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("file", "column", "row", "value", "said"),
    [
        ("impressions", "click", 3, None, r"'click': 1 labels missing, 0 outside.*rows \[3\]"),
        ("impressions", "click", 3, 2, r"'click': 0 labels missing, 1 outside"),
        ("impressions", "surface", 5, "moon", r"'surface': 1 rows are on none of.*'moon'"),
        ("impressions", "ts", 2, 1_700_000, r"column 'ts': 1 times fall outside"),
        ("purchase", "quantity", 7, -2.0, r"'quantity'.*1 values outside \[0, 50\].*rows \[7\]"),
        ("purchase", "user_id", 4, None, r"users: 1 ids are missing; first rows \[4\]"),
        ("items", "item_id", 1, 100, r"items: 1 ids are repeated"),
    ],
)
def test_a_bad_value_stops_the_load_and_is_named(
    folder: Path, file: str, column: str, row: int, value: object, said: str
) -> None:
    change(folder / f"{file}.parquet", **{column: with_value(row, value)})
    with pytest.raises(DataError, match=said):
        load_dataset(folder)


def test_a_missing_column_is_named_with_those_that_are_there(folder: Path) -> None:
    table = pq.read_table(folder / "purchase.parquet").drop_columns(["quantity"])
    pq.write_table(table, folder / "purchase.parquet")
    with pytest.raises(DataError, match=r"purchase\.parquet: columns \['quantity'\] are missing"):
        load_dataset(folder)


@pytest.mark.parametrize(
    ("change_to", "said"),
    [
        ({"tune": [START_MS, START_MS + 1]}, "tune is .*starts at"),
        ({"test": [5, 5]}, "test is"),
        ({"colour": [1, 2]}, "colour"),
    ],
)
def test_windows_that_overlap_are_empty_or_unknown_are_refused(
    folder: Path, change_to: dict[str, list[int]], said: str
) -> None:
    path = folder / "splits.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | change_to))
    with pytest.raises(DataError, match=said):
        load_dataset(folder)


def test_a_csv_is_read_with_the_types_of_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,name\n1234567890123456789,007\n1234567890123456790,7\n")
    table = read_table(path, {"id": pa.int64(), "name": pa.string()})
    assert table["id"].to_pylist() == [1234567890123456789, 1234567890123456790]
    assert table["name"].to_pylist() == ["007", "7"]
    path.write_text("id,name\n1,a\nbad,b\n")
    with pytest.raises(DataError, match=r"t\.csv.*bad"):
        read_table(path, {"id": pa.int64(), "name": pa.string()})


def test_ids_that_went_through_floats_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1.0, 2.0]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="mangles"):
        read_table(tmp_path / "t.parquet", {"id": pa.int64()})


def test_a_log_with_text_times_is_the_same_in_every_zone_of_the_machine(folder: Path) -> None:
    text = (folder / "schema.yaml").read_text()
    spec = "time: {column: ts, unit: text, timezone: America/New_York}"
    (folder / "schema.yaml").write_text(text.replace("time: {column: ts, unit: ms}", spec))
    for name in ("impressions", "purchase", "contact"):
        change(
            folder / f"{name}.parquet",
            ts=lambda c: pc.cast(pc.cast(c, pa.timestamp("ms")), pa.string()),
        )
    code = (
        "import sys, pathlib; from features.dataset import load_dataset\n"
        "d = load_dataset(pathlib.Path(sys.argv[1]))\n"
        "print(d.impressions.at_ms.sum(), d.events['purchase'].at_ms.sum())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code, str(folder)],
            env={**os.environ, "TZ": zone},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for zone in ("UTC", "Asia/Tokyo")
    }
    assert len(said) == 1


def test_a_check_reports_a_good_log_and_is_trainable(folder: Path) -> None:
    report = check_dataset(folder)
    assert report.is_trainable
    assert report.num_impressions == 960
    assert report.windows["test"]["rows"] == 240
    assert 0 < report.windows["test"]["click_frac"] < 1
    assert report.history_lengths["purchase"]["p100"] == 16
    assert report.events["purchase"]["late"] > 0  # type: ignore[operator]


def test_a_check_of_a_broken_log_says_what_stops_training(folder: Path, tmp_path: Path) -> None:
    change(folder / "impressions.parquet", example_id=with_value(1, 0))
    assert "1 example ids are repeated" in check_dataset(folder).errors[0]
    change(folder / "impressions.parquet", click=with_value(0, None))
    assert "labels missing" in check_dataset(folder).errors[0]
    assert not check_dataset(tmp_path / "nowhere").is_trainable
