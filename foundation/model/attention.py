"""Self-attention over a window of events, with rotary encoding of place and time."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from kernels.attention.reference import rotate, rote_angles, window_attention


class WindowSelfAttention(nn.Module):
    """Pre-norm multi-head window attention with a residual.

    Args:
        width, num_heads: D and H.
        half_window: events on either side.
    """

    def __init__(self, *, width: int, num_heads: int, half_window: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.num_heads, self.half_window = num_heads, half_window
        pairs = torch.arange(width // num_heads // 2) / (width // num_heads // 2)
        self.register_buffer("theta", 10_000.0**-pairs, persistent=False)
        self.phi = nn.Parameter(10.0**-pairs)

    def forward(self, events_LD: Tensor, offsets_B: Tensor, age_ms_L: Tensor) -> Tensor:
        """Give the events after attention, (L, D)."""
        normed = functional.rms_norm(events_LD, events_LD.shape[-1:])
        q, k, v = self.project(normed).unflatten(-1, (3, self.num_heads, -1)).unbind(1)
        angles = rote_angles(offsets_B, age_ms_L, self.get_buffer("theta"), self.phi)
        mixed = window_attention(
            rotate(q, angles), rotate(k, angles), v, offsets_B, half_window=self.half_window
        )
        attended: Tensor = events_LD + self.out(mixed.flatten(1))
        return attended
