"""Memories are sets: any order, any batches and any repeats give the same bytes."""

from dataclasses import replace
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import CodecError
from features.memory import mean_vector, merge_memory, snap
from features.packed import BlobKind, VectorBlob, pack_blob
from tests.features.vectors import SPACE, draw_z, memory_blob

Entry = tuple[int, int, tuple[float, float]]

# Few times and keys, so that equal times and repeats with other vectors are common.
entries = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(-1, 2),
        st.tuples(*[st.sampled_from([-1.0, -0.0, 0.0, 0.5])] * 2),
    ),
    min_size=1,
    max_size=12,
)


def memory_of(rows: list[Entry]) -> VectorBlob:
    """Give a blob of rows as they are, ordered by time only."""
    rows = sorted(rows, key=lambda row: -row[0])
    return VectorBlob(
        kind=BlobKind.MEMORY,
        space_id=SPACE,
        owner=1,
        at_ms=np.array([row[0] for row in rows], dtype=np.int64),
        keys=np.array([row[1] for row in rows], dtype=np.int64),
        z=snap(np.array([row[2] for row in rows], dtype=np.float32), "fp16"),
    )


def merge_all(batches: list[list[Entry]], max_entries: int) -> bytes:
    blobs = [memory_of(batch) for batch in batches if batch]
    first = merge_memory(None, blobs[0], max_entries=max_entries)
    merged = reduce(lambda a, b: merge_memory(a, b, max_entries=max_entries), blobs[1:], first)
    return pack_blob(merged, "fp16")


@given(entries, st.integers(1, 6), st.data())
def test_any_order_any_batches_and_any_repeats_give_the_same_bytes(
    rows: list[Entry], max_entries: int, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(rows))
    repeats = data.draw(st.lists(st.sampled_from(rows), max_size=5))
    stream = [*shuffled, *repeats]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    bounds = [0, *cuts, len(stream)]
    batches = [stream[a:b] for a, b in pairwise(bounds)]

    assert merge_all(batches, max_entries) == merge_all([rows], max_entries)


@given(entries, entries, entries, st.integers(1, 6))
def test_merging_is_commutative_associative_and_idempotent(
    x: list[Entry], y: list[Entry], z: list[Entry], max_entries: int
) -> None:
    def merge(*blobs: VectorBlob) -> VectorBlob:
        return reduce(lambda a, b: merge_memory(a, b, max_entries=max_entries), blobs)

    a, b, c = memory_of(x), memory_of(y), memory_of(z)
    ab = merge(a, b)

    assert pack_blob(ab, "fp16") == pack_blob(merge(b, a), "fp16")
    assert pack_blob(merge(ab, c), "fp16") == pack_blob(merge(a, merge(b, c)), "fp16")
    assert pack_blob(merge(ab, ab), "fp16") == pack_blob(ab, "fp16")


@given(entries, st.integers(1, 6))
def test_the_newest_entries_stay_newest_first_each_once(rows: list[Entry], most: int) -> None:
    merged = merge_memory(None, memory_of(rows), max_entries=most)

    names = sorted({(row[0], row[1]) for row in rows}, key=lambda name: (-name[0], name[1]))
    got = list(zip(merged.at_ms.tolist(), merged.keys.tolist(), strict=True))
    assert got == names[:most]
    vectors = {(row[0], row[1], tuple(v + 0 for v in row[2])) for row in rows}
    assert {(*n, tuple(v)) for n, v in zip(got, merged.z.tolist(), strict=True)} <= vectors


def test_a_negative_zero_is_a_zero() -> None:
    z = np.array([[-0.0, 0.0, -1e-9]], dtype=np.float32)

    for dtype in ("int4", "int8", "fp16"):
        assert not np.signbit(snap(z, dtype)).any()


def test_of_two_vectors_for_one_entry_the_larger_stays() -> None:
    low, high = memory_of([(5, 1, (0.5, -1.0))]), memory_of([(5, 1, (0.5, 0.0))])

    assert merge_memory(low, high, max_entries=3).z.tolist() == [[0.5, 0.0]]
    assert merge_memory(high, low, max_entries=3).z.tolist() == [[0.5, 0.0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"owner": 6}, "owner: expected 5, got 6"),
        ({"space_id": "f" * 16}, "space_id: expected 00112233445566ff, got f"),
        ({"kind": BlobKind.PAIR}, "kind"),
        ({"z": draw_z(1, 3)}, "dim: expected 4, got 3"),
    ],
)
def test_memories_that_do_not_belong_together_are_not_merged(
    change: dict[str, object], message: str
) -> None:
    other = replace(memory_blob([10]), **change)  # type: ignore[arg-type]
    with pytest.raises(CodecError, match=message):
        merge_memory(memory_blob([10]), other, max_entries=5)


def test_the_mean_counts_the_vectors_that_are_alive() -> None:
    rows: list[Entry] = [(100, 1, (1.0, 0.0)), (90, 2, (0.0, 0.5)), (39, 3, (-1.0, -1.0))]

    mean = mean_vector(memory_of(rows), hard_ttl_ms=60)

    assert (mean.kind, mean.owner, mean.at_ms.tolist()) == (BlobKind.AGGREGATE, 1, [100])
    assert (mean.keys.tolist(), mean.z.tolist()) == ([2], [[0.5, 0.25]])
    assert mean_vector(memory_of(rows), hard_ttl_ms=61).keys.tolist() == [3]
