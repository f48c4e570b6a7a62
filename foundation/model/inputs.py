"""The input side that all architectures share: embeddings, event aggregators, tokens.

Legend: B rows, L events of the requests end to end, M events of the rows end to end, D width.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from foundation.batches import FmBatch
from foundation.model.embeddings import Embeddings
from foundation.model.events import AgeEncoding, EventAggregator
from foundation.model.interface import Encoded, Interface


class InputEncoder(nn.Module):
    """Turns a batch into set tokens and merged event sequences.

    Events are encoded once per request; rows of a request read the same ones, with match
    embeddings of their own candidate added.
    """

    def __init__(self, interface: Interface, *, width: int) -> None:
        super().__init__()
        self.interface = interface
        self.embeddings = Embeddings(interface.tables, width=width)
        self.aggregators = nn.ModuleDict(
            {
                name: EventAggregator(num_numeric, width=width)
                for name, (_, num_numeric) in interface.sources.items()
            }
        )
        self.source_tokens = nn.Embedding(len(interface.sources), width)
        self.ages = AgeEncoding(width=width)
        self.match_tokens = nn.Linear(interface.num_match_keys, width, bias=False)
        self.dense_token = nn.Sequential(
            nn.Linear(interface.num_dense, width), nn.GELU(), nn.Linear(width, width)
        )
        self.token_bias = nn.Parameter(torch.randn(interface.num_tokens, width) * 0.02)

    def forward(self, batch: FmBatch) -> tuple[Encoded, Tensor]:
        """Give what a body reads, and the dense numbers (B, G)."""
        parts = [batch.set_codes, *(source.codes for source in batch.sources.values())]
        vectors = self.embeddings(parts)
        dense_BG = torch.cat((batch.counts_BC, batch.set_numeric_BG), dim=1)
        tokens = [vectors[name] for name in self.interface.set_features]
        tokens_BND = torch.stack([*tokens, self.dense_token(dense_BG)], dim=1) + self.token_bias
        events_MD = self._events(batch, vectors)[batch.event_M]
        events_MD = events_MD + self.match_tokens(batch.matches_MJ.to(events_MD.dtype))
        encoded = Encoded(
            tokens_BND=tokens_BND,
            events_MD=events_MD,
            offsets_B=batch.offsets_B,
            age_ms_M=batch.age_ms_L[batch.event_M],
            num_item_features=self.interface.num_item_features,
        )
        return encoded, dense_BG

    def flops(self, batch: FmBatch) -> float:
        """Give the forward FLOPs of a batch; look-ups are free."""
        width = self.token_bias.shape[1]
        num_rows, num_visible = len(batch), len(batch.event_M)
        total = 2.0 * num_rows * (self.interface.num_dense * width + width**2)
        total += 2.0 * num_visible * self.interface.num_match_keys * width
        for name, (_, num_numeric) in self.interface.sources.items():
            num_events = len(batch.sources[name].numeric_EG)
            total += 2.0 * num_events * (num_numeric * width + width**2)
        return total

    def _events(self, batch: FmBatch, vectors: Mapping[str, Tensor]) -> Tensor:
        """Encode and merge every request's events once, (L, D)."""
        encoded = [
            self.aggregators[name]([vectors[key] for key in keys], batch.sources[name].numeric_EG)
            for name, (keys, _) in self.interface.sources.items()
        ]
        merged_LD = torch.cat(encoded)[batch.place_L]
        out: Tensor = merged_LD + self.source_tokens(batch.source_L) + self.ages(batch.age_ms_L)
        return out
