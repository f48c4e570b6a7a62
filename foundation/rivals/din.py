"""DIN: events weighted by how much the candidate activates them, then an MLP.

Source: arXiv 1706.06978: an activation unit on event, candidate, their difference and product;
weights are not normalised. Differs: the age of an event is part of its vector here, as for all.

Legend: B rows, M events end to end, D width.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from foundation.model.flops import linear_flops, num_events
from foundation.model.interface import Encoded
from foundation.rivals.mlp import mlp


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class DinConfig:
    """Sizes: hidden width of the activation unit, and of the layers above."""

    kind: Literal["din"] = "din"
    unit: int = 64
    deep: tuple[int, ...] = (512, 256)

    def check(self, width: int) -> None:
        """Refuse nothing: any width fits."""

    def build(self, *, num_tokens: int, width: int) -> Din:
        """Give a new body."""
        return Din(self, num_tokens=num_tokens, width=width)


class Din(nn.Module):
    """Target attention over all events, then an MLP over set tokens and the weighted sum."""

    def __init__(self, config: DinConfig, *, num_tokens: int, width: int) -> None:
        super().__init__()
        self.unit = nn.Sequential(
            nn.Linear(4 * width, config.unit), nn.GELU(), nn.Linear(config.unit, 1)
        )
        self.deep = mlp((num_tokens + 1) * width, *config.deep)
        self.out_width = config.deep[-1]

    def forward(self, x: Encoded) -> Tensor:
        """Give the last hidden layer, (B, out_width)."""
        lengths_B = x.offsets_B[1:] - x.offsets_B[:-1]
        target_BD = x.tokens_BND[:, : x.num_item_features].mean(1)
        target_MD = torch.repeat_interleave(target_BD, lengths_B, dim=0)
        event_MD = x.events_MD
        both = (event_MD, target_MD, event_MD - target_MD, event_MD * target_MD)
        weighted_MD = self.unit(torch.cat(both, dim=1)) * event_MD
        row_M = torch.repeat_interleave(torch.arange(len(lengths_B)), lengths_B)
        sums_BD = torch.zeros_like(target_BD).index_add(0, row_M, weighted_MD)
        # By the square root, so that a long history does not drown the rest.
        sums_BD = sums_BD / lengths_B.clamp(min=1).to(sums_BD.dtype).sqrt().unsqueeze(1)
        out: Tensor = self.deep(torch.cat((x.tokens_BND.flatten(1), sums_BD), dim=1))
        return out

    def flops(self, lengths_B: Tensor) -> float:
        """Give the forward FLOPs of rows with so many events."""
        each_event, each_row = linear_flops(self.unit), linear_flops(self.deep)
        return num_events(lengths_B) * each_event + len(lengths_B) * each_row
