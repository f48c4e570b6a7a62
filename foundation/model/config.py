"""What sets one foundation model apart from another."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from foundation.model.kunlun import KunlunConfig
from foundation.rivals.dcn import DcnConfig
from foundation.rivals.din import DinConfig
from foundation.rivals.hstu import HstuConfig
from foundation.rivals.interformer import InterFormerConfig
from foundation.rivals.wukong import WukongConfig

BodyConfig = Annotated[
    KunlunConfig | DcnConfig | DinConfig | HstuConfig | InterFormerConfig | WukongConfig,
    Field(discriminator="kind"),
]


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ModelConfig:
    """A whole model: what all architectures share, and one of them.

    Attributes:
        width: D, of tokens and events.
        head_hidden: width of the trunk's layers.
        max_events: newest events of all sources that a row sees.
        count_events: newest events of each source with items that match counts look at.
        half_lives_days: of the decayed match counts.
        bottleneck_dim: width of the vector that is handed to verticals.
        bottleneck_prefixes: Matryoshka prefixes of it that must be usable alone.
        body: the architecture.
    """

    width: int = 64
    head_hidden: int = 128
    max_events: int = 256
    count_events: int = 2048
    half_lives_days: tuple[float, ...] = (7.0, 28.0, 112.0)
    bottleneck_dim: int = 32
    bottleneck_prefixes: tuple[int, ...] = (8, 16, 32)
    body: BodyConfig = field(default_factory=KunlunConfig)

    def __post_init__(self) -> None:
        """Refuse sizes that do not fit one another."""
        if self.max_events < 1:
            raise ValueError(f"max_events: expected 1 or more, got {self.max_events}")
        if not self.bottleneck_prefixes or self.bottleneck_prefixes[-1] != self.bottleneck_dim:
            raise ValueError(
                f"bottleneck_prefixes: expected the last to be bottleneck_dim = "
                f"{self.bottleneck_dim}, got {self.bottleneck_prefixes}"
            )
        self.body.check(self.width)
