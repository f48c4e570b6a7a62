"""Moments: every one becomes int64 Unix milliseconds, UTC, and the machine's zone is never asked.

Numbers need a declared unit and must fall into a plausible window. Text and timestamps without an
offset need a declared zone. Values of one text column may mix both kinds; each is read as it is.
What is finer than a millisecond is cut off, towards the past.

Local times that a change of the clock makes ambiguous or impossible are read alike from text and
from Parquet timestamps. A time that happens twice (the hour before winter time starts) is the
first of the two. A time that never happens (skipped when summer time starts) is read with the
offset before the change: 02:30 becomes 03:30 summer time. Store an offset to say otherwise.

Rows in errors are counted from 0, a CSV header not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from features.arrays import IntArray
from features.errors import BadRows, DataError

NumericUnit = Literal["s", "ms", "us", "ns"]
TimeUnit = Literal["s", "ms", "us", "ns", "text"]

EARLIEST_MS = 631_152_000_000  # 1990-01-01
LATEST_MS = 4_102_444_800_000  # 2100-01-01
_PER_S: dict[NumericUnit, int] = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}
_MINUTE_MS = 60_000


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class TimeSpec:
    """How a column tells the time.

    Attributes:
        column: its name.
        unit: of a numeric column; "text" for ISO 8601 text or Parquet timestamps.
        timezone: of values without an offset, an IANA name such as "UTC".
    """

    column: str
    unit: TimeUnit
    timezone: str | None = None


def time_problems(spec: TimeSpec, place: str) -> Iterable[str]:
    """Give what is wrong with a declaration, each with its place in the document."""
    if spec.timezone is None:
        return
    if spec.unit != "text":
        yield (
            f"{place}.timezone: numbers count from 1970 in UTC and have no zone; leave it out, "
            f"or declare unit: text, got {spec.timezone!r} with unit: {spec.unit}"
        )
    try:
        ZoneInfo(spec.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        yield (
            f"{place}.timezone: expected an IANA name such as UTC or Europe/Berlin, "
            f"got {spec.timezone!r}"
        )


def to_ms(values: pa.Array | pa.ChunkedArray, spec: TimeSpec, *, where: str) -> IntArray:
    """Give a column's moments in milliseconds.

    Args:
        values: integers, floats, text or timestamps. A numeric unit also takes numbers in text.
        spec: the schema's word on the column.
        where: file, for errors.

    Raises:
        BadRows: missing or unreadable values, or values outside 1990 to 2100, with the unit that
            they look like.
        DataError: a zone that is needed and not declared, or a type that has no moments.
    """
    place = f"{where}, column {spec.column!r}"
    if pa.types.is_dictionary(values.type):
        values = pc.cast(values, values.type.value_type)
    if values.null_count:
        rows = np.flatnonzero(pc.is_null(values).to_numpy(zero_copy_only=False))
        raise BadRows(place, "times are missing", rows.tolist())
    if spec.unit == "text":
        moments = _from_text(values, spec, place)
        _require_plausible(moments, values, "ms", place, is_declared=False)
        return moments
    numbers = _numbers(values, spec.unit, place)
    _require_plausible(numbers, values, spec.unit, place)
    return _in_ms(numbers, spec.unit)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _numbers(values: pa.Array | pa.ChunkedArray, unit: NumericUnit, place: str) -> Any:
    """Give the raw numbers, int64 or float64: integers never pass through floating point."""
    if _is_text(values.type):
        for kind in (pa.int64(), pa.float64()):
            try:
                return np.asarray(pc.cast(values, kind))
            except pa.ArrowInvalid:
                continue
        rows = [row for row, text in enumerate(values.to_pylist()) if not _is_number(text)]
        raise BadRows(
            place,
            f"times are not numbers (the schema says unit: {unit})",
            rows,
            example=repr(values[rows[0]].as_py()),
            hint="for times as text declare unit: text",
        )
    if pa.types.is_float64(values.type) or pa.types.is_integer(values.type):
        return np.asarray(values)
    if pa.types.is_floating(values.type):
        raise DataError(
            f"{place}: got {values.type}, which makes moments minutes apart equal; "
            "store integers or float64"
        )
    raise DataError(
        f"{place}: expected numbers (the schema says unit: {unit}), got {values.type}; "
        "for text or timestamps declare unit: text"
    )


def _is_number(text: str) -> bool:
    try:
        pa.scalar(text).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _in_ms(numbers: Any, unit: NumericUnit) -> IntArray:
    """Convert numbers that are plausible, so nothing overflows."""
    if numbers.dtype.kind == "f":
        # Rounded to microseconds first: 1700000000.123 s is a hair below that as a float.
        micros = np.rint(numbers * (10**6 / _PER_S[unit])).astype(np.int64)
        floored: IntArray = micros // 1000
        return floored
    whole: IntArray = numbers.astype(np.int64)
    return whole * 1000 if unit == "s" else whole // (_PER_S[unit] // 1000)


def _from_text(values: pa.Array | pa.ChunkedArray, spec: TimeSpec, place: str) -> IntArray:
    if pa.types.is_timestamp(values.type):
        return _from_timestamps(values, spec, place)
    if not _is_text(values.type):
        hint = ""
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            hint = "; for numbers declare unit: s, ms, us or ns"
        raise DataError(f"{place}: expected text or timestamps, got {values.type}{hint}")
    distinct = pc.unique(values)
    parsed = [_parse_one(text, spec, place) for text in distinct.to_pylist()]
    places = np.asarray(pc.index_in(values, value_set=distinct), dtype=np.int64)
    is_bad = np.array([moment is None for moment in parsed], dtype=bool)[places]
    if is_bad.any():
        rows = np.flatnonzero(is_bad).tolist()
        raise BadRows(place, "times are not ISO 8601", rows, example=repr(values[rows[0]].as_py()))
    return np.array(parsed, dtype=np.int64)[places]


def _from_timestamps(values: pa.Array | pa.ChunkedArray, spec: TimeSpec, place: str) -> IntArray:
    raw = np.asarray(pc.cast(values, pa.int64()), dtype=np.int64)
    _require_plausible(raw, values, values.type.unit, place, is_declared=False)
    local_ms = _in_ms(raw, values.type.unit)
    if values.type.tz is not None or not len(local_ms):
        return local_ms
    zone = _zone(spec, place, values[0])
    # Offsets change on whole minutes, so one look-up a minute is enough.
    minutes, places = np.unique(local_ms // _MINUTE_MS, return_inverse=True)
    offsets = np.array([_offset_ms(int(m) * _MINUTE_MS, zone) for m in minutes], dtype=np.int64)
    return local_ms - offsets[places]


def _offset_ms(local_ms: int, zone: ZoneInfo) -> int:
    local = datetime(1970, 1, 1) + timedelta(milliseconds=local_ms)
    offset = local.replace(tzinfo=zone).utcoffset()
    assert offset is not None
    return offset // timedelta(milliseconds=1)


def _parse_one(text: str, spec: TimeSpec, place: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=_zone(spec, place, text))
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _zone(spec: TimeSpec, place: str, example: object) -> ZoneInfo:
    if spec.timezone is None:
        raise DataError(
            f"{place}: {example!s} has no offset; declare the column's `timezone` in the schema "
            "(the machine's own zone is never used)"
        )
    try:
        return ZoneInfo(spec.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise DataError(f"{place}: unknown timezone {spec.timezone!r}: {error}") from error


def _bounds(unit: NumericUnit) -> tuple[int, int]:
    return EARLIEST_MS // 1000 * _PER_S[unit], LATEST_MS // 1000 * _PER_S[unit]


def _require_plausible(
    numbers: Any,
    values: pa.Array | pa.ChunkedArray,
    unit: NumericUnit,
    place: str,
    *,
    is_declared: bool = True,
) -> None:
    low, high = _bounds(unit)
    outside = np.flatnonzero(~((numbers >= low) & (numbers < high)))  # NaN is outside too
    if not len(outside):
        return
    row = int(outside[0])
    declared, likely = "", ""
    if is_declared:
        declared, likely = f" with unit: {unit}", _likely_unit(numbers[row])
    raise BadRows(
        place,
        f"times fall outside 1990 to 2100{declared}",
        outside.tolist(),
        example=f"{values[row]!s}{likely}",
    )


def _likely_unit(number: Any) -> str:
    for unit in _PER_S:
        low, high = _bounds(unit)
        if low <= number < high:
            return f", which looks like unit: {unit}"
    return ""
