"""The definition of window attention and of ROTE.

Legend: B rows, L events end to end, T events of the longest row, H heads, K head width, W half
window, N blocks of a row.
"""

import torch
from torch import Tensor
from torch.nn import functional

from kernels.jagged import check_offsets, max_length, pad, padding_mask, unpad

_DAY_MS = 86_400_000.0


def rote_angles(offsets: Tensor, ages_ms: Tensor, theta_K2: Tensor, phi_K2: Tensor) -> Tensor:
    """Give the rotation angle of every event: place times theta plus log-age times phi.

    Shapes:
        offsets: (B + 1,), integer.
        ages_ms: (L,), floating; event to request, milliseconds, >= 0.
        theta_K2, phi_K2: (K / 2,), floating; frequencies of place and of time.
        returns: (L, K / 2).

    Source: ROTE of arXiv 2602.10016 as reconstructed: tau = log(1 + age / 1 day). Differs: the
        paper's exact combination of the two spectra is not public; they are added here.
    """
    starts_L = torch.repeat_interleave(offsets[:-1], offsets[1:] - offsets[:-1])
    place_L = torch.arange(len(ages_ms), device=offsets.device) - starts_L
    tau_L = torch.log1p(ages_ms / _DAY_MS)
    return place_L.to(theta_K2.dtype)[:, None] * theta_K2 + tau_L[:, None] * phi_K2


def rotate(x_LHK: Tensor, angles_LK2: Tensor) -> Tensor:
    """Rotate consecutive pairs of the last axis by their angles, (L, H, K)."""
    cos, sin = angles_LK2.cos()[:, None], angles_LK2.sin()[:, None]
    even, odd = x_LHK[..., 0::2], x_LHK[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def window_attention(
    q_LHK: Tensor, k_LHK: Tensor, v_LHK: Tensor, offsets: Tensor, *, half_window: int
) -> Tensor:
    """Softmax attention in which event i sees events i - W to i + W of its own row.

    Shapes:
        q_LHK, k_LHK, v_LHK: (L, H, K), floating, read only.
        offsets: (B + 1,), integer; first 0, last L, non-decreasing.
        returns: (L, H, K).

    Raises:
        ValueError: shapes differ, the window is below 1, or the offsets do not fit.

    Source: arXiv 2602.10016, section on sliding windows; scaled by 1 / sqrt(K).
    Cost: O(L * W * H * K): queries in blocks of W, each against its own and both next blocks.
    """
    if not q_LHK.shape == k_LHK.shape == v_LHK.shape or q_LHK.dim() != 3:
        shapes = [tuple(x.shape) for x in (q_LHK, k_LHK, v_LHK)]
        raise ValueError(f"window_attention: expected three (L, H, K), got {shapes}")
    if half_window < 1:
        raise ValueError(f"window_attention: half_window {half_window}, expected 1 or more")
    check_offsets(offsets, len(q_LHK), name="window_attention offsets")
    if not len(q_LHK):
        return q_LHK.clone()
    L, H, K = q_LHK.shape
    num_blocks = -(-max_length(offsets) // half_window)
    length = num_blocks * half_window
    mask_BN1TS = _window_mask(padding_mask(offsets, length), half_window)
    q, k, v = (
        pad(x.reshape(L, H * K), offsets, length).unflatten(-1, (H, K))
        for x in (q_LHK, k_LHK, v_LHK)
    )
    q_MHTK = q.unflatten(1, (num_blocks, half_window)).flatten(0, 1).transpose(1, 2)
    k_MHSK, v_MHSK = (_with_neighbours(x, half_window) for x in (k, v))
    mixed = functional.scaled_dot_product_attention(
        q_MHTK, k_MHSK, v_MHSK, attn_mask=mask_BN1TS.flatten(0, 1)
    )
    mixed_BTD = mixed.transpose(1, 2).flatten(2).unflatten(0, (-1, num_blocks)).flatten(1, 2)
    return unpad(mixed_BTD, offsets).reshape(L, H, K)


def _with_neighbours(x_BTHK: Tensor, half_window: int) -> Tensor:
    """Give each block of W elements with the block before and after it, (B * N, H, 3 W, K)."""
    H = x_BTHK.shape[2]
    padded = functional.pad(x_BTHK.flatten(2), (0, 0, half_window, half_window))
    blocks = padded.unfold(1, 3 * half_window, half_window).transpose(2, 3)
    by_head: Tensor = blocks.flatten(0, 1).unflatten(-1, (H, -1)).transpose(1, 2)
    return by_head


def _window_mask(inside_BT: Tensor, half_window: int) -> Tensor:
    """Give which of its 3 W keys each query may see, (B, N, 1, W, 3 W)."""
    W = half_window
    query = torch.arange(W, device=inside_BT.device)[:, None] + W
    key = torch.arange(3 * W, device=inside_BT.device)[None, :]
    near_TS = (query - key).abs() <= W
    keys = functional.pad(inside_BT, (W, W)).unfold(1, 3 * W, W)
    # A padded query sees itself, so that its softmax is defined; its row is dropped afterwards.
    return (near_TS & keys[:, :, None, :] | (query == key))[:, :, None]
