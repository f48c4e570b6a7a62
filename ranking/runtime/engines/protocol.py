"""What the pipeline asks of an engine, and the row counts that engines are given.

Engines see a few row counts only, those of the manifest's `row_buckets`: each was tested at load,
and engines that prepare themselves for a shape do so then and not in a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray
from ranking.manifest import TensorSpec

Arrays = Mapping[str, npt.NDArray[np.generic]]


class Engine(Protocol):
    """A model that is ready to compute. Safe to use from many threads."""

    @property
    def name(self) -> str:
        """Which engine, such as `onnxruntime-fp32`."""

    @property
    def precision(self) -> str:
        """Of the arithmetic: `fp32` or `bf16`; a key of the manifest's tolerances."""

    def run(self, inputs: Arrays) -> FloatArray:
        """Give the logits of one request.

        Shapes:
            inputs: as the manifest says, N >= 1 candidates.
            returns: (N, A), float32.

        Raises:
            EngineError: the engine failed.
        """


def pad_rows(
    inputs: Arrays, specs: Sequence[TensorSpec], *, row_buckets: Sequence[int]
) -> tuple[dict[str, npt.NDArray[np.generic]], int]:
    """Give the inputs with their last candidate repeated up to the next bucket, and the true N.

    More candidates than the largest bucket are left as they are.
    """
    feed: dict[str, npt.NDArray[np.generic]] = {}
    num_rows = 1
    for spec in specs:
        array = np.ascontiguousarray(inputs[spec.name], dtype=spec.dtype)
        if spec.shape and spec.shape[0] is None:
            num_rows = len(array)
            missing = bucket_of(num_rows, row_buckets) - num_rows
            if missing:
                array = np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
        feed[spec.name] = array
    return feed, num_rows


def bucket_of(num_rows: int, row_buckets: Sequence[int]) -> int:
    """Give the smallest bucket that holds this many rows, or the number itself."""
    return min((bucket for bucket in row_buckets if bucket >= num_rows), default=num_rows)
