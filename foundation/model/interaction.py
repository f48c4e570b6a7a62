"""Global interaction: one Wukong layer over set tokens and pooled events."""

import torch
from torch import Tensor, nn


class Wukong(nn.Module):
    """Factorisation machine beside a linear compression, then add and norm.

    Args:
        num_inputs: tokens that go in, the first `num_outputs` of which are the residual.
        num_outputs: N, tokens that come out; half from each side.
        width: D.
        rank: columns of the projection that replaces the full matrix of dot products.
        hidden: width of the machine's MLP.

    Source: arXiv 2403.02545, FMB and LCB; arXiv 2602.10016, global interaction, one expert.
    """

    def __init__(
        self, num_inputs: int, num_outputs: int, *, width: int, rank: int, hidden: int
    ) -> None:
        super().__init__()
        self.num_outputs, self.width = num_outputs, width
        num_machine = num_outputs // 2
        self.y_MR = nn.Parameter(torch.randn(num_inputs, rank) * num_inputs**-0.5)
        self.machine = nn.Sequential(
            nn.LayerNorm(num_inputs * rank),
            nn.Linear(num_inputs * rank, hidden),
            nn.GELU(),
            nn.Linear(hidden, num_machine * width),
        )
        self.compress = nn.Linear(num_inputs, num_outputs - num_machine)
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens_BMD: Tensor) -> Tensor:
        """Give (B, N, D)."""
        dots_BMR = torch.matmul(tokens_BMD, torch.matmul(tokens_BMD.mT, self.y_MR))
        scaled = dots_BMR * self.width**-0.5
        machine_BND = self.machine(scaled.flatten(1)).unflatten(-1, (-1, self.width))
        linear_BND = self.compress(tokens_BMD.mT).mT
        mixed = torch.cat((machine_BND, linear_BND), dim=1)
        out: Tensor = self.norm(mixed + tokens_BMD[:, : self.num_outputs])
        return out
