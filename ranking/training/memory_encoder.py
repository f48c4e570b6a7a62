"""Reads a user's memory for each candidate: what is in it, and how it matches.

The same encoder serves FM vectors and the control with the items' own codes; both get the same
match inputs, so a difference between them is what the vectors carry.

Legend: B requests, N candidate rows, L memory slots, M match columns, D width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

HALF_LIVES_DAYS = (7.0, 28.0, 112.0)
_HOURS_PER_DAY = 24.0
# Log1p of hours in a year is 9.1; brings ages to about 1.
_AGE_SCALE = 8.0


class MemoryEncoder(nn.Module):
    """Give a fixed-width summary of the memory for each candidate.

    Args:
        entry_width: of an entry's content.
        item_width: of a candidate's embedding.
        num_matches: M, columns by which a candidate is compared with an entry.
        width: D.
    """

    half_lives_hours: Tensor

    def __init__(self, *, entry_width: int, item_width: int, num_matches: int, width: int) -> None:
        super().__init__()
        self.content = nn.Linear(entry_width, width)
        self.age = nn.Linear(1, width, bias=False)
        self.query = nn.Linear(item_width, width)
        self.match_logit = nn.Parameter(torch.ones(num_matches))
        self.match_value = nn.Parameter(torch.randn(num_matches, width) * 0.05)
        hours = torch.tensor(HALF_LIVES_DAYS) * _HOURS_PER_DAY
        self.register_buffer("half_lives_hours", hours, persistent=False)
        num_counts = num_matches * (len(HALF_LIVES_DAYS) + 2)
        self.num_outputs = (2 + num_matches) * width + num_counts + 1

    def forward(
        self,
        inputs: Mapping[str, Tensor],
        entries: Tensor,
        item_ND: Tensor,
        request_index: Tensor | None,
    ) -> Tensor:
        """Give (N, num_outputs), float32.

        Shapes:
            inputs: of `features.assembly`, the user side with B entries.
            entries: (B, L, entry_width), content.
            item_ND: (N, item_width).
            request_index: (N,), int64; None where B is 1.
        """
        age_BL, mask_BL = inputs["memory_age"], inputs["memory_mask"]
        values = torch.tanh(self.content(entries) + self.age(age_BL[..., None] / _AGE_SCALE))
        values = values * mask_BL[..., None]
        size = mask_BL.sum(dim=1, keepdim=True)
        mean = values.sum(dim=1) / size.clamp(min=1)
        user_side = torch.cat([mean, torch.log1p(size)], dim=1)
        matches_NML = _matches(inputs, request_index)
        if request_index is None:
            user_side = user_side.expand(item_ND.shape[0], -1)
        else:
            user_side, values = user_side[request_index], values[request_index]
            age_BL, mask_BL = age_BL[request_index], mask_BL[request_index]
        attended = self._attend(self.query(item_ND), values, matches_NML, mask_BL)
        keyed = self._keyed(values, matches_NML, age_BL)
        counts = self._counts(matches_NML, age_BL)
        return torch.cat([user_side, attended, keyed.flatten(1), counts], dim=1)

    def _attend(
        self, query_ND: Tensor, values: Tensor, matches_NML: Tensor, mask: Tensor
    ) -> Tensor:
        """Target attention with match bits in the logit and in the value."""
        logits = _dot(query_ND, values) / math.sqrt(query_ND.shape[1])
        logits = logits + torch.einsum("nml,m->nl", matches_NML, self.match_logit)
        weights = torch.exp(logits.clamp(max=30)) * mask
        # The 1 is an entry that says nothing, for memories without anything to the point.
        weights = weights / (weights.sum(dim=1, keepdim=True) + 1)
        matched_NM = torch.einsum("nml,nl->nm", matches_NML, weights)
        return _mix(weights, values) + matched_NM @ self.match_value

    def _keyed(self, values: Tensor, matches_NML: Tensor, age: Tensor) -> Tensor:
        """Mean of the entries that match, newer ones more, for each match column: (N, M, D)."""
        weights = matches_NML * torch.exp(-age / 2)[:, None]
        weights = weights / (weights.sum(dim=2, keepdim=True) + 1e-3)
        if values.shape[0] == 1:
            return weights @ values[0]
        return torch.bmm(weights, values)

    def _counts(self, matches_NML: Tensor, age: Tensor) -> Tensor:
        """Decayed and plain counts of matches and the last one's recency, for each column."""
        hours = torch.expm1(age)[..., None]
        decay = torch.exp2(-hours / self.half_lives_hours)
        decay = torch.cat([decay, torch.ones_like(decay[..., :1])], dim=-1)
        counts = matches_NML @ (decay[0] if decay.shape[0] == 1 else decay)
        recency = (matches_NML * torch.exp(-age / _AGE_SCALE)[:, None]).amax(dim=2)
        return torch.cat([torch.log1p(counts).flatten(1), recency], dim=1)


def _matches(inputs: Mapping[str, Tensor], request_index: Tensor | None) -> Tensor:
    """Give whether each candidate matches each entry by each column, (N, M, L), float32."""
    memory, mask = inputs["memory_match"], inputs["memory_mask"]
    if request_index is not None:
        memory, mask = memory[request_index], mask[request_index]
    is_same = inputs["item_match"][:, :, None] == memory.transpose(1, 2)
    return is_same.to(mask.dtype) * mask[:, None]


def _dot(query_ND: Tensor, values: Tensor) -> Tensor:
    if values.shape[0] == 1:
        return query_ND @ values[0].t()
    return torch.einsum("nd,nld->nl", query_ND, values)


def _mix(weights_NL: Tensor, values: Tensor) -> Tensor:
    if values.shape[0] == 1:
        return weights_NL @ values[0]
    return torch.einsum("nl,nld->nd", weights_NL, values)
