"""Packed vectors: exact bytes, exact round trips, and no guess on anything else."""

import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import CodecError
from features.memory import snap
from features.packed import (
    HEADER_BYTES,
    NEWEST_AT_OFFSET,
    BlobKind,
    Missing,
    MissingReason,
    VectorBlob,
    VectorDtype,
    blob_bytes,
    dequantise,
    newest_at,
    pack_blob,
    quantise,
    unpack_blob,
)
from tests.features.vectors import SPACE, draw_z, memory_blob

DTYPES: tuple[VectorDtype, ...] = ("int4", "int8", "fp16")
OTHER_SPACE = "00112233445566fe"
I64 = st.integers(-(2**63), 2**63 - 1)


def unpack(data: bytes | None, blob: VectorBlob, dtype: VectorDtype) -> VectorBlob | Missing:
    return unpack_blob(
        data,
        kind=blob.kind,
        space_id=blob.space_id,
        owner=blob.owner,
        dim=blob.z.shape[1],
        dtype=dtype,
    )


def reason(found: VectorBlob | Missing) -> MissingReason | None:
    return found.reason if isinstance(found, Missing) else None


def assert_same(found: VectorBlob | Missing, blob: VectorBlob) -> None:
    assert isinstance(found, VectorBlob)
    assert (found.kind, found.space_id, found.owner) == (blob.kind, blob.space_id, blob.owner)
    np.testing.assert_array_equal(found.at_ms, blob.at_ms)
    np.testing.assert_array_equal(found.keys, blob.keys)
    np.testing.assert_array_equal(found.z, blob.z)


def seal(data: bytes) -> bytes:
    """Give the bytes with a checksum that fits them."""
    crc = zlib.crc32(data[16:], zlib.crc32(data[:12]))
    return data[:12] + struct.pack("<I", crc) + data[16:]


@st.composite
def blobs(draw: st.DrawFn) -> tuple[VectorBlob, VectorDtype]:
    kind = draw(st.sampled_from(BlobKind))
    n = draw(st.integers(1, 6)) if kind is BlobKind.MEMORY else 1
    dim, dtype = draw(st.integers(1, 9)), draw(st.sampled_from(DTYPES))
    values = draw(st.lists(st.floats(-1, 1, width=32), min_size=n * dim, max_size=n * dim))
    blob = VectorBlob(
        kind=kind,
        space_id=draw(st.binary(min_size=8, max_size=8)).hex(),
        owner=draw(I64),
        at_ms=np.array(sorted(draw(st.lists(I64, min_size=n, max_size=n)), reverse=True)),
        keys=np.array(draw(st.lists(I64, min_size=n, max_size=n))),
        z=snap(np.array(values, dtype=np.float32).reshape(n, dim), dtype),
    )
    return blob, dtype


def test_int4_bytes_are_the_documented_ones() -> None:
    z = np.array([[-1.0, 0.875, 0.0, 1.0, 0.0625, 0.1875, -0.99]], dtype=np.float32)

    packed = quantise(z, "int4")

    # Levels -8, 7, 0, 7 (clamped), 0 and 2 (halves go to even), -8, each plus 8, low nibble first.
    assert packed.tolist() == [[0xF0, 0xF8, 0xA8, 0x00]]
    assert dequantise(packed, "int4", dim=7).tolist() == [[-1, 0.875, 0, 0.875, 0, 0.25, -1]]


def test_int8_and_fp16_bytes_are_the_documented_ones() -> None:
    z = np.array([[-1.0, 1.0, 0.5, 0.0]], dtype=np.float32)

    assert quantise(z, "int8").tolist() == [[0x81, 0x7F, 0x40, 0x00]]
    assert quantise(z, "fp16").tobytes() == struct.pack("<4e", -1, 1, 0.5, 0)


