"""Every moment is int64 milliseconds UTC, whatever the column holds and wherever the machine is."""

import os
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from features.errors import DataError
from features.times import TimeSpec, TimeUnit, to_ms

TEXT = TimeSpec(column="ts", unit="text")
UTC_TEXT = TimeSpec(column="ts", unit="text", timezone="UTC")


@pytest.fixture(params=["UTC", "Asia/Tokyo", "America/New_York"])
def machine_zone(request: pytest.FixtureRequest) -> Iterator[str]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def one(value: object, spec: TimeSpec) -> int:
    return int(to_ms(pa.array([value]), spec, where="events.csv")[0])


def test_an_offset_and_a_declared_zone_meet_in_utc_wherever_the_machine_is(
    machine_zone: str,
) -> None:
    event = one("2024-03-10T08:00:00+02:00", TEXT)
    impression = one("2024-03-10 06:30:00", UTC_TEXT)
    assert impression - event == 1_800_000
    assert event == 1_710_050_400_000


def test_naive_timestamps_take_the_declared_zone_wherever_the_machine_is(
    machine_zone: str,
) -> None:
    naive = pa.array([np.datetime64("2024-03-10T06:30:00", "us")])
    tokyo = TimeSpec(column="ts", unit="text", timezone="Asia/Tokyo")
    assert int(to_ms(naive, UTC_TEXT, where="x")[0]) == 1_710_052_200_000
    assert int(to_ms(naive, tokyo, where="x")[0]) == 1_710_052_200_000 - 9 * 3_600_000


def test_timestamps_with_a_zone_need_no_declaration() -> None:
    aware = pa.array([1_710_052_200_123], pa.timestamp("ms", tz="Asia/Tokyo"))
    assert int(to_ms(aware, TEXT, where="x")[0]) == 1_710_052_200_123


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["2024-03-10 06:30:00"]),
        pa.array(["2024-03-10T06:30:00Z", "2024-03-10 06:30:00"]),
        pa.array([np.datetime64("2024-03-10T06:30:00", "us")]),
    ],
)
def test_a_naive_or_mixed_column_without_a_zone_is_refused_and_the_zone_asked_for(
    values: pa.Array,
) -> None:
    with pytest.raises(DataError, match=r"events\.csv, column 'ts'.*`timezone`"):
        to_ms(values, TEXT, where="events.csv")


def test_a_mixed_column_with_a_zone_reads_each_value_as_it_is() -> None:
    values = pa.array(["2024-03-10T08:00:00+02:00", "2024-03-10 06:30:00"])
    assert np.diff(to_ms(values, UTC_TEXT, where="x")).tolist() == [1_800_000]


@pytest.mark.parametrize(
    ("unit", "value"),
    [("s", 1_700_000_000), ("ms", 1_700_000_000_000), ("us", 1_700_000_000_000_000)],
)
def test_every_unit_gives_the_same_moment(unit: TimeUnit, value: int) -> None:
    assert one(value, TimeSpec(column="ts", unit=unit)) == 1_700_000_000_000
    assert one(float(value), TimeSpec(column="ts", unit=unit)) == 1_700_000_000_000


@pytest.mark.parametrize(
    ("unit", "value", "likely"),
    [
        ("s", 1_700_000_000_123, "ms"),
        ("ms", 1_700_000_000, "s"),
        ("ms", 1_700_000_000_123_000, "us"),
    ],
)
def test_a_wrong_unit_is_refused_with_file_column_example_and_the_likely_unit(
    unit: TimeUnit, value: int, likely: str
) -> None:
    said = rf"events\.csv, column 'ts'.*1990 to 2100.*{value}.*looks like unit: {likely}"
    with pytest.raises(DataError, match=said):
        one(value, TimeSpec(column="ts", unit=unit))


def test_milliseconds_stay_distinct_and_exact() -> None:
    values = pa.array([1_700_000_000_123, 1_700_000_000_456])
    got = to_ms(values, TimeSpec(column="ts", unit="ms"), where="x")
    assert got.dtype == np.int64
    assert got.tolist() == [1_700_000_000_123, 1_700_000_000_456]


def test_seconds_with_a_fraction_keep_their_milliseconds() -> None:
    assert one(1_700_000_000.123, TimeSpec(column="ts", unit="s")) == 1_700_000_000_123


@pytest.mark.parametrize(
    ("value", "spec", "said"),
    [
        (None, TimeSpec(column="ts", unit="ms"), "missing; first rows"),
        ("yesterday", UTC_TEXT, "row 0: expected an ISO 8601 time, got 'yesterday'"),
        ("2024-03-10", TimeSpec(column="ts", unit="ms"), "expected numbers"),
        (5, UTC_TEXT, "expected text or timestamps"),
        (
            "2024-03-10",
            TimeSpec(column="ts", unit="text", timezone="Mars/Base"),
            "unknown timezone",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(value: object, spec: TimeSpec, said: str) -> None:
    with pytest.raises(DataError, match=said):
        one(value, spec)


def test_an_unknown_key_of_a_time_is_refused() -> None:
    with pytest.raises(ValidationError, match="zone"):
        TimeSpec(column="ts", unit="ms", zone="UTC")  # type: ignore[call-arg]
