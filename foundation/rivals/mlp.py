"""The plain network that several architectures end with."""

from __future__ import annotations

import itertools

from torch import nn


def mlp(*sizes: int) -> nn.Sequential:
    """Give linear layers of these widths, first input to last output, each with a GELU."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.GELU()]
    return nn.Sequential(*layers)
