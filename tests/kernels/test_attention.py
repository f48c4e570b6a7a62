"""Window attention is what a softmax over each event's neighbours gives."""

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from kernels.attention.reference import rotate, rote_angles, window_attention
from tests.kernels.jagged_rows import LENGTHS, normal, offsets_of, rows

H, K = 2, 4


def by_loop(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, half_window: int) -> Tensor:
    out = torch.zeros_like(q)
    for part in rows(offsets):
        for i in range(part.start, part.stop):
            near = range(max(part.start, i - half_window), min(part.stop, i + half_window + 1))
            for head in range(H):
                scores = torch.stack([q[i, head] @ k[j, head] for j in near]) / K**0.5
                out[i, head] = sum(
                    p * v[j, head] for p, j in zip(scores.softmax(0), near, strict=True)
                )
    return out


@pytest.mark.parametrize("half_window", [1, 2, 8, 32])
@settings(max_examples=12, deadline=None)
@given(lengths=LENGTHS)
def test_window_attention_equals_a_plain_loop(half_window: int, lengths: list[int]) -> None:
    offsets = offsets_of(lengths)
    q, k, v = (normal(int(offsets[-1]), H, K, seed=seed) for seed in range(3))
    got = window_attention(q, k, v, offsets, half_window=half_window)
    torch.testing.assert_close(got, by_loop(q, k, v, offsets, half_window))


def test_gradients_of_window_attention_are_right_and_finite_in_padded_rows() -> None:
    offsets = offsets_of([3, 0, 5])
    inputs = tuple(normal(8, H, K, seed=seed).requires_grad_() for seed in range(3))
    assert torch.autograd.gradcheck(lambda *x: window_attention(*x, offsets, half_window=2), inputs)


def test_a_row_never_sees_another() -> None:
    offsets = offsets_of([9, 4])
    q, k, v = (normal(13, H, K, seed=seed) for seed in range(3))
    before = window_attention(q, k, v, offsets, half_window=4)
    v[9:] += 1.0
    after = window_attention(q, k, v, offsets, half_window=4)
    assert torch.equal(after[:9], before[:9])
    assert not torch.equal(after[9:], before[9:])


def test_rotation_keeps_lengths_and_depends_on_the_difference_of_places_only() -> None:
    theta, phi = torch.tensor([0.7, 0.1]).double(), torch.zeros(2).double()
    offsets = offsets_of([6])
    angles = rote_angles(offsets, torch.zeros(6).double(), theta, phi)
    x = normal(1, H, K).expand(6, H, K)
    y = normal(1, H, K, seed=1).expand(6, H, K)
    rotated_x, rotated_y = rotate(x, angles), rotate(y, angles)
    torch.testing.assert_close(rotated_x.norm(dim=-1), x.norm(dim=-1))
    near = (rotated_x[3] * rotated_y[1]).sum(-1)
    torch.testing.assert_close(near, (rotated_x[5] * rotated_y[3]).sum(-1))
    assert not torch.allclose(near, (rotated_x[3] * rotated_y[2]).sum(-1))


def test_the_angle_grows_with_the_age_of_an_event() -> None:
    day_ms = 86_400_000.0
    ages = torch.tensor([0.0, day_ms, 3 * day_ms]).double()
    zero, one = torch.zeros(1).double(), torch.ones(1).double()
    angles = rote_angles(offsets_of([3]), ages, zero, one)
    torch.testing.assert_close(angles[:, 0], torch.log1p(ages / day_ms))


@pytest.mark.parametrize(
    ("shape", "half_window", "said"), [((5, H), 2, "expected three"), ((5, H, K), 0, "half_window")]
)
def test_wrong_arguments_are_refused_by_name(
    shape: tuple[int, ...], half_window: int, said: str
) -> None:
    x = normal(*shape)
    with pytest.raises(ValueError, match=said):
        window_attention(x, x, x, offsets_of([5]), half_window=half_window)
