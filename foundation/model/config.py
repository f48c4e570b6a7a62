"""What sets one foundation model apart from another."""

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class KunlunConfig:
    """Sizes of a Kunlun model.

    Attributes:
        width: D, of tokens and events.
        num_heads: H; divides the width.
        num_layers: each is feed-forward, self-attention and pooling of events, then interaction
            of set tokens.
        generated_width: F, hidden width of the feed-forward networks generated per row.
        summary_tokens: set tokens compressed to this many before generation.
        half_window: events that one sees on either side in self-attention.
        num_seeds, num_pooled: S and P of seed pooling; kron_rank: terms of its compression.
        interaction_rank: columns of the factorisation machine's projection.
        interaction_hidden, head_hidden: widths of the two kinds of MLP.
        max_events: newest events of all sources that a row sees.
        bottleneck_dim: width of the vector that is handed to verticals.
        bottleneck_prefixes: Matryoshka prefixes of it that must be usable alone.
        count_events: newest events of each source with items that match counts look at.
        half_lives_days: of the decayed match counts.
    """

    width: int = 64
    num_heads: int = 4
    num_layers: int = 2
    generated_width: int = 32
    summary_tokens: int = 8
    half_window: int = 32
    num_seeds: int = 16
    num_pooled: int = 4
    kron_rank: int = 2
    interaction_rank: int = 16
    interaction_hidden: int = 256
    head_hidden: int = 128
    max_events: int = 256
    count_events: int = 2048
    bottleneck_dim: int = 32
    bottleneck_prefixes: tuple[int, ...] = (8, 16, 32)
    half_lives_days: tuple[float, ...] = (7.0, 28.0, 112.0)

    def __post_init__(self) -> None:
        """Refuse sizes that do not fit one another."""
        if self.width % (2 * self.num_heads):
            raise ValueError(
                f"width: expected a multiple of 2 * num_heads = {2 * self.num_heads}, "
                f"got {self.width}"
            )
        if self.num_layers < 1 or self.max_events < 1:
            raise ValueError("num_layers and max_events: expected 1 or more")
        if not self.bottleneck_prefixes or self.bottleneck_prefixes[-1] != self.bottleneck_dim:
            raise ValueError(
                f"bottleneck_prefixes: expected the last to be bottleneck_dim = "
                f"{self.bottleneck_dim}, got {self.bottleneck_prefixes}"
            )
