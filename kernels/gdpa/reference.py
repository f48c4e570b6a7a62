"""The definition of GDPA.

Legend: B rows, L events end to end, S keys of a row, H heads, K head width.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from kernels.jagged import check_offsets, max_length, pad, unpad

Activation = Literal["identity", "relu", "silu", "gelu"]

# Every activation maps 0 to 0, so padded scores need no mask.
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "identity": lambda scores: scores,
    "relu": functional.relu,
    "silu": functional.silu,
    "gelu": lambda scores: functional.gelu(scores, approximate="tanh"),
}


def gdpa(
    q_LHK: Tensor,
    k_BSHK: Tensor,
    v_BSHK: Tensor,
    offsets: Tensor,
    *,
    scale_in: float = 1.0,
    scale_out: float = 1.0,
    activation: Activation = "gelu",
) -> Tensor:
    """Mix each event with the keys and values of its row, without a softmax.

    Computes `scale_out * act(scale_in * q k^T) v` per head: with K and V generated from other
    features this is a two-layer feed-forward network whose weights differ by row.

    Shapes:
        q_LHK: (L, H, K), floating; events of all rows end to end; read only.
        k_BSHK, v_BSHK: (B, S, H, K), same dtype; S keys of each row.
        offsets: (B + 1,), integer; first 0, last L, non-decreasing. Rows with 2, 0 and 3 events:
            [0, 2, 2, 5].
        returns: (L, H, K), dtype of q_LHK.

    Raises:
        ValueError: ranks, widths, rows or dtypes differ, or the offsets do not fit.

    Source: arXiv 2602.10016, Figure 1. Differs: the scale inside the activation is an argument
        (the paper divides by the longest sequence), and there is one outside it too.
    Cost: O(L * S * H * K).
    """
    _check(q_LHK, k_BSHK, v_BSHK, offsets)
    if not len(q_LHK):
        return q_LHK.clone()
    L, H, K = q_LHK.shape
    length = max_length(offsets)
    q_BTHK = pad(q_LHK.reshape(L, H * K), offsets, length).unflatten(-1, (H, K))
    q_BHTK, k_BHSK, v_BHSK = (x.transpose(1, 2) for x in (q_BTHK, k_BSHK, v_BSHK))
    scores_BHTS = ACTIVATIONS[activation](scale_in * torch.matmul(q_BHTK, k_BHSK.mT))
    mixed_BHTK = scale_out * torch.matmul(scores_BHTS, v_BHSK)
    return unpad(mixed_BHTK.transpose(1, 2).flatten(2), offsets).reshape(L, H, K)


def _check(q_LHK: Tensor, k_BSHK: Tensor, v_BSHK: Tensor, offsets: Tensor) -> None:
    if q_LHK.dim() != 3 or k_BSHK.dim() != 4 or k_BSHK.shape != v_BSHK.shape:
        raise ValueError(
            "gdpa: expected q (L, H, K) and k, v (B, S, H, K), got "
            f"{tuple(q_LHK.shape)}, {tuple(k_BSHK.shape)}, {tuple(v_BSHK.shape)}"
        )
    if k_BSHK.shape[2:] != q_LHK.shape[1:]:
        raise ValueError(
            f"gdpa: heads and width of q {tuple(q_LHK.shape[1:])} and k {tuple(k_BSHK.shape[2:])}"
        )
    if not q_LHK.dtype == k_BSHK.dtype == v_BSHK.dtype:
        raise ValueError(f"gdpa: dtypes {q_LHK.dtype}, {k_BSHK.dtype}, {v_BSHK.dtype} differ")
    check_offsets(offsets, len(q_LHK), name="gdpa offsets")
    if len(offsets) != len(k_BSHK) + 1:
        raise ValueError(f"gdpa: {len(offsets) - 1} rows of queries, {len(k_BSHK)} rows of keys")
