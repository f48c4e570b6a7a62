"""The whole model, in the layer order of Kunlun.

A layer: weight generation from the set tokens X; personalised feed-forward of the events S; S goes
to seed pooling and to self-attention; X and the pooled tokens go to global interaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from foundation.batches import FmBatch
from foundation.model.attention import WindowSelfAttention
from foundation.model.bottleneck import Bottleneck
from foundation.model.config import KunlunConfig
from foundation.model.embeddings import Embeddings
from foundation.model.events import AgeEncoding, EventAggregator
from foundation.model.interaction import Wukong
from foundation.model.pffn import WeightGeneration, pffn_block
from foundation.model.pooling import SeedPooling


@dataclass(frozen=True, kw_only=True)
class Interface:
    """What a model must know of the data: which features and sources there are.

    Attributes:
        tables: KeyedJaggedTensor key to (vocabulary, number of codes).
        set_features: categorical set features in order; each is one token.
        num_set_numeric: G.
        sources: source name to (its keys, its number of numeric columns).
        num_match_keys: J.
        num_counts: C, match counts.
        objectives: A names.
    """

    tables: Mapping[str, tuple[str, int]]
    set_features: tuple[str, ...]
    num_set_numeric: int
    sources: Mapping[str, tuple[tuple[str, ...], int]]
    num_match_keys: int
    num_counts: int
    objectives: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FmOutput:
    """What the model says of B rows.

    Shapes:
        logits_BA: (B, A). z_BD: (B, D'), in [-1, 1]. reconstruction: scalar.
    """

    logits_BA: Tensor
    z_BD: Tensor
    reconstruction: Tensor


class KunlunLayer(nn.Module):
    """One layer over set tokens and events.

    Args:
        num_tokens: N.
        config: sizes.
        has_attention: false for the last layer, whose attended events nobody would read.
    """

    def __init__(self, num_tokens: int, config: KunlunConfig, *, has_attention: bool) -> None:
        super().__init__()
        width, num_heads = config.width, config.num_heads
        self.generation = WeightGeneration(
            num_tokens,
            summary_tokens=config.summary_tokens,
            generated=config.generated_width,
            width=width,
            num_heads=num_heads,
        )
        self.attention = (
            WindowSelfAttention(width=width, num_heads=num_heads, half_window=config.half_window)
            if has_attention
            else None
        )
        self.pooling = SeedPooling(
            width=width,
            num_heads=num_heads,
            num_seeds=config.num_seeds,
            num_pooled=config.num_pooled,
            rank=config.kron_rank,
        )
        self.interaction = Wukong(
            num_tokens + config.num_pooled,
            num_tokens,
            width=width,
            rank=config.interaction_rank,
            hidden=config.interaction_hidden,
        )

    def forward(
        self, tokens_BND: Tensor, events_LD: Tensor, offsets_B: Tensor, age_ms_L: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Give the next set tokens, the next events, and the pooled tokens (B, P, D)."""
        keys, values = self.generation(tokens_BND)
        events_LD = pffn_block(events_LD, keys, values, offsets_B)
        pooled_BPD = self.pooling(events_LD, offsets_B)
        if self.attention is not None:
            events_LD = self.attention(events_LD, offsets_B, age_ms_L)
        tokens_BND = self.interaction(torch.cat((tokens_BND, pooled_BPD), dim=1))
        return tokens_BND, events_LD, pooled_BPD


class Kunlun(nn.Module):
    """A foundation model over set features and one merged event sequence.

    Source: arXiv 2602.10016 (layer order, GDPA, seed pooling, interaction). Differs: match
        embeddings and decayed match counts are inputs, one interaction expert, no CompSkip yet.
    """

    def __init__(self, interface: Interface, config: KunlunConfig) -> None:
        super().__init__()
        self.interface, self.config = interface, config
        width = config.width
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
        num_dense = interface.num_counts + interface.num_set_numeric
        self.dense_token = nn.Sequential(
            nn.Linear(num_dense, width), nn.GELU(), nn.Linear(width, width)
        )
        num_tokens = len(interface.set_features) + 1
        self.token_bias = nn.Parameter(torch.randn(num_tokens, width) * 0.02)
        self.layers = nn.ModuleList(
            KunlunLayer(num_tokens, config, has_attention=place + 1 < config.num_layers)
            for place in range(config.num_layers)
        )
        head_inputs = (num_tokens + config.num_pooled) * width + num_dense
        self.trunk = nn.Sequential(
            nn.Linear(head_inputs, config.head_hidden),
            nn.GELU(),
            nn.Linear(config.head_hidden, config.head_hidden),
            nn.GELU(),
        )
        self.heads = nn.Linear(config.head_hidden, len(interface.objectives))
        self.bottleneck = Bottleneck(
            config.head_hidden, dim=config.bottleneck_dim, prefixes=config.bottleneck_prefixes
        )

    def forward(self, batch: FmBatch) -> FmOutput:
        """Score B rows."""
        parts = [batch.set_codes, *(source.codes for source in batch.sources.values())]
        vectors = self.embeddings(parts)
        age_ms_M = batch.age_ms_L[batch.event_M]
        dense_BG = torch.cat((batch.counts_BC, batch.set_numeric_BG), dim=1)
        tokens = [vectors[name] for name in self.interface.set_features]
        tokens_BND = torch.stack([*tokens, self.dense_token(dense_BG)], dim=1) + self.token_bias
        events_MD = self._events(batch, vectors)[batch.event_M]
        events_MD = events_MD + self.match_tokens(batch.matches_MJ.to(events_MD.dtype))
        pooled_BPD = tokens_BND[:, :0]
        for layer in self.layers:
            tokens_BND, events_MD, pooled_BPD = layer(
                tokens_BND, events_MD, batch.offsets_B, age_ms_M
            )
        pooled_BPD = functional.rms_norm(pooled_BPD, pooled_BPD.shape[-1:])
        flat = torch.cat((tokens_BND.flatten(1), pooled_BPD.flatten(1), dense_BG), dim=1)
        hidden_BW = self.trunk(flat)
        z_BD, reconstruction = self.bottleneck(hidden_BW)
        return FmOutput(logits_BA=self.heads(hidden_BW), z_BD=z_BD, reconstruction=reconstruction)

    def _events(self, batch: FmBatch, vectors: Mapping[str, Tensor]) -> Tensor:
        """Encode and merge every request's events once, (L, D)."""
        encoded = [
            self.aggregators[name]([vectors[key] for key in keys], batch.sources[name].numeric_EG)
            for name, (keys, _) in self.interface.sources.items()
        ]
        merged_LD = torch.cat(encoded)[batch.place_L]
        out: Tensor = merged_LD + self.source_tokens(batch.source_L) + self.ages(batch.age_ms_L)
        return out
