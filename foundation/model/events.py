"""Event aggregators and OneSeq: each source's columns become one vector of the model's width.

OneSeq here: the sources' events, encoded by their own aggregators, get a source and an age
embedding and are merged in time order into one jagged sequence; one attention runs over all.
"""

import torch
from torch import Tensor, nn

_HOUR_MS = 3_600_000.0


class EventAggregator(nn.Module):
    """Turns the columns of one source's events into vectors.

    Args:
        num_numeric: numeric columns.
        width: D.
    """

    def __init__(self, num_numeric: int, *, width: int) -> None:
        super().__init__()
        self.numeric = nn.Linear(num_numeric, width) if num_numeric else None
        self.mix = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())

    def forward(self, columns_ED: list[Tensor], numeric_EG: Tensor) -> Tensor:
        """Give (E, D) from the embedded columns, (E, D) each, and the numbers (E, G)."""
        total = torch.stack(columns_ED).sum(0)
        if self.numeric is not None:
            total = total + self.numeric(numeric_EG)
        mixed: Tensor = total + self.mix(total)
        return mixed


class AgeEncoding(nn.Module):
    """Embeds the time from event to request on a logarithmic scale, linearly between knots.

    Args:
        width: D.
        num_knots: from an hour to about two years.
    """

    def __init__(self, *, width: int, num_knots: int = 16) -> None:
        super().__init__()
        self.knots = nn.Embedding(num_knots, width)
        nn.init.normal_(self.knots.weight, std=0.02)
        self.num_knots = num_knots

    def forward(self, age_ms_L: Tensor) -> Tensor:
        """Give (L, D)."""
        place = torch.log2(1.0 + age_ms_L / _HOUR_MS).clamp(0, self.num_knots - 1.001)
        below = place.floor().long()
        share = (place - below).unsqueeze(1)
        mixed: Tensor = self.knots(below) * (1 - share) + self.knots(below + 1) * share
        return mixed
