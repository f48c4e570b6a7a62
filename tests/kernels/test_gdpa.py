"""GDPA is what a loop over rows, events, heads and keys gives."""

import math

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from kernels.gdpa.reference import ACTIVATIONS, Activation, gdpa
from tests.kernels.jagged_rows import LENGTHS, normal, offsets_of, rows

S, H, K = 3, 2, 4


def act(name: Activation, x: float) -> float:
    if name == "identity":
        return x
    if name == "relu":
        return max(x, 0.0)
    if name == "silu":
        return x / (1 + math.exp(-x))
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def by_loop(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, name: Activation) -> Tensor:
    out = torch.zeros_like(q)
    for row, part in enumerate(rows(offsets)):
        for event in range(part.start, part.stop):
            for head in range(H):
                for key in range(S):
                    score = 0.5 * float(q[event, head] @ k[row, key, head])
                    out[event, head] += 2.0 * act(name, score) * v[row, key, head]
    return out


@pytest.mark.parametrize("name", list(ACTIVATIONS))
@settings(max_examples=15, deadline=None)
@given(lengths=LENGTHS)
def test_gdpa_equals_a_plain_loop(name: Activation, lengths: list[int]) -> None:
    offsets = offsets_of(lengths)
    q = normal(int(offsets[-1]), H, K)
    k, v = (normal(len(lengths), S, H, K, seed=seed) for seed in (1, 2))
    got = gdpa(q, k, v, offsets, scale_in=0.5, scale_out=2.0, activation=name)
    torch.testing.assert_close(got, by_loop(q, k, v, offsets, name))


def test_gradients_of_gdpa_are_right() -> None:
    offsets = offsets_of([2, 0, 3])
    q, k, v = normal(5, H, K), normal(3, S, H, K, seed=1), normal(3, S, H, K, seed=2)
    inputs = tuple(x.requires_grad_() for x in (q, k, v))
    assert torch.autograd.gradcheck(lambda *x: gdpa(*x, offsets), inputs)


def test_a_row_never_sees_the_keys_of_another() -> None:
    offsets = offsets_of([2, 3])
    q, k, v = normal(5, H, K), normal(2, S, H, K, seed=1), normal(2, S, H, K, seed=2)
    before = gdpa(q, k, v, offsets)
    k[1] += 1.0
    after = gdpa(q, k, v, offsets)
    assert torch.equal(after[:2], before[:2])
    assert not torch.equal(after[2:], before[2:])


def test_gdpa_takes_tensors_that_are_not_contiguous() -> None:
    offsets = offsets_of([2, 3])
    q, k, v = normal(H, 5, K), normal(2, H, S, K, seed=1), normal(2, H, S, K, seed=2)
    views = q.transpose(0, 1), k.transpose(1, 2), v.transpose(1, 2)
    whole = tuple(x.contiguous() for x in views)
    torch.testing.assert_close(gdpa(*views, offsets), gdpa(*whole, offsets))


@pytest.mark.parametrize(
    ("q", "k", "v", "said"),
    [
        ((5, H), (2, S, H, K), (2, S, H, K), "expected q"),
        ((5, H, K), (2, S, H, K), (2, S + 1, H, K), "expected q"),
        ((5, H, K), (2, S, H + 1, K), (2, S, H + 1, K), "heads"),
        ((5, H, K), (3, S, H, K), (3, S, H, K), "2 rows of queries, 3 rows of keys"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_by_name(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        gdpa(normal(*q), normal(*k), normal(*v), offsets_of([2, 3]))


def test_mixed_dtypes_are_refused() -> None:
    k = normal(2, S, H, K)
    with pytest.raises(ValueError, match="dtypes"):
        gdpa(normal(5, H, K).float(), k, k, offsets_of([2, 3]))
