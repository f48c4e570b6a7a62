"""The definition of seed attention and of the sum of Kronecker products.

Legend: B rows, L events end to end, S seeds, P pooled tokens, H heads, K head width, D width,
R Kronecker rank.
"""

import torch
from torch import Tensor
from torch.nn import functional

from kernels.jagged import check_offsets, max_length, pad, padding_mask

_HIDDEN = -1e9  # finite, so that a row without events pools its (zero) padding and not NaN


def seed_attention(q_SHK: Tensor, k_LHK: Tensor, v_LHK: Tensor, offsets: Tensor) -> Tensor:
    """Let the same learned queries attend to every row; a row without events gives zeros.

    Shapes:
        q_SHK: (S, H, K), floating; shared by all rows.
        k_LHK, v_LHK: (L, H, K), same dtype, read only.
        offsets: (B + 1,), integer; first 0, last L, non-decreasing.
        returns: (B, S, H, K).

    Raises:
        ValueError: shapes or heads differ, or the offsets do not fit.

    Source: arXiv 2602.10016, hierarchical seed pooling, step 2; scaled by 1 / sqrt(K).
    Cost: O(L * S * H * K).
    """
    if k_LHK.shape != v_LHK.shape or q_SHK.shape[1:] != k_LHK.shape[1:]:
        shapes = [tuple(x.shape) for x in (q_SHK, k_LHK, v_LHK)]
        raise ValueError(f"seed_attention: expected (S, H, K) and twice (L, H, K), got {shapes}")
    check_offsets(offsets, len(k_LHK), name="seed_attention offsets")
    L, H, K = k_LHK.shape
    B, length = len(offsets) - 1, max(1, max_length(offsets))
    k_BHTK, v_BHTK = (
        pad(x.reshape(L, H * K), offsets, length).unflatten(-1, (H, K)).transpose(1, 2)
        for x in (k_LHK, v_LHK)
    )
    bias = torch.where(padding_mask(offsets, length), 0.0, _HIDDEN).to(k_LHK.dtype)
    q_BHSK = q_SHK.transpose(0, 1).expand(B, -1, -1, -1)
    pooled_BHSK = functional.scaled_dot_product_attention(
        q_BHSK, k_BHTK, v_BHTK, attn_mask=bias[:, None, None, :]
    )
    return pooled_BHSK.transpose(1, 2)


def sum_kron_linear(x_BSD: Tensor, z_RSP: Tensor, w_RDD: Tensor) -> Tensor:
    """Compress S seeds to P tokens: the sum over R of z^T x w, (B, P, D).

    Shapes:
        x_BSD: (B, S, D). z_RSP: (R, S, P). w_RDD: (R, D, D).

    Source: arXiv 2602.10016, SumKronLinear: a full linear map restricted to a sum of R Kronecker
        products.
    Cost: O(B * R * (S * P * D + P * D * D)), z applied first.
    """
    mixed_BRPD = torch.einsum("rsp,bsd->brpd", z_RSP, x_BSD)
    return torch.einsum("brpd,rde->bpe", mixed_BRPD, w_RDD)
