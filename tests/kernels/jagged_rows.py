"""Jagged rows for kernel tests: drawn lengths, and the rows of a jagged tensor."""

from collections.abc import Iterator

import torch
from hypothesis import strategies as st
from torch import Tensor

LENGTHS = st.lists(st.sampled_from([0, 1, 2, 5, 7, 8, 9, 17]), min_size=1, max_size=4)


def offsets_of(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0)


def rows(offsets: Tensor) -> Iterator[slice]:
    for first, last in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        yield slice(first, last)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
