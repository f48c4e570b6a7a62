"""FLOPs of the operators, counted as useful: real lengths, visible pairs, 2 per multiply-add.

Legend: B rows, T events of a row, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor


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
