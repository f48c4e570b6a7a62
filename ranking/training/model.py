"""The vertical model: embeddings, an optional memory and pair block, cross layers, two heads.

One module trains on rows of many requests and serves one request. The user side has B entries:
in training rows point to theirs by `request_index`; when serving B is 1 and broadcasts, so the
work on the user is done once for all candidates.

Legend: B requests, N candidate rows, L memory slots, M match columns, D width, A objectives.

Source: DCN-V2 (arXiv 2008.13535) eq. 1-2, parallel structure; distillation head ExFM (arXiv
2502.17494) section 3.3. Differs: the memory encoder and its match inputs are our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from features.assembly import AssemblySpec
from features.encoding import Encoder
from features.lookup import Tier
from features.schema import Schema
from ranking.training.memory_encoder import MemoryEncoder

MemoryContent = Literal["none", "loopfm", "raw"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes of the model and which blocks it has.

    Attributes:
        memory: what the entries of the memory are: nothing, FM vectors, or the items' own codes.
        has_pairs: whether the pair block is there.
        pair_demotion_frac: share of training rows whose pair vector is taken away.
        distill_gradient_scale: of the distillation head's gradient into the backbone.
    """

    embedding_dim: int = 8
    memory_width: int = 24
    num_cross: int = 2
    hidden: tuple[int, ...] = (96, 48)
    dropout_frac: float = 0.2
    memory: MemoryContent = "none"
    has_pairs: bool = False
    pair_demotion_frac: float = 0.3
    distill_gradient_scale: float = 1.0

    @property
    def blocks(self) -> frozenset[str]:
        """Blocks of `features.assembly` that the model takes."""
        chosen = {"memory": self.memory != "none", "pairs": self.has_pairs}
        return frozenset(name for name, is_there in chosen.items() if is_there)


@dataclass(frozen=True, kw_only=True)
class FeatureTables:
    """Vocabulary of each categorical feature and the size of each vocabulary."""

    vocabulary_of: dict[str, str]
    sizes: dict[str, int]

    @classmethod
    def of(cls, schema: Schema, encoder: Encoder, spec: AssemblySpec) -> FeatureTables:
        """Give the tables that a vertical's features need."""
        names = (*spec.user_features, *spec.item_features, *spec.context_features)
        vocabulary_of = {name: str(schema.feature(name).vocabulary) for name in names}
        sizes = {name: encoder.size(name) for name in sorted(set(vocabulary_of.values()))}
        return cls(vocabulary_of=vocabulary_of, sizes=sizes)


