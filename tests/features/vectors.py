"""Vectors for tests: small, of one space, different for every seed."""

import numpy as np

from features.arrays import FloatArray
from features.packed import BlobKind, VectorBlob, VectorDtype, pack_blob

SPACE = "00112233445566ff"


def draw_z(n: int, dim: int, *, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).uniform(-1, 1, (n, dim)).astype(np.float32)


def memory_blob(at_ms: list[int], *, owner: int = 5, dim: int = 4, seed: int = 0) -> VectorBlob:
    at = np.array(sorted(at_ms, reverse=True), dtype=np.int64)
    return VectorBlob(
        kind=BlobKind.MEMORY,
        space_id=SPACE,
        owner=owner,
        at_ms=at,
        keys=at * 10,
        z=draw_z(len(at), dim, seed=seed),
    )


def pair_bytes(at_ms: int, *, item: int = 7, seed: int = 0, dtype: VectorDtype = "int4") -> bytes:
    blob = VectorBlob(
        kind=BlobKind.PAIR,
        space_id=SPACE,
        owner=5,
        at_ms=np.array([at_ms]),
        keys=np.array([item]),
        z=draw_z(1, 4, seed=seed),
    )
    return pack_blob(blob, dtype)
