"""Global interaction: Wukong layers over set tokens and pooled events, as one or several experts.

Legend: B rows, N set tokens, P pooled tokens, M tokens that go in, R rank, D width.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from foundation.model.flops import linear_flops


class Wukong(nn.Module):
    """Factorisation machine beside a linear compression, then add and norm.

    Args:
        num_inputs: tokens that go in, the first `num_outputs` of which are the residual.
        num_outputs: N, tokens that come out; half from each side.
        width: D.
        rank: columns of the projection that replaces the full matrix of dot products.
        hidden: width of the machine's MLP.

    Source: arXiv 2403.02545, FMB and LCB.
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

    def flops(self, num_rows: int) -> float:
        """Give the forward FLOPs of so many rows."""
        num_inputs, rank = self.y_MR.shape
        dots = 4.0 * num_inputs * rank * self.width
        linear = 2.0 * num_inputs * self.compress.out_features * self.width
        return num_rows * (dots + linear + linear_flops(self.machine))


class WukongExperts(nn.Module):
    """Several Wukong layers side by side, each over a part of the set tokens and all pooled ones.

    Which tokens an expert has turns with the layer, and a linear map over all tokens is added, so
    that experts see one another's.

    Args:
        num_tokens, num_pooled: N and P.
        num_experts: parts; 1 is a plain Wukong layer.
        turn: of the parts.
        width, rank, hidden: as of :class:`Wukong`; the hidden width is shared out.

    Source: arXiv 2602.10016, mixture of Wukong experts. Differs: how parts mix is not public.
    """

    def __init__(
        self,
        num_tokens: int,
        num_pooled: int,
        *,
        num_experts: int,
        turn: int,
        width: int,
        rank: int,
        hidden: int,
    ) -> None:
        super().__init__()
        place = torch.arange(num_tokens)
        # Neighbours go to different experts, and by another turn to different ones together.
        part = (place + turn * (place // num_experts)) % num_experts
        self.parts = [torch.nonzero(part == expert).flatten() for expert in range(num_experts)]
        back = torch.argsort(torch.cat(self.parts))
        self.register_buffer("back", back, persistent=False)
        self.experts = nn.ModuleList(
            Wukong(
                len(mine) + num_pooled,
                len(mine),
                width=width,
                rank=rank,
                hidden=max(1, hidden // num_experts),
            )
            for mine in self.parts
        )
        num_inputs = num_tokens + num_pooled
        self.across = nn.Linear(num_inputs, num_tokens) if num_experts > 1 else None

    def forward(self, tokens_BND: Tensor, pooled_BPD: Tensor) -> Tensor:
        """Give (B, N, D)."""
        if self.across is None:
            out: Tensor = self.experts[0](torch.cat((tokens_BND, pooled_BPD), dim=1))
            return out
        mixed = [
            expert(torch.cat((tokens_BND[:, mine], pooled_BPD), dim=1))
            for expert, mine in zip(self.experts, self.parts, strict=True)
        ]
        everything = torch.cat((tokens_BND, pooled_BPD), dim=1)
        back: Tensor = self.get_buffer("back")
        across: Tensor = self.across(everything.mT).mT
        return torch.cat(mixed, dim=1)[:, back] + across

    def flops(self, num_rows: int) -> float:
        """Give the forward FLOPs of so many rows."""
        experts = [cast(Wukong, expert) for expert in self.experts]
        across = 0.0 if self.across is None else linear_flops(self.across) * experts[0].width
        return sum(expert.flops(num_rows) for expert in experts) + num_rows * across
