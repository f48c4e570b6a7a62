"""What the parts of a model tell one another: the data's features, encoded inputs, outputs.

A model is an input encoder, a body and a readout. Bodies differ from one architecture to another;
the encoder and the readout do not, so a comparison of bodies compares nothing else.

Legend: B rows, N set tokens, M events of the rows end to end, D width, G dense numbers, A
objectives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Interface:
    """What a model must know of the data: which features and sources there are.

    Attributes:
        tables: KeyedJaggedTensor key to (vocabulary, number of codes).
        set_features: categorical set features in order, those of items first; each is one token.
        num_item_features: how many of them are of items.
        num_set_numeric: numbers of the set side.
        sources: source name to (its keys, its number of numeric columns).
        num_match_keys: J.
        num_counts: C, match counts.
        objectives: A names.
    """

    tables: Mapping[str, tuple[str, int]]
    set_features: tuple[str, ...]
    num_item_features: int
    num_set_numeric: int
    sources: Mapping[str, tuple[tuple[str, ...], int]]
    num_match_keys: int
    num_counts: int
    objectives: tuple[str, ...]

    @property
    def num_dense(self) -> int:
        """G: match counts and numbers of the set side."""
        return self.num_counts + self.num_set_numeric

    @property
    def num_tokens(self) -> int:
        """N: a token for each set feature, and one for all dense numbers."""
        return len(self.set_features) + 1


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """B rows as a body reads them.

    Shapes:
        tokens_BND: (B, N, D); those of the item's features come first, the dense one last.
        events_MD: (M, D), oldest to newest inside a row.
        offsets_B: (B + 1,), int64, over M.
        age_ms_M: (M,), float32, event to request.

    Attributes:
        num_item_features: tokens that are of the item.
    """

    tokens_BND: Tensor
    events_MD: Tensor
    offsets_B: Tensor
    age_ms_M: Tensor
    num_item_features: int


@dataclass(frozen=True, kw_only=True)
class FmOutput:
    """What the model says of B rows.

    Shapes:
        logits_BA: (B, A). z_BD: (B, D'), in [-1, 1]. reconstruction: scalar.
    """

    logits_BA: Tensor
    z_BD: Tensor
    reconstruction: Tensor


class Body(Protocol):
    """One architecture; a module."""

    out_width: int
    """Width of what it gives."""

    def __call__(self, x: Encoded) -> Tensor:
        """Give (B, out_width)."""

    def flops(self, lengths_B: Tensor) -> float:
        """Give the forward FLOPs of rows with so many events: 2 for a multiply and an add.

        Matrix products only, over real lengths, without padding; what is elementwise is left out.
        """
