"""Seed attention and the sum of Kronecker products are what loops give."""

import pytest
import torch
from hypothesis import given, settings

from kernels.hsp.reference import seed_attention, sum_kron_linear
from tests.kernels.jagged_rows import LENGTHS, normal, offsets_of, rows

S, H, K = 3, 2, 4


@settings(max_examples=20, deadline=None)
@given(lengths=LENGTHS)
def test_seed_attention_equals_a_plain_loop(lengths: list[int]) -> None:
    offsets = offsets_of(lengths)
    total = int(offsets[-1])
    q, k, v = normal(S, H, K), normal(total, H, K, seed=1), normal(total, H, K, seed=2)
    expected = torch.zeros(len(lengths), S, H, K, dtype=torch.float64)
    for row, part in enumerate(rows(offsets)):
        for seed in range(S):
            for head in range(H):
                scores = (k[part, head] @ q[seed, head]) / K**0.5
                expected[row, seed, head] = scores.softmax(0) @ v[part, head]
    torch.testing.assert_close(seed_attention(q, k, v, offsets), expected)


def test_gradients_are_right_and_rows_without_events_give_zeros_not_nan() -> None:
    offsets = offsets_of([2, 0, 3])
    inputs = (normal(S, H, K), normal(5, H, K, seed=1), normal(5, H, K, seed=2))
    inputs = tuple(x.requires_grad_() for x in inputs)
    assert not seed_attention(*inputs, offsets)[1].any()
    assert torch.autograd.gradcheck(lambda *x: seed_attention(*x, offsets), inputs)


def test_sum_kron_linear_is_the_full_matrix_it_stands_for() -> None:
    x, z, w = normal(2, S, K), normal(2, S, 2, seed=1), normal(2, K, K, seed=2)
    full = sum(torch.kron(z[r].T.contiguous(), w[r].T.contiguous()) for r in range(2))
    expected = (x.flatten(1) @ full.T).unflatten(1, (2, K))
    torch.testing.assert_close(sum_kron_linear(x, z, w), expected)


def test_heads_that_differ_are_refused() -> None:
    k = normal(5, H, K)
    with pytest.raises(ValueError, match="seed_attention"):
        seed_attention(normal(S, H + 1, K), k, k, offsets_of([5]))
