"""How many of a request's values say nothing: missing, or in no vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from features.assembly import AssemblySpec
from features.encoding import NULL, UNKNOWN


@dataclass(frozen=True, kw_only=True)
class CodeCounts:
    """By feature, none where the count is 0.

    Attributes:
        num_null: missing values; of a feature of items or context, one for each candidate.
        num_unknown: values that training did not meet often enough, or of an item without a row.
    """

    num_null: dict[str, int] = field(default_factory=dict)
    num_unknown: dict[str, int] = field(default_factory=dict)


def count_codes(spec: AssemblySpec, inputs: Mapping[str, npt.NDArray[Any]]) -> CodeCounts:
    """Count the codes of a model's inputs.

    Cost: O(N) for each feature.
    """
    counts = CodeCounts()
    for name, features in (
        ("user_codes", spec.user_features),
        ("item_codes", spec.item_features),
        ("context_codes", spec.context_features),
    ):
        for code, found in ((NULL, counts.num_null), (UNKNOWN, counts.num_unknown)):
            nums = np.count_nonzero(inputs[name] == code, axis=0).tolist()
            found.update({f: num for f, num in zip(features, nums, strict=True) if num})
    return counts
