"""Self-attention over events, in a window or over all, with rotary encoding of place and time.

Legend: L events end to end, D width, H heads, K head width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from foundation.model.flops import num_events, num_full_pairs, num_window_pairs
from kernels.attention.reference import rotate, rote_angles, window_attention
from kernels.jagged import max_length

Rotary = Literal["time", "place", "none"]


class SelfAttention(nn.Module):
    """Pre-norm multi-head attention with a residual.

    Args:
        width, num_heads: D and H.
        half_window: events on either side that one sees; None for all of its row.
        rotary: what turns queries and keys; by `time` the spectrum is learnt.
    """

    def __init__(
        self, *, width: int, num_heads: int, half_window: int | None, rotary: Rotary = "time"
    ) -> None:
        super().__init__()
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.num_heads, self.half_window, self.rotary = num_heads, half_window, rotary
        pairs = torch.arange(width // num_heads // 2) / (width // num_heads // 2)
        self.register_buffer("theta", 10_000.0**-pairs, persistent=False)
        self.phi = nn.Parameter(10.0**-pairs) if rotary == "time" else None

    def forward(self, events_LD: Tensor, offsets_B: Tensor, age_ms_L: Tensor) -> Tensor:
        """Give the events after attention, (L, D)."""
        normed = functional.rms_norm(events_LD, events_LD.shape[-1:])
        q, k, v = self.project(normed).unflatten(-1, (3, self.num_heads, -1)).unbind(1)
        if self.rotary != "none":
            theta = self.get_buffer("theta")
            phi = torch.zeros_like(theta) if self.phi is None else self.phi
            angles = rote_angles(offsets_B, age_ms_L, theta, phi)
            q, k = rotate(q, angles), rotate(k, angles)
        half_window = self.half_window or max(1, max_length(offsets_B))
        mixed = window_attention(q, k, v, offsets_B, half_window=half_window)
        attended: Tensor = events_LD + self.out(mixed.flatten(1))
        return attended

    def flops(self, lengths_B: Tensor) -> float:
        """Give the forward FLOPs of rows with so many events: projections and visible pairs."""
        width = self.out.in_features
        pairs = (
            num_full_pairs(lengths_B)
            if self.half_window is None
            else num_window_pairs(lengths_B, self.half_window)
        )
        return 8.0 * num_events(lengths_B) * width**2 + 4.0 * pairs * width
