"""Moments from the tables of a folder to the history of an impression: the known field failures."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features.dataset import load_dataset
from features.encoding import NULL, UNKNOWN
from features.errors import DataError
from features.times import TimeSpec, to_ms
from tests.features.logfiles import rewrite
from tests.features.tiny_log import write_tiny_log

IMPRESSION_TIME = "\ntime: {column: ts, unit: ms}"
PURCHASE_TIMES = "    time: {column: ts, unit: ms}\n    arrival: {column: arrived, unit: ms}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_log(tmp_path / "log")


@pytest.fixture(params=["csv", "parquet", "arrow"])
def kind(request: pytest.FixtureRequest) -> str:
    """A format that every table of the log is in."""
    return str(request.param)


@pytest.fixture(params=["UTC", "Asia/Tokyo"])
def machine_zone(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def declare(folder: Path, *, impression: str, purchase: str) -> None:
    path = folder / "schema.yaml"
    text = path.read_text()
    assert IMPRESSION_TIME in text
    assert PURCHASE_TIMES in text
    text = text.replace(IMPRESSION_TIME, f"\ntime: {{column: ts, {impression}}}")
    path.write_text(text.replace(PURCHASE_TIMES, f"    time: {{column: ts, {purchase}}}\n"))


def replace_times(path: Path, times: pa.Array) -> None:
    """Keep as many first rows, all of user 3, as there are times."""
    table = pq.read_table(path).slice(0, len(times))
    for name, values in {"ts": times, "user_id": pa.array([3] * len(times))}.items():
        table = table.set_column(table.schema.get_field_index(name), name, values)
    pq.write_table(table, path)


def ages_ms(folder: Path, kind: str) -> list[int]:
    """How long before the only impression the purchases in its history were, oldest first."""
    rewrite(folder, kind, num_files=1, path="{name}")
    dataset = load_dataset(folder)
    shown = dataset.impressions
    seen = dataset.histories().visible("purchase", shown.user_keys, shown.at_ms, max_length=16)
    assert seen.at_ms.dtype == np.int64
    ages: list[int] = (shown.at_ms[0] - seen.at_ms).tolist()
    return ages


def test_text_with_an_offset_meets_naive_text_in_the_declared_zone_on_any_machine(
    folder: Path, kind: str, machine_zone: str
) -> None:
    declare(folder, impression="unit: text, timezone: UTC", purchase="unit: text")
    replace_times(folder / "impressions.parquet", pa.array(["2024-03-10 06:30:00"]))
    replace_times(folder / "purchase.parquet", pa.array(["2024-03-10T08:00:00+02:00"]))
    assert os.environ["TZ"] == machine_zone
    assert ages_ms(folder, kind) == [1_800_000]


def test_naive_text_without_a_zone_stops_the_load_and_asks_for_it(folder: Path, kind: str) -> None:
    declare(folder, impression="unit: text", purchase="unit: text")
    replace_times(folder / "impressions.parquet", pa.array(["2024-03-10 06:30:00"]))
    replace_times(folder / "purchase.parquet", pa.array(["2024-03-10T08:00:00+02:00"]))
    with pytest.raises(DataError, match=r"impressions.*, column 'ts'.*`timezone`"):
        ages_ms(folder, kind)


def test_events_in_milliseconds_stay_apart_before_an_impression_in_seconds(
    folder: Path, kind: str
) -> None:
    declare(folder, impression="unit: s", purchase="unit: ms")
    replace_times(folder / "impressions.parquet", pa.array([1_700_000_001]))
    replace_times(folder / "purchase.parquet", pa.array([1_700_000_000_456, 1_700_000_000_123]))
    assert ages_ms(folder, kind) == [877, 544]


def test_milliseconds_declared_as_seconds_stop_the_load_with_the_likely_unit(
    folder: Path, kind: str
) -> None:
    declare(folder, impression="unit: s", purchase="unit: s")
    replace_times(folder / "impressions.parquet", pa.array([1_700_000_001]))
    replace_times(folder / "purchase.parquet", pa.array([1_700_000_000_123]))
    said = r"purchase.*, column 'ts'.*1700000000123.*looks like unit: ms"
    with pytest.raises(DataError, match=said):
        ages_ms(folder, kind)


def test_events_fifty_seconds_apart_keep_their_order_whatever_the_order_of_rows(
    folder: Path, kind: str
) -> None:
    declare(folder, impression="unit: s", purchase="unit: s")
    replace_times(folder / "impressions.parquet", pa.array([1_700_000_100]))
    replace_times(folder / "purchase.parquet", pa.array([1_700_000_050, 1_700_000_000]))
    assert ages_ms(folder, kind) == [100_000, 50_000]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_times_too_coarse_to_tell_events_apart_are_refused(dtype: type[np.floating]) -> None:
    coarse = pa.array(np.array([1.0, 2.0], dtype=dtype))
    with pytest.raises(DataError, match=r"events\.parquet, column 'ts': got .*float64"):
        to_ms(coarse, TimeSpec(column="ts", unit="s"), where="events.parquet")


def test_a_user_without_a_row_has_the_codes_of_one_of_whom_nothing_is_known(folder: Path) -> None:
    """The ranker encodes a user without a stored profile as nulls; training must say the same."""
    path = folder / "users.parquet"
    pq.write_table(pq.read_table(path).slice(0, 3), path)
    dataset = load_dataset(folder)
    unlisted = dataset.users.column("age")[dataset.users.rows(np.array([5]))]
    assert unlisted.tolist() == dataset.encoder.codes("age", [None]).tolist() == [NULL]
    assert dataset.items.column("kind")[0] == UNKNOWN
