"""Moments: every one becomes int64 Unix milliseconds, UTC, and the machine's zone is never asked.

Numbers need a declared unit and must fall into a plausible window. Text and timestamps without an
offset need a declared zone. Values of one text column may mix both kinds; each is read as it is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from features.arrays import IntArray
from features.errors import DataError

TimeUnit = Literal["s", "ms", "us", "ns", "text"]

EARLIEST_MS = 631_152_000_000  # 1990-01-01
LATEST_MS = 4_102_444_800_000  # 2100-01-01
_PER_MS = {"s": 1e-3, "ms": 1.0, "us": 1e3, "ns": 1e6}


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


def to_ms(values: pa.Array | pa.ChunkedArray, spec: TimeSpec, *, where: str) -> IntArray:
    """Give a column's moments in milliseconds.

    Args:
        values: integers, floats without a fraction of a millisecond lost, text or timestamps.
        spec: the schema's word on the column.
        where: file, for errors.

    Raises:
        DataError: missing or unreadable values, a zone that is needed and not declared, or values
            outside 1990 to 2100, with the unit that they look like.
    """
    place = f"{where}, column {spec.column!r}"
    if values.null_count:
        rows = np.flatnonzero(pc.is_null(values).to_numpy(zero_copy_only=False))
        raise DataError(
            f"{place}: {values.null_count} times are missing; first rows {rows[:5].tolist()}"
        )
    if spec.unit == "text":
        moments = _from_text(values, spec, place)
    else:
        moments = _from_numbers(values, spec.unit, place)
    _require_plausible(moments, values, spec, place)
    return moments


def _from_numbers(
    values: pa.Array | pa.ChunkedArray, unit: Literal["s", "ms", "us", "ns"], place: str
) -> IntArray:
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise DataError(
            f"{place}: expected numbers (the schema says unit: {unit}), got {values.type}; "
            "for text or timestamps declare unit: text"
        )
    numbers = (
        values.to_numpy(zero_copy_only=False)
        if isinstance(values, pa.Array)
        else (values.to_numpy())
    )
    if numbers.dtype.kind == "f":
        rounded: IntArray = np.rint(numbers.astype(np.float64) / _PER_MS[unit]).astype(np.int64)
        return rounded
    whole: IntArray = numbers.astype(np.int64)
    if unit == "s":
        _require_no_overflow(whole, place)
        return whole * 1000
    return whole // int(_PER_MS[unit])


def _require_no_overflow(seconds: IntArray, place: str) -> None:
    if len(seconds) and int(np.abs(seconds).max()) > 2**63 // 1000 - 1:
        raise DataError(f"{place}: {int(seconds.max())} s does not fit milliseconds in 64 bits")


def _from_text(values: pa.Array | pa.ChunkedArray, spec: TimeSpec, place: str) -> IntArray:
    if pa.types.is_timestamp(values.type):
        zoned = values
        if values.type.tz is None:
            _zone(spec, place, values[0] if len(values) else "")
            zoned = pc.assume_timezone(
                values, spec.timezone, ambiguous="earliest", nonexistent="earliest"
            )
        utc = pc.cast(zoned, pa.timestamp("ms", tz=zoned.type.tz), safe=False)
        return np.asarray(pc.cast(utc, pa.int64()), dtype=np.int64)
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        raise DataError(f"{place}: expected text or timestamps, got {values.type}")
    return _parse(values.to_pylist(), spec, place)


def _parse(texts: list[str], spec: TimeSpec, place: str) -> IntArray:
    parsed: dict[str, int] = {}
    for row, text in enumerate(texts):
        if text not in parsed:
            parsed[text] = _parse_one(text, spec, f"{place}, row {row}")
    return np.fromiter((parsed[text] for text in texts), dtype=np.int64, count=len(texts))


def _parse_one(text: str, spec: TimeSpec, place: str) -> int:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise DataError(f"{place}: expected an ISO 8601 time, got {text!r}") from None
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
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise DataError(f"{place}: unknown timezone {spec.timezone!r}: {error}") from error


def _require_plausible(
    moments: IntArray, values: pa.Array | pa.ChunkedArray, spec: TimeSpec, place: str
) -> None:
    outside = np.flatnonzero((moments < EARLIEST_MS) | (moments >= LATEST_MS))
    if not len(outside):
        return
    row = int(outside[0])
    example = values[row].as_py()
    raise DataError(
        f"{place}: {len(outside)} times fall outside 1990 to 2100 with unit: {spec.unit}; "
        f"row {row} holds {example!r}{_likely_unit(example)}"
    )


def _likely_unit(example: object) -> str:
    if isinstance(example, int | float):
        for unit, per_ms in _PER_MS.items():
            if EARLIEST_MS <= example / per_ms < LATEST_MS:
                return f", which looks like unit: {unit}"
    return ""
