"""Wukong over set tokens and pooled events: factorisation-machine layers, stacked.

Source: arXiv 2403.02545. Differs: the sequence comes in as means of all and of the newest events.

Legend: B rows, N set tokens, P pooled tokens, D width.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from foundation.model.interaction import Wukong
from foundation.model.interface import Encoded
from foundation.model.pooling import Pooling

NUM_POOLED = 4


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class WukongConfig:
    """Sizes, as of :class:`foundation.model.interaction.Wukong`."""

    kind: Literal["wukong"] = "wukong"
    num_layers: int = 3
    rank: int = 16
    hidden: int = 512

    def check(self, width: int) -> None:
        """Refuse nothing: any width fits."""

    def build(self, *, num_tokens: int, width: int) -> WukongStack:
        """Give a new body."""
        return WukongStack(self, num_tokens=num_tokens, width=width)


class WukongStack(nn.Module):
    """Wukong layers over all tokens."""

    def __init__(self, config: WukongConfig, *, num_tokens: int, width: int) -> None:
        super().__init__()
        total = num_tokens + NUM_POOLED
        self.pooling = Pooling(
            "mean", width=width, num_heads=1, num_seeds=0, num_pooled=NUM_POOLED, rank=0
        )
        self.layers = nn.ModuleList(
            Wukong(total, total, width=width, rank=config.rank, hidden=config.hidden)
            for _ in range(config.num_layers)
        )
        self.out_width = total * width

    def forward(self, x: Encoded) -> Tensor:
        """Give the last layer's tokens end to end, (B, out_width)."""
        pooled_BPD = self.pooling(x.events_MD, x.offsets_B)
        tokens = torch.cat((x.tokens_BND, pooled_BPD), dim=1)
        for layer in self.layers:
            tokens = layer(tokens)
        return tokens.flatten(1)

    def flops(self, lengths_B: Tensor) -> float:
        """Give the forward FLOPs of so many rows; means are free."""
        layers = [cast(Wukong, layer) for layer in self.layers]
        return sum(layer.flops(len(lengths_B)) for layer in layers)
