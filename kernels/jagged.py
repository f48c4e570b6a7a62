"""Between jagged rows end to end and padded rows.

Plain PyTorch rather than fbgemm's operators: those have no double precision on the CPU, which the
gradient checks of the definitions need.

Legend: B rows, L elements end to end, T elements of the longest row, D width.
"""

import torch
from torch import Tensor


def check_offsets(offsets: Tensor, num_values: int, *, name: str) -> None:
    """Refuse offsets that do not describe `num_values` elements.

    Raises:
        ValueError: not 1-D, not integer, not starting at 0, decreasing, or another last value.
    """
    if offsets.dim() != 1 or len(offsets) < 1 or offsets.is_floating_point():
        raise ValueError(f"{name}: expected 1-D integer offsets, got {tuple(offsets.shape)}")
    if int(offsets[0]) != 0 or bool((offsets[1:] < offsets[:-1]).any()):
        raise ValueError(f"{name}: expected a first 0 and non-decreasing values")
    if int(offsets[-1]) != num_values:
        raise ValueError(f"{name}: the last is {int(offsets[-1])}, expected {num_values} values")


def max_length(offsets: Tensor) -> int:
    """Length of the longest row, 0 without rows."""
    lengths = offsets[1:] - offsets[:-1]
    return int(lengths.max()) if len(lengths) else 0


def _places(offsets: Tensor, length: int) -> Tensor:
    """Where each element of the jagged values lies in the padded rows laid end to end, (L,)."""
    lengths = offsets[1:] - offsets[:-1]
    shift = torch.arange(len(lengths), device=offsets.device) * length - offsets[:-1]
    total = int(offsets[-1])
    return torch.arange(total, device=offsets.device) + torch.repeat_interleave(shift, lengths)


def pad(values_LD: Tensor, offsets: Tensor, length: int) -> Tensor:
    """Give rows padded with zeros to `length` elements, (B, length, D)."""
    num_rows, width = len(offsets) - 1, values_LD.shape[1]
    flat = values_LD.new_zeros(num_rows * length, width)
    return flat.index_copy(0, _places(offsets, length), values_LD).view(num_rows, length, width)


def unpad(padded_BTD: Tensor, offsets: Tensor) -> Tensor:
    """Give the elements inside the rows end to end, (L, D)."""
    return padded_BTD.flatten(0, 1).index_select(0, _places(offsets, padded_BTD.shape[1]))


def padding_mask(offsets: Tensor, length: int) -> Tensor:
    """Give (B, length) booleans, true for elements inside their row."""
    lengths = (offsets[1:] - offsets[:-1]).unsqueeze(1)
    return torch.arange(length, device=offsets.device).unsqueeze(0) < lengths
