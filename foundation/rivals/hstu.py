"""HSTU: one sequence of events that ends with the candidate; pointwise attention without softmax.

Source: arXiv 2402.17152, pointwise aggregated attention with a bias by place and time, gating and
no feed-forward network. Differs: the candidate is the last token of its own row's sequence, and the
set tokens join the last token's state at the readout.

Legend: B rows, T events of the longest row and the candidate, D width, H heads, K head width.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional

from foundation.model.flops import num_causal_pairs, num_events, total_flops
from foundation.model.interface import Encoded
from kernels.jagged import max_length, pad

_HOUR_MS = 3_600_000.0
_NUM_GAPS = 24


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class HstuConfig:
    """Sizes: layers and heads; `max_places` bounds the bias by distance."""

    kind: Literal["hstu"] = "hstu"
    num_layers: int = 2
    num_heads: int = 4
    max_places: int = 512

    def check(self, width: int) -> None:
        """Refuse a width that the heads do not divide."""
        if width % self.num_heads:
            raise ValueError(f"width: expected a multiple of {self.num_heads}, got {width}")

    def build(self, *, num_tokens: int, width: int) -> Hstu:
        """Give a new body."""
        return Hstu(self, num_tokens=num_tokens, width=width)


class HstuLayer(nn.Module):
    """Pointwise attention with a gate and a residual."""

    def __init__(self, config: HstuConfig, *, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, 4 * width)
        self.out = nn.Linear(width, width)
        self.places = nn.Parameter(torch.zeros(config.num_heads, config.max_places))
        self.gaps = nn.Parameter(torch.zeros(config.num_heads, _NUM_GAPS))
        self.num_heads, self.width = config.num_heads, width

    def forward(self, x_BTD: Tensor, mask_BTT: Tensor, far_TT: Tensor, gap_BTT: Tensor) -> Tensor:
        """Give the next (B, T, D)."""
        normed = functional.layer_norm(x_BTD, (self.width,))
        u, v, q, k = functional.silu(self.project(normed)).chunk(4, dim=-1)
        q, k, v = (t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in (q, k, v))
        bias = self.places[:, far_TT][None] + self.gaps[:, gap_BTT].transpose(0, 1)
        scores = functional.silu(torch.matmul(q, k.mT) + bias) / x_BTD.shape[1]
        mixed = torch.matmul(scores * mask_BTT[:, None], v).transpose(1, 2).flatten(2)
        out: Tensor = self.out(functional.layer_norm(mixed, (self.width,)) * u) + x_BTD
        return out

    def flops(self, lengths_B: Tensor) -> float:
        """Give the forward FLOPs of rows of so many tokens."""
        projections = 10.0 * num_events(lengths_B) * self.width**2
        return projections + 4.0 * num_causal_pairs(lengths_B) * self.width


class Hstu(nn.Module):
    """Layers over events and candidate; the candidate's state and the set tokens go on."""

    def __init__(self, config: HstuConfig, *, num_tokens: int, width: int) -> None:
        super().__init__()
        self.candidate = nn.Linear(num_tokens * width, width)
        self.layers = nn.ModuleList(
            HstuLayer(config, width=width) for _ in range(config.num_layers)
        )
        self.max_places, self.width = config.max_places, width
        self.out_width = (num_tokens + 1) * width

    def forward(self, x: Encoded) -> Tensor:
        """Give the candidate's state and the set tokens, (B, out_width)."""
        num_rows, length = len(x.tokens_BND), max_length(x.offsets_B)
        events_BTD = pad(x.events_MD, x.offsets_B, length)
        # Laid out so that the candidate is last whatever the row's length.
        target_BD = self.candidate(x.tokens_BND.flatten(1))
        tokens_BTD = torch.cat((events_BTD, target_BD[:, None]), dim=1)
        ages_BT = pad(x.age_ms_M[:, None], x.offsets_B, length)[..., 0]
        ages_BT = torch.cat((ages_BT, ages_BT.new_zeros(num_rows, 1)), dim=1)
        mask_BTT, far_TT, gap_BTT = self._relations(x.offsets_B, ages_BT)
        for layer in self.layers:
            tokens_BTD = layer(tokens_BTD, mask_BTT, far_TT, gap_BTT)
        return torch.cat((tokens_BTD[:, -1], x.tokens_BND.flatten(1)), dim=1)

    def flops(self, lengths_B: Tensor) -> float:
        """Give the forward FLOPs of rows with so many events."""
        candidate = 2.0 * len(lengths_B) * self.candidate.in_features * self.width
        return candidate + total_flops(self.layers, lengths_B + 1)

    def _relations(self, offsets_B: Tensor, ages_BT: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Give who sees whom, how many places apart, and which bucket of the gap in time."""
        total = ages_BT.shape[1]
        place = torch.arange(total)
        lengths_B = offsets_B[1:] - offsets_B[:-1]
        inside_BT = (place < lengths_B[:, None]) | (place == total - 1)
        causal_TT = place[:, None] >= place[None, :]
        mask_BTT = inside_BT[:, None, :] & inside_BT[:, :, None] & causal_TT
        far_TT = (place[:, None] - place[None, :]).clamp(0, self.max_places - 1)
        gap = (ages_BT[:, None, :] - ages_BT[:, :, None]).clamp(min=0) / _HOUR_MS
        gap_BTT = torch.log2(1.0 + gap).long().clamp(max=_NUM_GAPS - 1)
        return mask_BTT.to(ages_BT.dtype), far_TT, gap_BTT
