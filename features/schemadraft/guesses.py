"""Features that columns may be: category or number, with which vocabulary, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from features.schemadraft import words
from features.schemadraft.columns import ColumnSample

_MAX_CATEGORIES = 20  # a whole number with more values is a number, unless its name says otherwise
_MAX_FITTED = 20_000
_MIN_BUCKETS, _MAX_BUCKETS = 1 << 10, 1 << 20
_LONG_TAIL = 20  # a number whose largest is so many times its median is taken as log1p


@dataclass(frozen=True, kw_only=True)
class FeatureGuess:
    """A feature, or why a column is none.

    Attributes:
        column: its sample.
        name: of the feature.
        fields: further keys of its declaration.
        comment: what the guess rests on.
        is_left_out: it is written as a comment only.
    """

    column: ColumnSample
    name: str
    fields: dict[str, object]
    comment: str
    is_left_out: bool = False

    @property
    def vocabulary(self) -> str | None:
        """Name of its vocabulary, if it is a category."""
        found = self.fields.get("vocabulary")
        return None if found is None else str(found)


def guess_feature(column: ColumnSample, name: str, *, allows_vector: bool = False) -> FeatureGuess:
    """Say what a column may be."""
    if column.kind == "vector":
        return _vector(column, name, allows_vector=allows_vector)
    why = _useless(column)
    if why:
        return _left_out(column, name, why)
    seen = f"{column.num_distinct:,} distinct values of {column.num_rows:,}"
    if column.kind == "number" or (column.kind == "integer" and not _is_category(column)):
        return _number(column, name, seen)
    if column.is_unique and column.num_rows > _MAX_CATEGORIES:
        return _left_out(column, name, f"all of {column.num_rows:,} values differ")
    return _guessed(column, name, {"kind": "categorical", "vocabulary": name}, seen)


def vocabulary_fields(columns: Iterable[ColumnSample]) -> tuple[dict[str, object], str]:
    """Give policy and size of a vocabulary for the columns that share it, and the reason."""
    num_distinct = max(column.num_distinct for column in columns)
    if num_distinct <= _MAX_FITTED:
        return {"policy": "fitted"}, f"{num_distinct:,} values in the sample"
    buckets = 1 << int(np.ceil(np.log2(4 * num_distinct)))
    num_buckets = min(max(buckets, _MIN_BUCKETS), _MAX_BUCKETS)
    return {"policy": "hashed", "num_buckets": num_buckets}, (
        f"{num_distinct:,} values in the sample alone: too many to list"
    )


def _useless(column: ColumnSample) -> str:
    """Say why a column is no feature; "" if it may be one."""
    if column.time is not None or column.kind == "timestamp":
        return "a moment is no feature"
    if column.kind == "other":
        return f"{column.stored} is no feature"
    if words.words_of(column.name) & words.WEIGHT and column.kind in {"integer", "number"}:
        return "it looks like a sampling weight; if it is one, name it as weight_column below"
    return "it says the same everywhere" if column.num_distinct < 2 else ""


def _is_category(column: ColumnSample) -> bool:
    is_named = bool(words.words_of(column.name) & words.CATEGORY)
    return is_named or column.is_binary or column.num_distinct <= _MAX_CATEGORIES


def _number(column: ColumnSample, name: str, seen: str) -> FeatureGuess:
    fields: dict[str, object] = {"kind": "numeric"}
    numbers = column.numbers()
    finite = numbers[np.isfinite(numbers)]
    low, high = column.low or 0.0, column.high or 0.0
    comment = f"{seen}, {low:g} to {high:g}"
    positive = finite[finite > 0]
    if len(positive) and low >= 0 and high > _LONG_TAIL * float(np.median(positive)):
        fields |= {"transform": "log1p", "minimum": 0}
        comment += "; log1p for its long tail, and below 0 stops the load"
    if len(finite) < len(numbers):
        fields["default"] = 0
        comment += f"; {len(numbers) - len(finite):,} are missing and count as the default"
    return _guessed(column, name, fields, comment)


def _vector(column: ColumnSample, name: str, *, allows_vector: bool) -> FeatureGuess:
    if not allows_vector or column.dim is None:
        return _left_out(column, name, "only items have vectors, all of one length")
    fields: dict[str, object] = {"kind": "vector", "dim": column.dim}
    return _guessed(column, name, fields, f"lists of {column.dim} numbers")


def _guessed(
    column: ColumnSample, name: str, fields: dict[str, object], comment: str
) -> FeatureGuess:
    return FeatureGuess(
        column=column, name=name, fields=fields, comment=f"guessed: {comment} -- correct me"
    )


def _left_out(column: ColumnSample, name: str, why: str) -> FeatureGuess:
    return FeatureGuess(
        column=column, name=name, fields={}, comment=f"left out: {why}", is_left_out=True
    )