class VerticalModel(nn.Module):
    """Give logits of candidates.

    Args:
        config: sizes and blocks.
        spec: inputs; its blocks may be more than the config's.
        tables: vocabularies.
        num_objectives: columns of the logits.
    """

    def __init__(
        self, config: ModelConfig, spec: AssemblySpec, tables: FeatureTables, num_objectives: int
    ) -> None:
        super().__init__()
        self.config, self.spec = config, spec
        self._vocabulary_of = tables.vocabulary_of
        width = config.embedding_dim
        self.embeddings = nn.ModuleDict(
            {name: nn.Embedding(size, width, padding_idx=0) for name, size in tables.sizes.items()}
        )
        for table in self.embeddings.values():
            assert isinstance(table, nn.Embedding)
            nn.init.normal_(table.weight, std=0.05)
        num_features = sum(
            len(names) for names in (spec.user_features, spec.item_features, spec.context_features)
        )
        num_inputs = num_features * width + spec.num_numeric
        item_width = len(spec.item_features) * width
        if config.memory != "none":
            self.memory = MemoryEncoder(
                entry_width=spec.dim if config.memory == "loopfm" else item_width,
                item_width=item_width,
                num_matches=1 + len(spec.match_features),
                width=config.memory_width,
            )
            num_inputs += self.memory.num_outputs
        if config.has_pairs:
            self.pairs = PairEncoder(spec.dim, config.memory_width, config.pair_demotion_frac)
            num_inputs += self.pairs.num_outputs
        self.backbone = CrossNetwork(num_inputs, config)
        self.serving_head = nn.Linear(self.backbone.num_outputs, num_objectives)
        self.distill_head = nn.Linear(self.backbone.num_outputs, num_objectives)

    @property
    def input_names(self) -> tuple[str, ...]:
        """Inputs of `features.assembly` that the model reads."""
        spec, config = self.spec, self.config
        content = {"none": (), "loopfm": ("memory_z",), "raw": ("memory_codes",)}[config.memory]
        memory = (*content, "memory_match", "memory_age", "memory_mask", "item_match")
        pairs = ("pair_z", "pair_tier", "pair_age", "pair_similarity")
        return (
            *(("user_codes",) if spec.user_features else ()),
            "item_codes",
            *(("context_codes",) if spec.context_features else ()),
            *(("numeric",) if spec.num_numeric else ()),
            *(memory if config.memory != "none" else ()),
            *(pairs if config.has_pairs else ()),
        )

    def forward(
        self, inputs: Mapping[str, Tensor], request_index: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Give the logits of the serving and of the distillation head.

        Shapes:
            inputs: by the names and shapes of `features.assembly`, the user side with B entries.
            request_index: (N,), int64, entry of each row; None where B is 1.
            returns: two of (N, A), float32.
        """
        backbone = self.backbone(self._join(inputs, request_index))
        scale = self.config.distill_gradient_scale
        scaled = backbone * scale + (backbone * (1 - scale)).detach()
        return self.serving_head(backbone), self.distill_head(scaled)

    def serve(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Give the serving head's logits of one request, (N, A)."""
        logits: Tensor = self.serving_head(self.backbone(self._join(inputs, None)))
        return logits

    def _join(self, inputs: Mapping[str, Tensor], request_index: Tensor | None) -> Tensor:
        spec = self.spec
        item = self._embed(inputs["item_codes"], spec.item_features)
        parts = [item]
        if spec.user_features:
            user = self._embed(inputs["user_codes"], spec.user_features)
            is_one = request_index is None
            parts.append(user.expand(item.shape[0], -1) if is_one else user[request_index])
        if spec.context_features:
            parts.append(self._embed(inputs["context_codes"], spec.context_features))
        if spec.num_numeric:
            parts.append(inputs["numeric"])
        if self.config.memory != "none":
            entries = (
                inputs["memory_z"]
                if self.config.memory == "loopfm"
                else self._embed(inputs["memory_codes"], spec.item_features)
            )
            parts.append(self.memory(inputs, entries, item, request_index))
        if self.config.has_pairs:
            parts.append(self.pairs(inputs))
        return torch.cat(parts, dim=1)

    def _embed(self, codes: Tensor, names: tuple[str, ...]) -> Tensor:
        """Embed (..., F) codes and lay the features side by side."""
        parts = [
            self.embeddings[self._vocabulary_of[name]](codes[..., place])
            for place, name in enumerate(names)
        ]
        return torch.cat(parts, dim=-1)


class PairEncoder(nn.Module):
    """Give what a candidate's pair vector says, by where it came from."""

    def __init__(self, dim: int, width: int, demotion_frac: float) -> None:
        super().__init__()
        self.demotion_frac = demotion_frac
        self.project = nn.Linear(dim, width, bias=False)
        self.project_own = nn.Linear(dim, width, bias=False)
        self.tier = nn.Embedding(int(Tier.DEFAULT) + 1, width)
        nn.init.normal_(self.tier.weight, std=0.05)
        self.num_outputs = 2 * width + 2

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Give (N, num_outputs), float32."""
        z, tier = inputs["pair_z"], inputs["pair_tier"]
        extra = torch.stack([inputs["pair_age"] / 8, inputs["pair_similarity"]], dim=1)
        if self.training:
            is_kept = torch.rand_like(inputs["pair_age"]) >= self.demotion_frac
            tier = torch.where(is_kept, tier, int(Tier.DEFAULT))
            z, extra = z * is_kept[:, None], extra * is_kept[:, None]
        is_own = (tier == int(Tier.EXACT_PAIR)).to(z.dtype)[:, None]
        mixed = self.project(z) + self.tier(tier)
        return torch.cat([mixed, self.project_own(z * is_own), extra], dim=1)


class CrossNetwork(nn.Module):
    """Cross layers and a plain network side by side."""

    def __init__(self, num_inputs: int, config: ModelConfig) -> None:
        super().__init__()
        self.scale = nn.LayerNorm(num_inputs)
        self.cross = nn.ModuleList(
            nn.Linear(num_inputs, num_inputs) for _ in range(config.num_cross)
        )
        layers: list[nn.Module] = []
        for before, after in zip((num_inputs, *config.hidden), config.hidden, strict=False):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(config.dropout_frac)]
        self.deep = nn.Sequential(*layers)
        self.dropout = nn.Dropout(config.dropout_frac)
        self.num_outputs = num_inputs + (config.hidden[-1] if config.hidden else num_inputs)

    def forward(self, x_ND: Tensor) -> Tensor:
        """Give (N, num_outputs)."""
        x0 = self.scale(x_ND)
        crossed = x0
        for layer in self.cross:
            crossed = x0 * layer(crossed) + crossed
        return torch.cat([self.dropout(crossed), self.deep(x0)], dim=1)