def test_a_blob_is_laid_out_as_documented() -> None:
    blob = VectorBlob(
        kind=BlobKind.MEMORY,
        space_id=SPACE,
        owner=-2,
        at_ms=np.array([1_700_000_000_123, 5]),
        keys=np.array([9, -1]),
        z=np.array([[0.5, -0.5], [0.25, 0.0]], dtype=np.float32),
    )

    body = struct.pack("<qqqq4B", 1_700_000_000_123, 5, 9, -1, 64, 192, 32, 0)
    head = struct.pack("<4s4B2HI", b"GEMV", 1, 1, 2, 0, 2, 2, 0)
    head += struct.pack("<qq", 1_700_000_000_123, -2) + bytes.fromhex(SPACE)
    assert pack_blob(blob, "int8") == seal(head + body)
    assert len(head) == HEADER_BYTES
    assert len(head + body) == blob_bytes(2, "int8", 2)


@given(blobs())
def test_a_valid_blob_comes_back_exactly_and_tells_its_newest_time(
    drawn: tuple[VectorBlob, VectorDtype],
) -> None:
    blob, dtype = drawn
    data = pack_blob(blob, dtype)

    assert_same(unpack(data, blob, dtype), blob)
    assert newest_at(data) == blob.at_ms[0]
    assert struct.unpack_from("<q", data, NEWEST_AT_OFFSET) == (blob.at_ms[0],)


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_come_back_within_half_a_level_and_stay_there(dtype: VectorDtype) -> None:
    z = draw_z(200, 16)
    half_level = {"int4": 1 / 16, "int8": 1 / 254, "fp16": 2**-12}[dtype]

    once = snap(z, dtype)

    # The top level of int4 is 7/8.
    expected = np.minimum(z, 0.875) if dtype == "int4" else z
    assert np.abs(once - expected).max() <= half_level * 1.001
    np.testing.assert_array_equal(snap(once, dtype), once)
    assert np.abs(once).max() > 0.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_layout_of_an_array_in_memory_does_not_matter(dtype: VectorDtype) -> None:
    z = draw_z(6, 4)
    by_column = np.asfortranarray(z)
    strided = np.repeat(z, 2, axis=1)[:, ::2]

    assert quantise(by_column, dtype).tobytes() == quantise(z, dtype).tobytes()
    assert quantise(strided, dtype).tobytes() == quantise(z, dtype).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_truncated_blob_is_missing_at_every_length(dtype: VectorDtype) -> None:
    blob = memory_blob([10, 20, 30])
    data = pack_blob(blob, dtype)

    for length in range(len(data)):
        assert reason(unpack(data[:length], blob, dtype)) is MissingReason.TRUNCATED
    assert reason(unpack(data + b"\0", blob, dtype)) is MissingReason.CHECKSUM
    assert reason(unpack(seal(data + b"\0"), blob, dtype)) is MissingReason.LAYOUT


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_flipped_bit_makes_a_blob_missing(dtype: VectorDtype) -> None:
    blob = memory_blob([10, 20, 30])
    data = pack_blob(blob, dtype)

    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert isinstance(unpack(bytes(flipped), blob, dtype), Missing), f"bit {bit}"


@settings(max_examples=300)
@given(st.binary(max_size=120), st.booleans())
def test_bytes_from_anywhere_are_missing_and_never_an_exception(
    data: bytes, has_head: bool
) -> None:
    head = pack_blob(memory_blob([10]), "int4")[:8] if has_head else b""

    assert isinstance(unpack(head + data, memory_blob([10]), "int4"), Missing)


def test_vectors_in_other_formats_are_missing() -> None:
    z = np.array([1.0, -2.5, 0.15625])
    blob = memory_blob([10], dim=3)
    formats = {"float32": "<f4", "float64": "<f8", "big-endian": ">f4", "big-endian 64": ">f8"}

    for name, code in formats.items():
        assert reason(unpack(z.astype(code).tobytes(), blob, "fp16")) is MissingReason.BAD_MAGIC, (
            name
        )


def test_a_blob_with_a_big_endian_header_is_missing() -> None:
    blob = memory_blob([10], dim=3)
    little = pack_blob(blob, "fp16")
    swapped = little[:8] + b"".join(
        little[start : start + size][::-1]
        for start, size in [(8, 2), (10, 2), (12, 4), (16, 8), (24, 8), (32, 8), (40, 8), (48, 8)]
    )
    swapped += little[56:]

    assert isinstance(unpack(swapped, blob, "fp16"), Missing)
    assert isinstance(unpack(seal(swapped), blob, "fp16"), Missing)


