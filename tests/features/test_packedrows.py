"""Many one-vector blobs at a time say the same as one at a time."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import CodecError
from features.memory import snap
from features.packed import BlobKind, MissingReason, VectorBlob, VectorDtype, pack_blob, unpack_blob
from features.packedrows import RowFormat, pack_rows, unpack_rows
from tests.features.vectors import SPACE, draw_z, memory_blob

FORM = RowFormat(kind=BlobKind.PAIR, space_id=SPACE, dim=5, dtype="int4")
OWNERS, AT_MS, KEYS = np.array([3, -4, 3]), np.array([30, 10, 20]), np.array([7, 8, 2**62])


@pytest.mark.parametrize("dtype", ["int4", "int8", "fp16"])
def test_rows_are_packed_to_the_bytes_of_the_definition(dtype: VectorDtype) -> None:
    form, z = replace(FORM, dtype=dtype), draw_z(3, 5)

    packed = pack_rows(form, owners=OWNERS, at_ms=AT_MS, keys=KEYS, z=z)

    assert packed == [
        pack_blob(
            VectorBlob(
                kind=BlobKind.PAIR,
                space_id=SPACE,
                owner=int(OWNERS[i]),
                at_ms=AT_MS[i : i + 1],
                keys=KEYS[i : i + 1],
                z=z[i : i + 1],
            ),
            dtype,
        )
        for i in range(3)
    ]


@pytest.mark.parametrize("dtype", ["int4", "int8", "fp16"])
def test_rows_come_back_with_gaps_where_nothing_is_stored(dtype: VectorDtype) -> None:
    form, z = replace(FORM, dtype=dtype), snap(draw_z(3, 5), dtype)
    a, b, c = pack_rows(form, owners=OWNERS, at_ms=AT_MS, keys=KEYS, z=z)

    found = unpack_rows([a, None, b, c], form, owners=np.array([3, 3, -4, 3]))

    assert found.reasons == [None, MissingReason.ABSENT, None, None]
    assert found.is_present.tolist() == [True, False, True, True]
    assert found.at_ms.tolist() == [30, -1, 10, 20]
    assert found.keys.tolist() == [7, 0, 8, 2**62]
    np.testing.assert_array_equal(found.z, np.insert(z, 1, 0, axis=0))


def test_no_rows_are_no_rows() -> None:
    none = np.zeros(0, dtype=np.int64)

    assert pack_rows(FORM, owners=none, at_ms=none, keys=none, z=draw_z(0, 5)) == []
    assert unpack_rows([], FORM, owners=none).z.shape == (0, 5)
    assert unpack_rows([None], FORM, owners=np.array([1])).reasons == [MissingReason.ABSENT]


@pytest.mark.parametrize("value_at", range(2))
def test_every_flipped_bit_and_every_length_is_missing_and_touches_no_other_row(
    value_at: int,
) -> None:
    good = pack_rows(FORM, owners=OWNERS, at_ms=AT_MS, keys=KEYS, z=draw_z(3, 5))
    for bit in range(8 * len(good[0])):
        flipped = bytearray(good[value_at])
        flipped[bit // 8] ^= 1 << bit % 8
        values = [*good[:value_at], bytes(flipped), *good[value_at + 1 :]]
        present = unpack_rows(values, FORM, owners=OWNERS).is_present
        assert present.tolist() == [i != value_at for i in range(3)], f"bit {bit}"
    for length in range(len(good[0])):
        found = unpack_rows([good[0][:length]], FORM, owners=OWNERS[:1])
        assert found.reasons == [MissingReason.TRUNCATED]


@given(st.data())
def test_rows_and_blobs_agree_on_what_is_missing_and_why(data: st.DataObject) -> None:
    stored = RowFormat(
        kind=data.draw(st.sampled_from([BlobKind.PAIR, BlobKind.AGGREGATE])),
        space_id=data.draw(st.sampled_from([SPACE, "f" * 16])),
        dim=data.draw(st.sampled_from([5, 6])),
        dtype=data.draw(st.sampled_from(["int4", "int8"])),
    )
    owner = np.array([data.draw(st.sampled_from([3, 4]))])
    packed = pack_rows(
        stored, owners=owner, at_ms=AT_MS[:1], keys=KEYS[:1], z=draw_z(1, stored.dim)
    )[0]

    found = unpack_rows([packed], FORM, owners=OWNERS[:1]).reasons[0]

    alone = unpack_blob(packed, kind=FORM.kind, space_id=SPACE, owner=3, dim=5, dtype="int4")
    assert found == getattr(alone, "reason", None)


def test_a_memory_read_as_a_pair_is_missing() -> None:
    data = pack_blob(memory_blob([20, 10], owner=3, dim=5), "int4")

    assert unpack_rows([data], FORM, owners=OWNERS[:1]).reasons == [MissingReason.KIND]


def test_rows_that_cannot_be_packed_are_refused() -> None:
    z = draw_z(3, 5)
    z[2, 1] = np.inf
    with pytest.raises(CodecError, match="vector 2 of 3"):
        pack_rows(FORM, owners=OWNERS, at_ms=AT_MS, keys=KEYS, z=z)
    with pytest.raises(CodecError, match=r"expected z \(3, 5\), got \(3, 4\)"):
        pack_rows(FORM, owners=OWNERS, at_ms=AT_MS, keys=KEYS, z=draw_z(3, 4))
