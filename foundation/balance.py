"""Deals the requests of one batch out to ranks so that each has about the same to do.

Every rank takes part in every batch, with nothing if there are fewer requests than ranks, so that
none runs out of batches before the others. Longest first to whoever has least: at most 4/3 of the
best (Graham, 1969), and within a few per cent where no request is large beside a rank's share. A
request that costs more than a share cannot be balanced by dealing; split its rows
(`foundation.plan`) or take more requests into a batch.

Legend: R requests, W ranks.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from features.arrays import IntArray

Costs = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """What a row costs, in any unit, by the tokens it looks at.

    Attributes:
        per_token: embeddings, projections, windows: what grows with the length.
        per_token_pair: attention without a window: what grows with its square.
    """

    per_token: float = 1.0
    per_token_pair: float = 0.0

    def cost(self, tokens: IntArray, num_rows: IntArray) -> Costs:
        """Give the cost of requests with so many tokens a row, and so many rows, (R,)."""
        length = tokens.astype(np.float64)
        return num_rows * (self.per_token * length + self.per_token_pair * length**2)


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """Who computes what.

    Shapes:
        rank_R: (R,), int64, 0 to W - 1. cost_W: (W,), float64.
    """

    rank_R: IntArray
    cost_W: Costs

    @property
    def imbalance(self) -> float:
        """Largest cost over the mean one; 1 is perfect."""
        mean = float(self.cost_W.mean())
        return float(self.cost_W.max()) / mean if mean > 0 else 1.0


def assign(cost_R: Costs, num_ranks: int) -> Assignment:
    """Deal requests out, the most costly first; the same for the same costs.

    Raises:
        ValueError: there is no rank, or a cost is negative or no number.

    Cost: O(R log R).
    """
    if num_ranks < 1:
        raise ValueError(f"num_ranks: expected 1 or more, got {num_ranks}")
    if not (cost_R >= 0).all():
        raise ValueError("cost_R: expected costs of 0 or more, got one that is not")
    rank_R = np.zeros(len(cost_R), dtype=np.int64)
    # By load, then by number of requests, so that requests that cost nothing are spread too.
    ranks = [(0.0, 0, rank) for rank in range(num_ranks)]
    for place in np.argsort(-cost_R, kind="stable").tolist():
        load, count, rank = ranks[0]
        rank_R[place] = rank
        heapq.heapreplace(ranks, (load + float(cost_R[place]), count + 1, rank))
    cost_W = np.bincount(rank_R, weights=cost_R, minlength=num_ranks).astype(np.float64)
    return Assignment(rank_R=rank_R, cost_W=cost_W)
