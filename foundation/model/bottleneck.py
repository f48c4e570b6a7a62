"""The narrow vector that leaves the model: a tanh auto-encoder whose loss never reaches it."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class Bottleneck(nn.Module):
    """Compresses the model's last hidden state to D' numbers in [-1, 1].

    Args:
        width: of the hidden state.
        dim: D'.
        prefixes: lengths of prefixes that must reconstruct it alone (Matryoshka).

    Source: arXiv 2605.29280, representation and compression. Differs: one decoder serves every
        prefix, with the rest set to zero.
    """

    def __init__(self, width: int, *, dim: int, prefixes: Sequence[int]) -> None:
        super().__init__()
        self.encode = nn.Linear(width, dim)
        self.decode = nn.Linear(dim, width)
        masks = torch.stack([(torch.arange(dim) < prefix).float() for prefix in prefixes])
        self.register_buffer("masks", masks, persistent=False)

    def forward(self, hidden_BW: Tensor) -> tuple[Tensor, Tensor]:
        """Give the vectors, (B, D') in [-1, 1], and the mean reconstruction error."""
        target = hidden_BW.detach()
        z_BD = torch.tanh(self.encode(target))
        masks: Tensor = self.get_buffer("masks")
        decoded = self.decode(z_BD[None] * masks[:, None, :])
        return z_BD, functional.mse_loss(decoded, target.expand_as(decoded))
