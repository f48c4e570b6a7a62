"""InterFormer: set tokens and events learn from summaries of one another, layer by layer.

Source: arXiv 2411.09852: personalised linear feed-forward from a gated summary of the set tokens,
full attention with rotary places; a gated summary of the events (class tokens, PMA, newest) joins
the set tokens in an interaction layer. Differs: the interaction is dot products beside a low-rank
cross; class tokens are the set summary put before the events of the first layer.

Legend: B rows, N set tokens, M events end to end, D width.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from foundation.model.attention import SelfAttention
from foundation.model.flops import linear_flops, total_flops
from foundation.model.interface import Encoded
from foundation.model.pffn import FeedForward
from foundation.model.pooling import Pooling


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class InterFormerConfig:
    """Sizes: PMA queries, newest events and set summary tokens as published are 2, 2 and 4."""

    kind: Literal["interformer"] = "interformer"
    num_layers: int = 2
    num_heads: int = 4
    num_summary: int = 4
    num_pma: int = 2
    num_recent: int = 2
    hidden: int = 256

    def check(self, width: int) -> None:
        """Refuse a width that the heads do not divide."""
        if width % (2 * self.num_heads):
            raise ValueError(
                f"width: expected a multiple of 2 * num_heads = {2 * self.num_heads}, got {width}"
            )

    def build(self, *, num_tokens: int, width: int) -> InterFormer:
        """Give a new body."""
        return InterFormer(self, num_tokens=num_tokens, width=width)


class Gate(nn.Module):
    """Keeps of each number what an MLP of its token says: sigmoid(MLP(x)) * x."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Give tokens of the same shape."""
        return torch.sigmoid(self.mlp(tokens)) * tokens


class InterFormerLayer(nn.Module):
    """One layer: events from the set's summary, set tokens from the events'."""

    def __init__(self, config: InterFormerConfig, *, num_tokens: int, width: int) -> None:
        super().__init__()
        self.feed_forward = FeedForward(
            "linear",
            num_tokens=num_tokens,
            summary_tokens=config.num_summary,
            generated=width,
            width=width,
            num_heads=config.num_heads,
        )
        self.attention = SelfAttention(
            width=width, num_heads=config.num_heads, half_window=None, rotary="place"
        )
        pools = {"num_heads": config.num_heads, "num_seeds": 0, "rank": 0, "width": width}
        self.pma = Pooling("pma", num_pooled=config.num_pma, **pools)
        self.recent = Pooling("mean", num_pooled=config.num_recent, **pools)
        self.gate = Gate(width)
        total = num_tokens + config.num_pma + config.num_recent
        self.dots = nn.Linear(total * (total - 1) // 2, config.hidden)
        self.cross = nn.Linear(total * width, config.hidden)
        self.restore = nn.Linear(config.hidden, num_tokens * width)
        self.norm = nn.LayerNorm(width)
        self.num_summary = config.num_pma + config.num_recent
        self.register_buffer("pairs", torch.triu_indices(total, total, 1), persistent=False)

    def forward(self, tokens_BND: Tensor, events_MD: Tensor, x: Encoded) -> tuple[Tensor, Tensor]:
        """Give the next set tokens and events."""
        pooled = (self.pma(events_MD, x.offsets_B), self.recent(events_MD, x.offsets_B))
        summary_BSD = self.gate(torch.cat(pooled, dim=1))
        together = torch.cat((tokens_BND, summary_BSD), dim=1)
        first, second = self.get_buffer("pairs")
        width = together.shape[-1]
        dots = torch.matmul(together, together.mT)[:, first, second] * width**-0.5
        hidden = torch.nn.functional.gelu(self.dots(dots) + self.cross(together.flatten(1)))
        mixed_BND = self.restore(hidden).unflatten(-1, (-1, width))
        events_MD = self.feed_forward(tokens_BND, events_MD, x.offsets_B)
        events_MD = self.attention(events_MD, x.offsets_B, x.age_ms_M)
        return self.norm(tokens_BND + mixed_BND), events_MD

    def flops(self, lengths_B: Tensor) -> float:
        """Give the forward FLOPs of rows with so many events."""
        width = self.norm.normalized_shape[0]
        num_all = self.cross.in_features // width
        interaction = linear_flops((self.dots, self.cross, self.restore))
        summary = self.num_summary * linear_flops(self.gate)
        each_row = interaction + summary + 2.0 * num_all**2 * width
        parts = (self.feed_forward, self.attention, self.pma)
        return each_row * len(lengths_B) + total_flops(parts, lengths_B)


class InterFormer(nn.Module):
    """Layers, then a last summary of the events beside the set tokens."""

    def __init__(self, config: InterFormerConfig, *, num_tokens: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            InterFormerLayer(config, num_tokens=num_tokens, width=width)
            for _ in range(config.num_layers)
        )
        pools = {"num_heads": config.num_heads, "num_seeds": 0, "rank": 0, "width": width}
        self.pma = Pooling("pma", num_pooled=config.num_pma, **pools)
        self.gate = Gate(width)
        self.out_width = (num_tokens + config.num_pma) * width

    def forward(self, x: Encoded) -> Tensor:
        """Give set tokens and the events' summary, (B, out_width)."""
        tokens_BND, events_MD = x.tokens_BND, x.events_MD
        for layer in self.layers:
            tokens_BND, events_MD = layer(tokens_BND, events_MD, x)
        summary_BSD = self.gate(self.pma(events_MD, x.offsets_B))
        return torch.cat((tokens_BND.flatten(1), summary_BSD.flatten(1)), dim=1)

    def flops(self, lengths_B: Tensor) -> float:
        """Give the forward FLOPs of rows with so many events."""
        gate = len(lengths_B) * self.pma.num_pooled * linear_flops(self.gate)
        return gate + total_flops((self.pma, *self.layers), lengths_B)
