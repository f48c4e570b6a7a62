"""Padding and unpadding lose nothing."""

import pytest
import torch
from hypothesis import given

from kernels.jagged import check_offsets, max_length, pad, padding_mask, unpad
from tests.kernels.jagged_rows import LENGTHS, normal, offsets_of, rows


@given(lengths=LENGTHS)
def test_unpad_gives_back_what_pad_was_given(lengths: list[int]) -> None:
    offsets = offsets_of(lengths)
    values = normal(int(offsets[-1]), 3)
    padded = pad(values, offsets, max_length(offsets) + 2)
    assert torch.equal(unpad(padded, offsets), values)
    for row, part in enumerate(rows(offsets)):
        length = part.stop - part.start
        assert torch.equal(padded[row, :length], values[part])
        assert not padded[row, length:].any()
        assert padding_mask(offsets, padded.shape[1])[row].sum() == length


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ([1, 3], "first 0"),
        ([0, 2, 1, 3], "non-decreasing"),
        ([0, 2], "last is 2, expected 3"),
        ([0.0, 3.0], "integer"),
    ],
)
def test_offsets_that_do_not_describe_the_values_are_refused(
    offsets: list[float], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        check_offsets(torch.tensor(offsets), 3, name="test offsets")
