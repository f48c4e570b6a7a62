"""The personalised feed-forward network: GDPA over keys and values generated from the set side."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from kernels.gdpa.reference import gdpa


class WeightGeneration(nn.Module):
    """Generates each row's keys and values from its set tokens.

    Args:
        num_tokens: N.
        summary_tokens: tokens that they are compressed to first.
        generated: F, keys and values of a row.
        width, num_heads: D and H.

    Source: arXiv 2602.10016, "weight generation: an MLP". Differs: the paper's sizes are not
        public; token axis, channel MLP, token axis is the cheapest form that sees every token.
    """

    def __init__(
        self, num_tokens: int, *, summary_tokens: int, generated: int, width: int, num_heads: int
    ) -> None:
        super().__init__()
        self.compress = nn.Linear(num_tokens, summary_tokens)
        self.channels = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.expand = nn.Linear(summary_tokens, 2 * generated)
        self.num_heads = num_heads

    def forward(self, tokens_BND: Tensor) -> tuple[Tensor, Tensor]:
        """Give keys and values, (B, F, H, K) each."""
        summary_BSD = self.compress(tokens_BND.mT).mT
        summary_BSD = summary_BSD + self.channels(
            functional.rms_norm(summary_BSD, summary_BSD.shape[-1:])
        )
        both = self.expand(summary_BSD.mT).mT.unflatten(-1, (self.num_heads, -1))
        keys, values = both.chunk(2, dim=1)
        return keys, values


def pffn_block(
    events_LD: Tensor, keys_BFHK: Tensor, values_BFHK: Tensor, offsets_B: Tensor
) -> Tensor:
    """Give the events after the personalised network, (L, D).

    u = LayerNorm(q); g = GDPA(u); y = RMSNorm(g + u) + q. Norms are over all heads jointly and
    have no weights; the inner residual is the normalised input.

    Source: Meta's open kernel library, the order of the fused block. Differs: keys are normalised
        per head, and the scale inside the activation is 1 / sqrt(K), which bounds the scores.
    """
    H, K = keys_BFHK.shape[2:]
    width = (events_LD.shape[-1],)
    normed_LD = functional.layer_norm(events_LD, width)
    mixed = gdpa(
        normed_LD.unflatten(-1, (H, K)),
        functional.rms_norm(keys_BFHK, (K,)),
        values_BFHK,
        offsets_B,
        scale_in=K**-0.5,
        activation="gelu",
    )
    return functional.rms_norm(torch.add(mixed.flatten(1), normed_LD), width) + events_LD
