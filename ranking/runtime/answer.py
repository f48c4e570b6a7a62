"""What a ranking call gives back: arrays by candidate, and how good the inputs were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray, IntArray
from ranking.runtime.codecounts import CodeCounts


class Degraded(Enum):
    """Why an answer is less than it could be; the numbers are on the wire."""

    STORE_UNAVAILABLE = 1
    USER_MEMORY_MISSING = 2
    USER_MEMORY_STALE = 3
    USER_MEMORY_REFUSED = 4
    USER_FEATURES_MISSING = 5
    ENGINE_FALLBACK = 6
    SCORE_FALLBACK = 7


@dataclass(frozen=True, kw_only=True)
class StageTimes:
    """How long each stage took, in microseconds."""

    validate_us: int = 0
    lookup_us: int = 0
    assemble_us: int = 0
    engine_us: int = 0
    rank_us: int = 0
    total_us: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class RankAnswer:
    """Candidates of one call.

    Shapes:
        places: (K,), int64; candidates of the answer, in its order.
        rank: (N,), int64; 1 is best. All others below are by candidate in the order asked:
        score: (N,), float64, eCPM in micros before rounding.
        p: (N, A), float32, calibrated.
        tier, pair_age_ms: (N,), int64; age -1 where there is no vector.
        similarity: (N,), float32.
        is_stale, is_cold_item, is_fallback: (N,), bool.
    """

    request_id: str
    item_ids: Sequence[int] | Sequence[str]
    objectives: tuple[str, ...]
    places: IntArray
    rank: IntArray
    score: npt.NDArray[np.float64]
    p: FloatArray
    tier: IntArray
    pair_age_ms: IntArray
    similarity: FloatArray
    is_stale: npt.NDArray[np.bool_]
    is_cold_item: npt.NDArray[np.bool_]
    is_fallback: npt.NDArray[np.bool_]
    degraded: tuple[Degraded, ...]
    vertical: str
    bundle_id: str
    space_id: str
    schema_id: str
    engine: str
    stage_times: StageTimes
    num_refused: dict[str, int]
    """Stored values that were there and could not be used, by reason."""
    code_counts: CodeCounts

    @property
    def num_fallback(self) -> int:
        """Candidates whose score is the prior."""
        return int(self.is_fallback.sum())
