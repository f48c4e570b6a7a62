import hashlib

import numpy as np
import pyarrow as pa
import pytest

from features.errors import DataError
from features.ids import to_key, to_keys

BIG = 1234567890123456789


def test_an_int64_id_is_its_own_key_to_the_last_digit() -> None:
    assert to_key(BIG, "int64") == BIG
    assert to_key(str(BIG + 1), "int64") == BIG + 1
    assert to_keys([BIG, BIG + 1], "int64").tolist() == [BIG, BIG + 1]


def test_a_string_id_has_the_key_of_its_bytes_whatever_else_is_in_the_column() -> None:
    digest = hashlib.blake2b(b"caf\xc3\xa9", digest_size=8).digest()
    expected = int.from_bytes(digest, "little", signed=True)

    keys = to_keys(pa.chunked_array([["x", "café"], ["café"]]), "string")

    assert to_key("café", "string") == expected
    assert keys.tolist() == [to_key("x", "string"), expected, expected]


def test_the_key_of_a_string_id_never_changes() -> None:
    assert to_key("item-1", "string") == 8406168460641299428


def test_007_and_7_and_7_point_0_are_three_string_ids() -> None:
    assert len(set(to_keys(["007", "7", "7.0"], "string").tolist())) == 3


@pytest.mark.parametrize(
    "text", ["1_000", " 7", "7.0", "+7", "0x10", "\u0667", "", "7\n", "9" * 5000]
)
def test_text_that_is_not_a_plain_decimal_is_no_int64_id(text: str) -> None:
    with pytest.raises(DataError, match="expected an int64"):
        to_key(text, "int64")


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, str(2**63)])
def test_a_number_beyond_64_bits_is_refused_not_wrapped(value: int | str) -> None:
    assert to_key(2**63 - 1, "int64") == 2**63 - 1
    with pytest.raises(DataError, match="does not fit"):
        to_key(value, "int64")


@pytest.mark.parametrize(("value", "dtype"), [(True, "int64"), (7.0, "int64"), (7, "string")])
def test_a_value_of_another_type_is_no_id(value: object, dtype: str) -> None:
    with pytest.raises(DataError, match="id: expected"):
        to_key(value, dtype)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["", "\ud800"])
def test_an_empty_or_broken_string_is_no_id(value: str) -> None:
    with pytest.raises(DataError, match="id: expected"):
        to_key(value, "string")


def test_missing_ids_stop_with_their_count_and_rows() -> None:
    with pytest.raises(DataError, match=r"people: 2 ids are missing; first rows \[1, 3\]"):
        to_keys(pa.array([1, None, 2, None]), "int64", where="people")
    with pytest.raises(DataError, match=r"people: 1 ids are missing; first rows \[1\]"):
        to_keys(["a", ""], "string", where="people")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([1.5], "int64"), (["a"], "int64"), ([1], "string"), ([1, "a"], "int64"), ([2**64], "int64")],
)
def test_a_column_of_another_type_is_refused_by_name(values: list[object], dtype: str) -> None:
    with pytest.raises(DataError, match="items"):
        to_keys(values, dtype, where="items")  # type: ignore[arg-type]


def test_unsigned_ids_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match="items"):
        to_keys(pa.array([2**63], pa.uint64()), "int64", where="items")


def test_a_dictionary_column_has_the_keys_of_its_values() -> None:
    column = pa.array(["b", "a", "b"])

    keys = to_keys(column.dictionary_encode(), "string")

    np.testing.assert_array_equal(keys, to_keys(column, "string"))
    assert keys[0] == to_key("b", "string")


def test_an_empty_column_has_no_keys() -> None:
    assert to_keys(pa.array([], pa.null()), "int64").tolist() == []
    assert to_keys(pa.array([], pa.string()), "string").dtype == np.int64
