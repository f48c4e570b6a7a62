"""The Kunlun body: layers of personalised feed-forward, attention, seed pooling and interaction.

A layer: weight generation from the set tokens X; personalised feed-forward of the events S; S goes
to seed pooling and to self-attention; X and the pooled tokens go to global interaction. Every
component can be switched for a simpler one, or off, to see what it is worth.

Source: arXiv 2602.10016. Differs: match embeddings and decayed match counts are inputs; one width
for all event types.

Legend: B rows, N set tokens, M events end to end, P pooled tokens, D width.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional

from foundation.model.attention import SelfAttention
from foundation.model.flops import total_flops
from foundation.model.interaction import WukongExperts
from foundation.model.interface import Encoded
from foundation.model.pffn import FeedForward, FeedForwardKind
from foundation.model.pooling import Pooling, PoolingKind


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class KunlunConfig:
    """Sizes and switches of a Kunlun body.

    Attributes:
        num_heads: H; divides the width.
        num_layers: of interaction; which of them also change or pool events says `comp_skip`.
        feed_forward: `gdpa`, personalised by generated keys and values; `linear`, by a generated
            matrix (InterFormer's); `shared`, an ordinary one; or `none`.
        generated_width: F, hidden width of the feed-forward networks.
        summary_tokens: set tokens are compressed to this many before generation.
        attention: `window`, `full` or `none`.
        half_window: events that one sees on either side.
        rotary: angles by place and time (`time`, ROTE), by `place` alone, or `none`.
        pooling: `hsp` with S seeds and P tokens, `pma` with P queries, or the `mean`.
        num_seeds, num_pooled: S and P. kron_rank: terms of the seeds' compression.
        num_experts: Wukong experts, each over a partition of the tokens that turns with the layer.
        interaction_rank: columns of the factorisation machine's projection.
        interaction_hidden: width of its MLP.
        comp_skip: even layers feed forward and pool, odd ones attend and reuse what was pooled
            (CompSkip); takes an odd number of layers, since nobody would read the last attention.
    """

    kind: Literal["kunlun"] = "kunlun"
    num_heads: int = 4
    num_layers: int = 2
    feed_forward: FeedForwardKind = "gdpa"
    generated_width: int = 32
    summary_tokens: int = 8
    attention: Literal["window", "full", "none"] = "window"
    half_window: int = 32
    rotary: Literal["time", "place", "none"] = "time"
    pooling: PoolingKind = "hsp"
    num_seeds: int = 16
    num_pooled: int = 4
    kron_rank: int = 2
    num_experts: int = 1
    interaction_rank: int = 16
    interaction_hidden: int = 256
    comp_skip: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes that do not fit one another."""
        if self.num_layers < 1:
            raise ValueError(f"num_layers: expected 1 or more, got {self.num_layers}")
        if self.comp_skip and self.num_layers % 2 == 0:
            raise ValueError(f"num_layers: comp_skip takes an odd number, got {self.num_layers}")
        if self.num_experts < 1:
            raise ValueError(f"num_experts: expected 1 or more, got {self.num_experts}")

    def check(self, width: int) -> None:
        """Refuse a width that the heads do not divide."""
        if width % (2 * self.num_heads):
            raise ValueError(
                f"width: expected a multiple of 2 * num_heads = {2 * self.num_heads}, got {width}"
            )

    def build(self, *, num_tokens: int, width: int) -> Kunlun:
        """Give a new body."""
        return Kunlun(self, num_tokens=num_tokens, width=width)


class KunlunLayer(nn.Module):
    """One layer over set tokens and events.

    Args:
        config: sizes.
        num_tokens: N.
        width: D.
        place: of the layer, from 0.
    """

    def __init__(self, config: KunlunConfig, *, num_tokens: int, width: int, place: int) -> None:
        super().__init__()
        is_even, is_last = place % 2 == 0, place + 1 == config.num_layers
        feeds, pools = (is_even, is_even) if config.comp_skip else (True, True)
        # Without CompSkip nobody would read the events that leave the last layer.
        attends = not is_even if config.comp_skip else not is_last
        self.feed_forward = (
            FeedForward(
                config.feed_forward,
                num_tokens=num_tokens,
                summary_tokens=config.summary_tokens,
                generated=config.generated_width,
                width=width,
                num_heads=config.num_heads,
            )
            if feeds and config.feed_forward != "none"
            else None
        )
        self.attention = (
            SelfAttention(
                width=width,
                num_heads=config.num_heads,
                half_window=config.half_window if config.attention == "window" else None,
                rotary=config.rotary,
            )
            if attends and config.attention != "none"
            else None
        )
        self.pooling = (
            Pooling(
                config.pooling,
                width=width,
                num_heads=config.num_heads,
                num_seeds=config.num_seeds,
                num_pooled=config.num_pooled,
                rank=config.kron_rank,
            )
            if pools
            else None
        )
        self.interaction = WukongExperts(
            num_tokens,
            config.num_pooled,
            num_experts=config.num_experts,
            turn=place,
            width=width,
            rank=config.interaction_rank,
            hidden=config.interaction_hidden,
        )

    def forward(
        self, tokens_BND: Tensor, events_MD: Tensor, pooled_BPD: Tensor, x: Encoded
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Give the next set tokens, the next events, and the pooled tokens (B, P, D)."""
        if self.feed_forward is not None:
            events_MD = self.feed_forward(tokens_BND, events_MD, x.offsets_B)
        if self.pooling is not None:
            pooled_BPD = self.pooling(events_MD, x.offsets_B)
        if self.attention is not None:
            events_MD = self.attention(events_MD, x.offsets_B, x.age_ms_M)
        return self.interaction(tokens_BND, pooled_BPD), events_MD, pooled_BPD

    def flops(self, lengths_B: Tensor) -> float:
        """Give the forward FLOPs of rows with so many events."""
        parts = (self.feed_forward, self.pooling, self.attention)
        return self.interaction.flops(len(lengths_B)) + total_flops(parts, lengths_B)


class Kunlun(nn.Module):
    """Layers over set tokens and one merged event sequence."""

    def __init__(self, config: KunlunConfig, *, num_tokens: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            KunlunLayer(config, num_tokens=num_tokens, width=width, place=place)
            for place in range(config.num_layers)
        )
        self.out_width = (num_tokens + config.num_pooled) * width

    def forward(self, x: Encoded) -> Tensor:
        """Give set tokens and pooled tokens, laid end to end, (B, out_width)."""
        tokens_BND, events_MD, pooled_BPD = x.tokens_BND, x.events_MD, x.tokens_BND[:, :0]
        for layer in self.layers:
            tokens_BND, events_MD, pooled_BPD = layer(tokens_BND, events_MD, pooled_BPD, x)
        pooled_BPD = functional.rms_norm(pooled_BPD, pooled_BPD.shape[-1:])
        return torch.cat((tokens_BND.flatten(1), pooled_BPD.flatten(1)), dim=1)

    def flops(self, lengths_B: Tensor) -> float:
        """Give the forward FLOPs of rows with so many events."""
        return total_flops(self.layers, lengths_B)
