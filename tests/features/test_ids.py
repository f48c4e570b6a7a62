"""Ids stay exact and have the same key everywhere."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import DataError
from features.ids import to_key, to_keys

BIG = 1_234_567_890_123_456_789


def test_big_neighbours_stay_apart() -> None:
    keys = to_keys(pa.array([BIG, BIG + 1]), "int64")
    assert keys.tolist() == [BIG, BIG + 1]


def test_text_ids_that_look_like_one_number_are_three_ids() -> None:
    assert len(set(to_keys(["007", "7", "7.0"], "string").tolist())) == 3


@given(st.lists(st.text(min_size=1), min_size=1, max_size=20))
def test_a_column_of_text_ids_has_the_keys_of_its_ids(ids: list[str]) -> None:
    assert to_keys(pa.array(ids, pa.string()), "string").tolist() == [
        to_key(value, "string") for value in ids
    ]


def test_the_key_of_a_text_id_never_changes() -> None:
    assert to_key("item-1", "string") == 8406168460641299428


def test_a_decimal_text_is_an_int64_id() -> None:
    assert to_key(str(BIG), "int64") == BIG


@pytest.mark.parametrize("value", ["", "x", "1.5", True, 1.0, None, 2**63, "9" * 30])
def test_what_is_no_int64_id_is_refused(value: object) -> None:
    with pytest.raises(DataError, match="id: expected"):
        to_key(value, "int64")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["", 5, None])
def test_what_is_no_text_id_is_refused(value: object) -> None:
    with pytest.raises(DataError, match="non-empty string"):
        to_key(value, "string")  # type: ignore[arg-type]


def test_missing_ids_are_refused_with_their_rows() -> None:
    with pytest.raises(DataError, match=r"x: 1 ids are missing; first rows \[1\]"):
        to_keys(pa.array([1, None, 3]), "int64", where="x")


def test_a_column_of_floats_is_no_column_of_ids() -> None:
    with pytest.raises(DataError, match="double"):
        to_keys(pa.array([1.0, 2.0]), "int64")
    assert np.issubdtype(to_keys(pa.array([1], pa.int32()), "int64").dtype, np.int64)
