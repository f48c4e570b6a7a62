"""Feed-forward networks of events: personalised by the set side, in two ways, or shared.

Legend: B rows, N set tokens, L events end to end, F generated keys, H heads, K head width, D width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from foundation.model.flops import linear_flops, num_events
from kernels.gdpa.reference import gdpa
from kernels.jagged import max_length, pad, unpad

FeedForwardKind = Literal["gdpa", "linear", "shared", "none"]


class WeightGeneration(nn.Module):
    """Generates each row's keys and values from its set tokens.

    Args:
        num_tokens: N.
        summary_tokens: tokens that they are compressed to first.
        generated: F, keys and values of a row.
        width, num_heads: D and H.

    Source: arXiv 2602.10016, "weight generation: an MLP". Differs: the paper's sizes are not
        public; token axis, channel MLP, token axis is the cheapest form that sees every token.
    """

    def __init__(
        self, num_tokens: int, *, summary_tokens: int, generated: int, width: int, num_heads: int
    ) -> None:
        super().__init__()
        self.compress = nn.Linear(num_tokens, summary_tokens)
        self.channels = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.expand = nn.Linear(summary_tokens, 2 * generated)
        self.num_heads, self.width = num_heads, width

    def forward(self, tokens_BND: Tensor) -> tuple[Tensor, Tensor]:
        """Give keys and values, (B, F, H, K) each."""
        summary_BSD = self.compress(tokens_BND.mT).mT
        summary_BSD = summary_BSD + self.channels(
            functional.rms_norm(summary_BSD, summary_BSD.shape[-1:])
        )
        both = self.expand(summary_BSD.mT).mT.unflatten(-1, (self.num_heads, -1))
        keys, values = both.chunk(2, dim=1)
        return keys, values

    def flops(self, num_rows: int) -> float:
        """Give the forward FLOPs of so many rows."""
        num_tokens, summary = self.compress.in_features, self.compress.out_features
        mixing = num_tokens * summary + summary * self.expand.out_features
        return 2.0 * num_rows * (mixing * self.width + 2 * summary * self.width**2)


class FeedForward(nn.Module):
    """One feed-forward block of a layer, with its norms and residuals.

    Args:
        kind: `gdpa`, `linear` or `shared`.
        num_tokens: N.
        summary_tokens, generated, width, num_heads: as of :class:`WeightGeneration`; F is the
            hidden width of `shared` too, so that the work per event is that of `gdpa`.
    """

    def __init__(
        self,
        kind: FeedForwardKind,
        *,
        num_tokens: int,
        summary_tokens: int,
        generated: int,
        width: int,
        num_heads: int,
    ) -> None:
        super().__init__()
        self.kind, self.width = kind, width
        if kind == "gdpa":
            self.generation = WeightGeneration(
                num_tokens,
                summary_tokens=summary_tokens,
                generated=generated,
                width=width,
                num_heads=num_heads,
            )
        elif kind == "linear":
            self.compress = nn.Linear(num_tokens, width)
        else:
            self.shared = nn.Sequential(
                nn.Linear(width, generated), nn.GELU(), nn.Linear(generated, width)
            )

    def forward(self, tokens_BND: Tensor, events_LD: Tensor, offsets_B: Tensor) -> Tensor:
        """Give the events after the block, (L, D)."""
        if self.kind == "gdpa":
            keys, values = self.generation(tokens_BND)
            return pffn_block(events_LD, keys, values, offsets_B)
        normed_LD = functional.layer_norm(events_LD, (self.width,))
        if self.kind == "linear":
            matrices_BDD = self.compress(tokens_BND.mT) * self.width**-0.5
            mixed_LD = _by_row(normed_LD, matrices_BDD, offsets_B)
        else:
            mixed_LD = self.shared(normed_LD)
        return functional.rms_norm(mixed_LD + normed_LD, (self.width,)) + events_LD

    def flops(self, lengths_B: Tensor) -> float:
        """Give the forward FLOPs of rows with so many events."""
        events, width = num_events(lengths_B), self.width
        if self.kind == "gdpa":
            generated = self.generation.expand.out_features // 2
            return 4.0 * events * generated * width + self.generation.flops(len(lengths_B))
        if self.kind == "linear":
            generation = 2.0 * len(lengths_B) * self.compress.in_features * width**2
            return 2.0 * events * width**2 + generation
        return events * linear_flops(self.shared)


def pffn_block(
    events_LD: Tensor, keys_BFHK: Tensor, values_BFHK: Tensor, offsets_B: Tensor
) -> Tensor:
    """Give the events after the personalised network, (L, D).

    u = LayerNorm(q); g = GDPA(u); y = RMSNorm(g + u) + q. Norms are over all heads jointly and
    have no weights; the inner residual is the normalised input.

    Source: Meta's open kernel library, the order of the fused block. Differs: keys are normalised
        per head, and the scale inside the activation is 1 / sqrt(K), which bounds the scores.
    """
    H, K = keys_BFHK.shape[2:]
    width = (events_LD.shape[-1],)
    normed_LD = functional.layer_norm(events_LD, width)
    mixed = gdpa(
        normed_LD.unflatten(-1, (H, K)),
        functional.rms_norm(keys_BFHK, (K,)),
        values_BFHK,
        offsets_B,
        scale_in=K**-0.5,
        activation="gelu",
    )
    return functional.rms_norm(torch.add(mixed.flatten(1), normed_LD), width) + events_LD


def _by_row(events_LD: Tensor, matrices_BDD: Tensor, offsets_B: Tensor) -> Tensor:
    """Multiply each event with its row's matrix, (L, D)."""
    if not len(events_LD):
        return events_LD
    padded = pad(events_LD, offsets_B, max_length(offsets_B))
    return unpad(torch.matmul(padded, matrices_BDD), offsets_B)
