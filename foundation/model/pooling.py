"""Pooling a row's events into few tokens: hierarchical seeds, plain queries, or the mean.

Legend: B rows, L events end to end, D width, H heads, K head width, S seeds, P pooled tokens.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from foundation.model.flops import num_events
from kernels.hsp.reference import seed_attention, sum_kron_linear

PoolingKind = Literal["hsp", "pma", "mean"]


class Pooling(nn.Module):
    """Pools a jagged row of events into P tokens.

    Args:
        kind: `hsp`, many learned seeds read the events and few tokens leave; `pma`, P learned
            queries; `mean`, of all events and of the newest 2, 4, ... of them.
        width, num_heads: D and H.
        num_seeds, num_pooled: S and P.
        rank: terms of the Kronecker sum.

    Source: arXiv 2602.10016, hierarchical seed pooling; PMA as in InterFormer.
    """

    def __init__(
        self,
        kind: PoolingKind,
        *,
        width: int,
        num_heads: int,
        num_seeds: int,
        num_pooled: int,
        rank: int,
    ) -> None:
        super().__init__()
        self.kind, self.num_heads, self.num_pooled = kind, num_heads, num_pooled
        if kind == "mean":
            return
        num_queries = num_seeds if kind == "hsp" else num_pooled
        self.seeds = nn.Parameter(torch.randn(num_queries, width))
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        if kind == "hsp":
            self.z_RSP = nn.Parameter(torch.randn(rank, num_seeds, num_pooled) * num_seeds**-0.5)
            self.w_RDD = nn.Parameter(torch.randn(rank, width, width) * (rank * width) ** -0.5)

    def forward(self, events_LD: Tensor, offsets_B: Tensor) -> Tensor:
        """Give (B, P, D)."""
        if self.kind == "mean":
            return _means(events_LD, offsets_B, self.num_pooled)
        normed = functional.rms_norm(events_LD, events_LD.shape[-1:])
        seeds = functional.rms_norm(self.seeds, self.seeds.shape[-1:])
        q_SHK = self.query(seeds).unflatten(-1, (self.num_heads, -1))
        k_LHK, v_LHK = self.key_value(normed).unflatten(-1, (2, self.num_heads, -1)).unbind(1)
        pooled_BSD = seed_attention(q_SHK, k_LHK, v_LHK, offsets_B).flatten(2)
        if self.kind == "pma":
            return pooled_BSD
        return sum_kron_linear(pooled_BSD, self.z_RSP, self.w_RDD)

    def flops(self, lengths_B: Tensor) -> float:
        """Give the forward FLOPs of rows with so many events; the seeds' own are once a batch."""
        if self.kind == "mean":
            return 0.0
        num_queries, width = self.seeds.shape
        events = num_events(lengths_B)
        total = 2.0 * num_queries * width**2 + 4.0 * events * width**2
        total += 4.0 * num_queries * events * width
        if self.kind == "hsp":
            rank, num_seeds, num_pooled = self.z_RSP.shape
            compress = num_seeds * num_pooled * width + num_pooled * width**2
            total += 2.0 * len(lengths_B) * rank * compress
        return total


def _means(events_LD: Tensor, offsets_B: Tensor, num_pooled: int) -> Tensor:
    """Give the means of all events and of the newest 2, 4, ... of each row, (B, P, D)."""
    sums = functional.pad(events_LD.cumsum(0), (0, 0, 1, 0))
    starts, ends = offsets_B[:-1], offsets_B[1:]
    parts = []
    for place in range(num_pooled):
        first = starts if place == 0 else torch.maximum(starts, ends - 2**place)
        count = (ends - first).clamp(min=1).unsqueeze(1)
        parts.append((sums[ends] - sums[first]) / count)
    return torch.stack(parts, dim=1)
