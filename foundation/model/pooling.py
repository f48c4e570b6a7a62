"""Hierarchical seed pooling: many learned seeds read the events, few tokens leave."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from kernels.hsp.reference import seed_attention, sum_kron_linear


class SeedPooling(nn.Module):
    """Pools a jagged row of events into P tokens.

    Args:
        width, num_heads: D and H.
        num_seeds, num_pooled: S and P.
        rank: terms of the Kronecker sum.

    Source: arXiv 2602.10016, hierarchical seed pooling.
    """

    def __init__(
        self, *, width: int, num_heads: int, num_seeds: int, num_pooled: int, rank: int
    ) -> None:
        super().__init__()
        self.seeds = nn.Parameter(torch.randn(num_seeds, width))
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.z_RSP = nn.Parameter(torch.randn(rank, num_seeds, num_pooled) * num_seeds**-0.5)
        self.w_RDD = nn.Parameter(torch.randn(rank, width, width) * (rank * width) ** -0.5)
        self.num_heads = num_heads

    def forward(self, events_LD: Tensor, offsets_B: Tensor) -> Tensor:
        """Give (B, P, D)."""
        normed = functional.rms_norm(events_LD, events_LD.shape[-1:])
        seeds = functional.rms_norm(self.seeds, self.seeds.shape[-1:])
        q_SHK = self.query(seeds).unflatten(-1, (self.num_heads, -1))
        k_LHK, v_LHK = self.key_value(normed).unflatten(-1, (2, self.num_heads, -1)).unbind(1)
        pooled_BSD = seed_attention(q_SHK, k_LHK, v_LHK, offsets_B).flatten(2)
        return sum_kron_linear(pooled_BSD, self.z_RSP, self.w_RDD)
