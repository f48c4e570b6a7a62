import numpy as np
import pyarrow as pa
import pytest

from features.errors import DataError
from features.times import TimeSpec, time_problems, to_ms

NOON_MS = 1_710_072_000_000  # 2024-03-10T12:00:00Z
BERLIN = TimeSpec(column="at", unit="text", timezone="Europe/Berlin")


def of(unit: str, timezone: str | None = None) -> TimeSpec:
    return TimeSpec(column="at", unit=unit, timezone=timezone)  # type: ignore[arg-type]


def read(values: pa.Array, spec: TimeSpec) -> list[int]:
    moments = to_ms(values, spec, where="log.csv")
    assert moments.dtype == np.int64
    listed: list[int] = moments.tolist()
    return listed


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        ("s", 1_700_000_000, 1_700_000_000_000),
        ("ms", 1_700_000_000_123, 1_700_000_000_123),
        ("us", 1_700_000_000_123_999, 1_700_000_000_123),
        ("ns", 1_700_000_000_123_999_999, 1_700_000_000_123),
    ],
)
def test_integers_of_each_unit_become_milliseconds_and_finer_parts_are_cut_off(
    unit: str, value: int, expected: int
) -> None:
    assert read(pa.array([value]), of(unit)) == [expected]
    assert read(pa.array([str(value)]), of(unit)) == [expected]


def test_float_seconds_keep_their_milliseconds() -> None:
    values = [1_700_000_000.123, 1_700_000_000.456, 1_700_000_000.9999]

    expected = [1_700_000_000_123, 1_700_000_000_456, 1_700_000_000_999]
    assert read(pa.array(values), of("s")) == expected
    assert read(pa.array([repr(value) for value in values]), of("s")) == expected


def test_an_offset_is_obeyed_and_a_time_without_one_takes_the_declared_zone() -> None:
    values = pa.array(["2024-03-10T08:00:00+02:00", "2024-03-10 06:30:00", "2024-03-10T06:30:00Z"])

    event, naive, zulu = read(values, of("text", "UTC"))

    assert naive - event == 1_800_000
    assert zulu == naive == NOON_MS - 5 * 3_600_000 - 1_800_000


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["2024-03-10 06:30:00"]),
        pa.array(["2024-03-10T08:00:00+02:00", "2024-03-10 06:30:00"]),
        pa.array([NOON_MS], pa.timestamp("ms")),
    ],
)
def test_times_without_an_offset_ask_for_a_zone(values: pa.Array) -> None:
    with pytest.raises(DataError, match=r"log.csv, column 'at'.*declare the column's `timezone`"):
        read(values, of("text"))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_parquet_timestamps_read_like_the_same_text(unit: str) -> None:
    naive = pa.array([NOON_MS // 1000], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp(unit))
    zoned = naive.cast(pa.timestamp(unit, tz="Asia/Tokyo"))  # an instant, shown in Tokyo

    assert read(naive, BERLIN) == read(pa.array(["2024-03-10 12:00:00"]), BERLIN)
    assert read(naive, BERLIN) == [NOON_MS - 3_600_000]
    assert read(zoned, of("text")) == [NOON_MS]


@pytest.mark.parametrize(
    ("local", "utc"),
    [
        ("2024-10-27 02:30:00", "2024-10-27T00:30:00Z"),  # happens twice: the first, summer time
        ("2024-03-31 02:30:00", "2024-03-31T01:30:00Z"),  # never happens: read as 03:30 summer time
        ("2024-07-01 12:00:00", "2024-07-01T10:00:00Z"),
        ("2024-01-01 12:00:00", "2024-01-01T11:00:00Z"),
    ],
)
def test_changes_of_the_clock_are_resolved_as_documented_and_alike(local: str, utc: str) -> None:
    text = pa.array([local])
    stamp = pa.array([np.datetime64(local.replace(" ", "T"), "us")])

    expected = read(pa.array([utc]), of("text"))
    assert read(text, BERLIN) == expected
    assert read(stamp, BERLIN) == expected


@pytest.mark.parametrize(
    ("declared", "value", "likely"),
    [
        ("s", 1_700_000_000_123, "ms"),
        ("ms", 1_700_000_000, "s"),
        ("s", 1_700_000_000_123_456_789, "ns"),
        ("ns", 1_700_000_000_123_456, "us"),
    ],
)
def test_a_wrong_unit_stops_naming_column_example_and_likely_unit(
    declared: str, value: int, likely: str
) -> None:
    for values in (pa.array([value]), pa.array([str(value)])):
        with pytest.raises(DataError, match="1990 to 2100") as caught:
            read(values, of(declared))

        told = str(caught.value)
        assert "log.csv, column 'at'" in told
        assert f"row 0 holds {value}" in told
        assert told.endswith(f"looks like unit: {likely}")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e300])
