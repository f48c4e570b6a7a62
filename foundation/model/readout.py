"""The output side that all architectures share: a trunk, a head per objective, a bottleneck.

Legend: B rows, W width of the body's output, G dense numbers, A objectives.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from foundation.model.bottleneck import Bottleneck
from foundation.model.flops import linear_flops
from foundation.model.interface import FmOutput


class Readout(nn.Module):
    """From what a body gives, and the dense numbers themselves, to logits and a vector.

    Args:
        in_width: W + G.
        hidden: of the trunk.
        num_objectives: A.
        dim, prefixes: of the bottleneck.
    """

    def __init__(
        self, in_width: int, *, hidden: int, num_objectives: int, dim: int, prefixes: Sequence[int]
    ) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(in_width, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU()
        )
        self.heads = nn.Linear(hidden, num_objectives)
        self.bottleneck = Bottleneck(hidden, dim=dim, prefixes=prefixes)

    def forward(self, body_BW: Tensor, dense_BG: Tensor) -> FmOutput:
        """Give the outputs of B rows."""
        hidden_BW = self.trunk(torch.cat((body_BW, dense_BG), dim=1))
        z_BD, reconstruction = self.bottleneck(hidden_BW)
        return FmOutput(logits_BA=self.heads(hidden_BW), z_BD=z_BD, reconstruction=reconstruction)

    def flops(self, num_rows: int) -> float:
        """Give the forward FLOPs of trunk and heads; the bottleneck predicts nothing."""
        return num_rows * linear_flops((self.trunk, self.heads))
