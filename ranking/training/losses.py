"""What a vertical model is trained on: the labels, and the foundation model's probabilities.

Source: ExFM (arXiv 2502.17494) section 3.3, auxiliary head with loss weight, label scale and
gradient scale (the last is in the model). Differs: no student adapter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """How the foundation model teaches.

    Attributes:
        weight: of the distillation loss against the label's.
        label_scale: multiplies the teacher's probability, cut at 1.
    """

    weight: float = 1.0
    label_scale: float = 1.0


def training_loss(
    logits: tuple[Tensor, Tensor],
    labels_NA: Tensor,
    p_f_NA: Tensor,
    weights_N: Tensor,
    *,
    distill: DistillConfig | None,
) -> Tensor:
    """Give the weighted mean loss of rows, summed over objectives.

    Shapes:
        logits: of the serving and the distillation head, (N, A) each.
        labels_NA, p_f_NA: (N, A), in [0, 1].
        weights_N: (N,), 0 or more.
    """
    loss = _cross_entropy(logits[0], labels_NA, weights_N)
    if distill is None:
        return loss
    soft = (p_f_NA * distill.label_scale).clamp(max=1.0)
    return loss + distill.weight * _cross_entropy(logits[1], soft, weights_N)


def _cross_entropy(logits: Tensor, targets: Tensor, weights_N: Tensor) -> Tensor:
    each = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return torch.sum(each.sum(dim=1) * weights_N) / weights_N.sum()
