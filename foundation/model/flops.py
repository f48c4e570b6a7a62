"""FLOPs of the operators, counted as useful: real lengths, visible pairs, 2 per multiply-add.

Legend: B rows, T events of a row, D width.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn


def linear_flops(parts: nn.Module | Iterable[nn.Module]) -> float:
    """FLOPs of one application of every linear map in these modules."""
    modules = [parts] if isinstance(parts, nn.Module) else list(parts)
    linears = [m for part in modules for m in part.modules() if isinstance(m, nn.Linear)]
    return 2.0 * sum(m.in_features * m.out_features for m in linears)


class Counted:
    """A module that counts its own FLOPs; for the type checker, which sees only modules."""

    def flops(self, lengths_B: Tensor) -> float:
        """Give the forward FLOPs of rows with so many events."""
        raise NotImplementedError


def total_flops(parts: Iterable[nn.Module | None], lengths_B: Tensor) -> float:
    """FLOPs of modules that count their own; absent ones cost nothing."""
    present = [cast(Counted, part) for part in parts if part is not None]
    return float(sum(part.flops(lengths_B) for part in present))


def num_events(lengths_B: Tensor) -> float:
    """Events of all rows."""
    return float(lengths_B.sum())


def num_full_pairs(lengths_B: Tensor) -> float:
    """Pairs of events that full attention looks at."""
    return float((lengths_B.double() ** 2).sum())


def num_window_pairs(lengths_B: Tensor, half_window: int) -> float:
    """Pairs of events of one row that are at most a half window apart."""
    lengths = lengths_B.double()
    w = torch.minimum(lengths - 1, torch.tensor(float(half_window))).clamp(min=0)
    return float((lengths * (2 * w + 1) - w * (w + 1)).sum())


def num_causal_pairs(lengths_B: Tensor) -> float:
    """Pairs of an event and one that is not later."""
    lengths = lengths_B.double()
    return float((lengths * (lengths + 1) / 2).sum())
