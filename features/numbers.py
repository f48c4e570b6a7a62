"""Numeric features: a declared domain, a default for what is missing, a transform."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.arrays import FloatArray
from features.errors import BadRows, DataError
from features.specs import FeatureSpec

_MAX_FLOAT32 = float(np.finfo(np.float32).max)
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class EncodedNumbers:
    """What became of a column.

    Shapes:
        values: (N,), float32, finite.

    Attributes:
        num_missing: values that were given the default.
        num_clipped: values that were moved to the nearest bound.
    """

    values: FloatArray
    num_missing: int
    num_clipped: int


def encode_numbers(feature: FeatureSpec, column: pa.Array | pa.ChunkedArray) -> EncodedNumbers:
    """Check numbers against their domain and transform them.

    Args:
        feature: with domain, default and transform.
        column: (N,) numbers.

    Raises:
        BadRows: missing without a default, not finite, or outside a domain that stops.
        DataError: no numbers at all.
    """
    place = f"feature {feature.name!r} (column {feature.column!r}, transform {feature.transform})"
    try:
        numbers = np.asarray(pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"feature {feature.name!r}: expected numbers: {error}") from error
    missing = np.asarray(pc.is_null(column).to_numpy(zero_copy_only=False), dtype=bool)
    if missing.any():
        if feature.default is None:
            problem = "values are missing and no default is declared"
            raise BadRows(place, problem, _rows(missing))
        numbers = np.where(missing, feature.default, numbers)
    numbers, num_clipped = _in_domain(feature, numbers, place)
    transformed = np.log1p(numbers) if feature.transform == "log1p" else numbers
    return EncodedNumbers(
        values=transformed.astype(np.float32),
        num_missing=int(missing.sum()),
        num_clipped=num_clipped,
    )


def _in_domain(feature: FeatureSpec, numbers: Numbers, place: str) -> tuple[Numbers, int]:
    low = -math.inf if feature.minimum is None else feature.minimum
    high = math.inf if feature.maximum is None else feature.maximum
    num_clipped = 0
    if feature.outside == "clip":
        # Infinities go to a bound if there is one; what is no number stays none.
        num_clipped = int(np.count_nonzero((numbers < low) | (numbers > high)))
        numbers = np.clip(numbers, low, high)
    outside = ~((np.abs(numbers) <= _MAX_FLOAT32) & (numbers >= low) & (numbers <= high))
    if outside.any():
        least = float(np.nanmin(numbers)) if not np.isnan(numbers).all() else math.nan
        raise BadRows(
            place,
            f"values outside [{low:g}, {high:g}] or not finite as float32",
            _rows(outside),
            example=f"{numbers[outside][0]:g}"
            + (" (before log1p)" if feature.transform == "log1p" else ""),
            hint=f"the least is {least:g}; declare a wider domain, or `outside: clip`",
        )
    return numbers, num_clipped


def _rows(mask: Any) -> list[int]:
    rows: list[int] = np.flatnonzero(mask).tolist()
    return rows
