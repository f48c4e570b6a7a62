"""What a sample of a column looks like."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.schemadraft import words
from features.times import EARLIEST_MS, LATEST_MS, TimeUnit

ColumnKind = Literal["integer", "number", "text", "boolean", "timestamp", "vector", "other"]

_INTEGER = r"^-?(0|[1-9][0-9]{0,17})$"
_PER_S: dict[TimeUnit, int] = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}
_OFFSET = re.compile(r"(Z|[+-][0-9]{2}:?[0-9]{2})$")
_MAX_PARSED = 2000


@dataclass(frozen=True, kw_only=True)
class TimeGuess:
    """How a column may tell the time.

    Attributes:
        unit: as a schema declares it.
        needs_zone: its values have no offset, so a zone has to be declared.
        is_date: its values have no time of day.
    """

    unit: TimeUnit
    needs_zone: bool
    is_date: bool


@dataclass(frozen=True, kw_only=True)
class ColumnSample:
    """Some rows of a column, and what is true of all of them.

    Attributes:
        stored: type in the file.
        kind: what the values are; text that holds only numbers is `integer` or `number`.
        values: as they are, without dictionaries.
        distinct: different values as text, nulls left out.
        low, high: of numbers.
        dim: of a vector, if all have the same length.
    """

    name: str
    stored: str
    kind: ColumnKind
    values: pa.ChunkedArray
    distinct: pa.Array
    num_rows: int
    num_null: int
    low: float | None
    high: float | None
    time: TimeGuess | None
    dim: int | None

    @property
    def num_distinct(self) -> int:
        """Number of different values in the sample."""
        return len(self.distinct)

    @property
    def is_unique(self) -> bool:
        """No value is there twice, and none is missing."""
        return self.num_rows > 1 and self.num_distinct == self.num_rows

    @property
    def is_binary(self) -> bool:
        """All values are 0 or 1, and both occur."""
        if self.kind == "boolean":
            return self.num_distinct == 2
        is_number = self.kind in {"integer", "number"}
        return is_number and self.num_distinct == 2 and (self.low, self.high) == (0, 1)

    @property
    def is_stored_as_float(self) -> bool:
        """The file holds floating-point numbers, which are no exact ids."""
        return self.stored in {"double", "float", "halffloat"}

    def numbers(self) -> npt.NDArray[np.float64]:
        """The values as numbers, not a number where missing."""
        return _floats(self.values)


def sample_of(name: str, column: pa.ChunkedArray) -> ColumnSample:
    """Look at a sample of a column."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = _kind(column)
    numbers = np.zeros(0)
    if kind in {"integer", "number"}:
        numbers = _floats(column)
        numbers = numbers[np.isfinite(numbers)]
    has_numbers = len(numbers) > 0
    return ColumnSample(
        name=name,
        stored=str(column.type),
        kind=kind,
        values=column,
        distinct=_distinct(column, kind, numbers),
        num_rows=len(column),
        num_null=column.null_count,
        low=float(np.min(numbers)) if has_numbers else None,
        high=float(np.max(numbers)) if has_numbers else None,
        time=None if _is_named_id(name) and kind == "integer" else _time(column, kind),
        dim=_dim(column) if kind == "vector" else None,
    )


def _is_named_id(name: str) -> bool:
    """A large whole number may be an id, and fall into a plausible time by chance."""
    found = words.words_of(name)
    return bool(found & (words.ID | words.EXAMPLE)) and not found & words.TIME


def _kind(column: pa.ChunkedArray) -> ColumnKind:
    found = column.type
    if pa.types.is_integer(found):
        return "integer"
    if pa.types.is_floating(found) or pa.types.is_decimal(found):
        return "number"
    if pa.types.is_boolean(found):
        return "boolean"
    if pa.types.is_timestamp(found):
        return "timestamp"
    if _is_list(found) and _is_number(found.value_type):
        return "vector"
    return _kind_of_text(column) if _is_text(found) else "other"


def _kind_of_text(column: pa.ChunkedArray) -> ColumnKind:
    values = _trimmed(column).drop_null()
    if not len(values):
        return "text"
    if pc.all(pc.match_substring_regex(values, _INTEGER)).as_py():
        return "integer"
    # A leading zero says that it is a name made of digits.
    if pc.any(pc.match_substring_regex(values, r"^-?0[0-9]")).as_py():
        return "text"
    try:
        pc.cast(values, pa.float64())
    except pa.ArrowInvalid:
        return "vector" if _are_vectors(values) else "text"
    return "number"


def _are_vectors(values: pa.ChunkedArray) -> bool:
    return bool(pc.all(pc.match_substring_regex(values, r"^[-+0-9.eE]+(;[-+0-9.eE]+)+$")).as_py())


def _trimmed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not _is_text(column.type):
        return column
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(trimmed, ""), None, trimmed)


def _floats(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Give rough numbers: large ids lose their last digits."""
    found: npt.NDArray[np.float64] = pc.cast(_trimmed(column), pa.float64(), safe=False).to_numpy()
    return found


def _distinct(column: pa.ChunkedArray, kind: ColumnKind, numbers: Any) -> pa.Array:
    if kind in {"vector", "other"}:
        return pa.array([], pa.string())
    if kind == "number":
        return pc.cast(pa.array(np.unique(numbers)), pa.string())
    return pc.cast(pc.unique(column.drop_null()), pa.string())


def _dim(column: pa.ChunkedArray) -> int | None:
    if _is_text(column.type):
        column = pc.split_pattern(pc.utf8_trim_whitespace(column), ";")
    lengths = pc.unique(pc.list_value_length(column.drop_null())).to_pylist()
    return int(lengths[0]) if len(lengths) == 1 and lengths[0] > 0 else None


def _time(column: pa.ChunkedArray, kind: ColumnKind) -> TimeGuess | None:
    values = column.drop_null()
    if not len(values):
        return None
    if kind == "timestamp":
        return TimeGuess(unit="text", needs_zone=column.type.tz is None, is_date=False)
    if kind in {"integer", "number"} and not pa.types.is_decimal(column.type):
        numbers = _floats(values)
        for unit, per_s in _PER_S.items():
            low, high = EARLIEST_MS / 1000 * per_s, LATEST_MS / 1000 * per_s
            if ((numbers >= low) & (numbers < high)).all():
                return TimeGuess(unit=unit, needs_zone=False, is_date=False)
        return None
    return _time_of_text(values) if kind == "text" else None


def _time_of_text(values: pa.ChunkedArray) -> TimeGuess | None:
    texts = [text.strip() for text in values.slice(0, _MAX_PARSED).to_pylist()]
    for text in texts:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
        # 20240131 would be read too, but is a number as often.
        if "-" not in text or not 1990 <= moment.year < 2100:
            return None
    return TimeGuess(
        unit="text",
        needs_zone=any(not _OFFSET.search(text[10:]) for text in texts),
        is_date=all(len(text) <= len("2024-01-31") for text in texts),
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))