def test_numbers_that_are_no_moment_stop(value: float) -> None:
    with pytest.raises(DataError, match="row 1 holds"):
        read(pa.array([1_700_000_000.0, value]), of("s"))


def test_the_smallest_integer_does_not_slip_through() -> None:
    with pytest.raises(DataError, match="1990 to 2100"):
        read(pa.array([-(2**63)]), of("s"))


def test_missing_times_stop_with_their_rows() -> None:
    with pytest.raises(DataError, match=r"2 times are missing; first rows \[1, 2\]"):
        read(pa.array([1_700_000_000, None, None]), of("s"))


@pytest.mark.parametrize(
    ("values", "unit", "told"),
    [
        (pa.array(["2024-03-10"]), "s", "row 0 holds '?2024-03-10.*declare unit: text"),
        (pa.array(["1700000000", "soon"]), "s", "row 1 holds 'soon'"),
        (pa.array([NOON_MS], pa.timestamp("ms")), "ms", "declare unit: text"),
        (pa.array([NOON_MS]), "text", "declare unit: s, ms, us or ns"),
        (
            pa.array(["2024-03-10T00:00Z", "10/03/2024"]),
            "text",
            "not ISO 8601.*row 1 holds '10/03/2024'",
        ),
        (pa.array(["1970-01-01T00:00:00Z"]), "text", "row 0 holds 1970-01-01T00:00:00Z"),
        (pa.array([0], pa.timestamp("ns", tz="UTC")), "text", "row 0 holds 1970-01-01"),
    ],
)
def test_a_column_of_another_kind_says_what_to_declare(
    values: pa.Array, unit: str, told: str
) -> None:
    with pytest.raises(DataError, match=told):
        read(values, of(unit))


def test_times_in_a_dictionary_are_read_as_their_values() -> None:
    values = pa.array(["2024-03-10T12:00:00Z"] * 2).dictionary_encode()

    assert read(values, of("text")) == [NOON_MS, NOON_MS]


def test_an_empty_column_has_no_moments_and_needs_no_zone() -> None:
    for kind in (pa.string(), pa.timestamp("us")):
        assert read(pa.array([], kind), of("text")) == []
    assert read(pa.array([], pa.int64()), of("ms")) == []


def test_single_precision_floats_are_refused() -> None:
    with pytest.raises(DataError, match="got float, which makes moments minutes apart equal"):
        read(pa.array([1.7e9], pa.float32()), of("s"))


def test_declarations_that_cannot_hold_are_named() -> None:
    assert list(time_problems(of("text", "Europe/Berlin"), "time")) == []
    assert list(time_problems(of("ms"), "time")) == []
    (unknown,) = time_problems(of("text", "Berlin"), "time")
    (needless,) = time_problems(of("s", "UTC"), "sources.buy.time")
    assert unknown.startswith("time.timezone: expected an IANA name")
    assert needless.startswith("sources.buy.time.timezone: numbers count from 1970 in UTC")