@pytest.mark.parametrize(
    ("change", "dtype", "why"),
    [
        ({"space_id": OTHER_SPACE}, "int8", MissingReason.SPACE),
        ({"owner": 6}, "int8", MissingReason.OWNER),
        ({"kind": BlobKind.PAIR}, "int8", MissingReason.KIND),
        ({"z": draw_z(1, 3)}, "int8", MissingReason.DIM),
        ({"z": draw_z(1, 5)}, "int8", MissingReason.DIM),
        ({}, "int4", MissingReason.DTYPE),
        ({}, "fp16", MissingReason.DTYPE),
    ],
)
def test_a_sound_blob_of_something_else_is_missing_for_that_reason(
    change: dict[str, object], dtype: VectorDtype, why: MissingReason
) -> None:
    expected = memory_blob([10])
    stored = pack_blob(replace(expected, **change), dtype)  # type: ignore[arg-type]

    assert reason(unpack(stored, expected, "int8")) is why


@pytest.mark.parametrize(
    ("offset", "value", "why"),
    [
        (4, b"\x02", MissingReason.LAYOUT),
        (6, b"\x09", MissingReason.DTYPE),
        (7, b"\x01", MissingReason.LAYOUT),
        (16, struct.pack("<q", 31), MissingReason.CONTENT),
        (40, struct.pack("<q", 19), MissingReason.CONTENT),
        (72, struct.pack("<e", float("nan")), MissingReason.CONTENT),
        (72, struct.pack("<e", float("inf")), MissingReason.CONTENT),
        (72, struct.pack("<e", 1.5), MissingReason.CONTENT),
    ],
)
def test_sealed_bytes_that_no_writer_writes_are_missing(
    offset: int, value: bytes, why: MissingReason
) -> None:
    blob = memory_blob([20, 30])
    data = bytearray(pack_blob(blob, "fp16"))
    data[offset : offset + len(value)] = value

    assert reason(unpack(seal(bytes(data)), blob, "fp16")) is why


def test_a_pair_of_two_vectors_is_missing() -> None:
    data = bytearray(pack_blob(memory_blob([20, 30]), "fp16"))
    data[5] = BlobKind.PAIR

    found = unpack(seal(bytes(data)), replace(memory_blob([20]), kind=BlobKind.PAIR), "fp16")
    assert reason(found) is MissingReason.CONTENT


def test_nothing_stored_is_absent() -> None:
    assert reason(unpack(None, memory_blob([10]), "int4")) is MissingReason.ABSENT
    assert reason(unpack(b"", memory_blob([10]), "int4")) is MissingReason.TRUNCATED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"at_ms": np.array([10, 20])}, "newest first"),
        ({"keys": np.array([1])}, r"expected keys \(2,\)"),
        ({"kind": BlobKind.PAIR}, "expected 1 to 1 entries, got 2"),
        ({"space_id": "xyz"}, "16 lower-case hex digits, got 'xyz'"),
        ({"z": np.array([[0, 0], [0, np.nan]], dtype=np.float32)}, "vector 1 of 2"),
        ({"z": np.zeros((2, 0), dtype=np.float32)}, "dim of 1 to"),
    ],
)
def test_what_cannot_be_packed_is_refused_by_name(change: dict[str, object], message: str) -> None:
    with pytest.raises(CodecError, match=message):
        pack_blob(replace(memory_blob([20, 10]), **change), "int4")  # type: ignore[arg-type]


def test_an_empty_blob_and_an_unknown_dtype_are_refused() -> None:
    with pytest.raises(CodecError, match="expected 1 to 65535 entries, got 0"):
        pack_blob(memory_blob([]), "int4")
    with pytest.raises(CodecError, match="got 'int2'"):
        pack_blob(memory_blob([1]), "int2")  # type: ignore[arg-type]
    with pytest.raises(CodecError, match=r"expected \(n, 2\) bytes"):
        dequantise(np.zeros((1, 3), dtype=np.uint8), "int4", dim=4)
