"""DCN-v2 over set tokens and pooled events: explicit crosses beside a deep network.

Source: arXiv 2008.13535, low-rank cross layers in parallel with an MLP. Differs: the sequence comes
in as means of all and of the newest events.

Legend: B rows, W width of all tokens laid end to end.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from foundation.model.flops import linear_flops
from foundation.model.interface import Encoded
from foundation.model.pooling import Pooling
from foundation.rivals.mlp import mlp

NUM_POOLED = 4


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class DcnConfig:
    """Sizes: cross layers and their rank, and the layers of the deep side."""

    kind: Literal["dcn"] = "dcn"
    num_cross: int = 3
    rank: int = 64
    deep: tuple[int, ...] = (512, 256)

    def check(self, width: int) -> None:
        """Refuse nothing: any width fits."""

    def build(self, *, num_tokens: int, width: int) -> Dcn:
        """Give a new body."""
        return Dcn(self, num_tokens=num_tokens, width=width)


class Dcn(nn.Module):
    """Cross layers x0 * (U V x + b) + x beside an MLP."""

    def __init__(self, config: DcnConfig, *, num_tokens: int, width: int) -> None:
        super().__init__()
        flat = (num_tokens + NUM_POOLED) * width
        self.pooling = Pooling(
            "mean", width=width, num_heads=1, num_seeds=0, num_pooled=NUM_POOLED, rank=0
        )
        self.norm = nn.LayerNorm(flat)
        self.down = nn.ModuleList(
            nn.Linear(flat, config.rank, bias=False) for _ in range(config.num_cross)
        )
        self.up = nn.ModuleList(nn.Linear(config.rank, flat) for _ in range(config.num_cross))
        self.deep = mlp(flat, *config.deep)
        self.out_width = flat + config.deep[-1]

    def forward(self, x: Encoded) -> Tensor:
        """Give crosses and the deep side's output, (B, out_width)."""
        pooled_BPD = self.pooling(x.events_MD, x.offsets_B)
        first_BW = self.norm(torch.cat((x.tokens_BND, pooled_BPD), dim=1).flatten(1))
        crossed_BW = first_BW
        for down, up in zip(self.down, self.up, strict=True):
            crossed_BW = first_BW * up(down(crossed_BW)) + crossed_BW
        return torch.cat((crossed_BW, self.deep(first_BW)), dim=1)

    def flops(self, lengths_B: Tensor) -> float:
        """Give the forward FLOPs of so many rows; means are free."""
        return len(lengths_B) * linear_flops(self)
