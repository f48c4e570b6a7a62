"""Rules for sets of vectors: how memories merge, and what a mean of vectors is.

A memory is a set of entries named by (event time, key) and cut to the newest. Merging is a union,
so the outcome depends neither on the order of events nor on how they were batched, and a replay
changes nothing. That holds to the last bit because vectors are compared after quantising
(`snap`): a vector read back from the store equals the one that was written.

Errors: CodecError, for blobs that do not belong together.
"""

from __future__ import annotations

import numpy as np

from features.arrays import FloatArray, IntArray
from features.errors import CodecError
from features.packed import BlobKind, VectorBlob, VectorDtype, dequantise, quantise


def snap(z: FloatArray, dtype: VectorDtype) -> FloatArray:
    """Give vectors as they come back from the store.

    Shapes:
        z, returns: (n, d), float32.
    """
    # Adding zero turns a negative zero, which fp16 keeps, into the other one.
    return dequantise(quantise(z, dtype), dtype, dim=z.shape[1]) + np.float32(0)


def merge_memory(old: VectorBlob | None, new: VectorBlob, *, max_entries: int) -> VectorBlob:
    """Give the newest entries of two memories; commutative, associative and idempotent.

    Entries are named by (at_ms, key). Newest first, equal times by ascending key. If both hold an
    entry with different vectors, the vector that is larger, comparing value by value, stays.

    Raises:
        CodecError: owner, space, kind or dim differ.
    """
    blobs = [new] if old is None else [old, new]
    for name in ("kind", "space_id", "owner"):
        if len({getattr(blob, name) for blob in blobs}) > 1:
            raise CodecError(
                f"merge of memories, {name}: expected {getattr(blobs[0], name)}, "
                f"got {getattr(new, name)}"
            )
    if len({blob.z.shape[1] for blob in blobs}) > 1:
        raise CodecError(
            f"merge of memories of owner {new.owner}, dim: expected {blobs[0].z.shape[1]}, "
            f"got {new.z.shape[1]}"
        )
    at_ms = np.concatenate([blob.at_ms for blob in blobs])
    keys = np.concatenate([blob.keys for blob in blobs])
    z = np.concatenate([blob.z for blob in blobs])
    order = newest_first(at_ms, keys, z)[:max_entries]
    return VectorBlob(
        kind=new.kind,
        space_id=new.space_id,
        owner=new.owner,
        at_ms=at_ms[order],
        keys=keys[order],
        z=z[order],
    )


def newest_first(at_ms: IntArray, keys: IntArray, z: FloatArray) -> IntArray:
    """Give the order of entries newest first, equal times by key, each (time, key) once."""
    order = np.lexsort((keys, -at_ms))
    is_repeat = _repeats(at_ms[order], keys[order])
    if not is_repeat.any():
        return order
    # Only here, because it costs a key for each of d values: the largest vector comes first.
    order = np.lexsort((*(-z.T[::-1]), keys, -at_ms))
    return order[~_repeats(at_ms[order], keys[order])]


def mean_vector(blob: VectorBlob, *, hard_ttl_ms: int) -> VectorBlob:
    """Give the aggregate of a blob's vectors that are not older than its newest by the TTL.

    Shapes:
        blob: entries newest first, at least one.
        returns: one entry; its key is the number of vectors in the mean, its time the newest.
    """
    num_alive = int(np.count_nonzero(blob.at_ms >= blob.at_ms[0] - hard_ttl_ms))
    mean = blob.z[:num_alive].mean(axis=0, dtype=np.float64, keepdims=True)
    return VectorBlob(
        kind=BlobKind.AGGREGATE,
        space_id=blob.space_id,
        owner=blob.owner,
        at_ms=blob.at_ms[:1],
        keys=np.array([num_alive], dtype=np.int64),
        z=mean.astype(np.float32),
    )


def _repeats(at_ms: IntArray, keys: IntArray) -> IntArray:
    is_same = (at_ms[1:] == at_ms[:-1]) & (keys[1:] == keys[:-1])
    return np.concatenate([[False], is_same]) if len(at_ms) else is_same
