"""What every engine is, and the padding that keeps it on shapes it was warmed with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray
from ranking.manifest import TensorSpec

Inputs = Mapping[str, npt.NDArray[np.generic]]


class Engine(Protocol):
    """Computes logits; one call at a time per engine thread, callers may be many."""

    @property
    def name(self) -> str:
        """Engine and version."""

    @property
    def precision(self) -> str:
        """`fp32` or `bf16`; a key of the manifest's tolerances."""

    def run(self, inputs: Inputs) -> FloatArray:
        """Give (N, A) logits for padded inputs, N one of the row buckets."""


def run_padded(
    engine: Engine, inputs: Inputs, specs: Sequence[TensorSpec], buckets: Sequence[int]
) -> FloatArray:
    """Pad the candidates to the next bucket, run, and cut the answer back.

    Raises:
        ValueError: more candidates than the largest bucket (validation refuses them before).
    """
    by_row = [spec.name for spec in specs if spec.shape[0] is None]
    num_rows = len(inputs[by_row[0]])
    bucket = next((size for size in buckets if size >= num_rows), None)
    if bucket is None:
        raise ValueError(f"candidates: expected at most {buckets[-1]}, got {num_rows}")
    wanted: dict[str, npt.NDArray[np.generic]] = {}
    for spec in specs:
        array = inputs[spec.name].astype(spec.dtype, copy=False)
        if spec.shape[0] is None and bucket > num_rows:
            # The first row again rather than zeros: every code is valid wherever it is valid once.
            array = np.concatenate([array, np.repeat(array[:1], bucket - num_rows, axis=0)])
        wanted[spec.name] = np.ascontiguousarray(array)
    return engine.run(wanted)[:num_rows]
