"""Codes are fixed, frozen and the same after a save; numbers stay in their declared domain."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from features.encoding import FIRST, NULL, UNKNOWN, Encoder
from features.errors import DataError, SchemaError
from features.schema import FeatureSpec, Schema, parse_schema
from tests.features.tiny_log import SCHEMA


def schema(**changes: Any) -> Schema:
    document = yaml.safe_load(SCHEMA)
    document["vocabularies"][0].update(changes)
    return parse_schema(document, where="test")


def fitted(values: list[Any], **changes: Any) -> Encoder:
    return Encoder.fit(schema(**changes), {"item_id": [pa.chunked_array([values])]})


def test_null_rare_and_unseen_have_their_own_fixed_codes(tmp_path: Path) -> None:
    encoder = fitted(["a", "a", "a", "b", "b", "c", None, None], min_count=2)
    wanted = ["a", "b", None, "c", "zzz", "yyy", ""]
    codes = encoder.codes("item_id", wanted).tolist()
    assert codes == [FIRST, FIRST + 1, NULL, UNKNOWN, UNKNOWN, UNKNOWN, NULL]
    assert encoder.size("item_id") == FIRST + 2
    encoder.save(tmp_path / "encoder.json")
    again = Encoder.load(tmp_path / "encoder.json")
    assert again.codes("item_id", wanted).tolist() == codes
    assert again.encoder_id == encoder.encoder_id


def test_reserved_codes_do_not_depend_on_nulls_in_training() -> None:
    with_nulls, without = fitted(["a", None]), fitted(["a"])
    for encoder in (with_nulls, without):
        assert encoder.codes("item_id", ["a", None, "z"]).tolist() == [FIRST, NULL, UNKNOWN]


def test_integers_text_and_arrow_columns_give_the_same_codes() -> None:
    encoder = fitted([7, 7, 1_234_567_890_123_456_789])
    expected = encoder.codes("item_id", ["7", "1234567890123456789"]).tolist()
    assert expected == [FIRST, FIRST + 1]
    assert encoder.codes("item_id", [7, 1_234_567_890_123_456_789]).tolist() == expected
    column = pa.array(["7", "1234567890123456789"]).dictionary_encode()
    assert encoder.codes("item_id", column).tolist() == expected


def test_numbers_with_a_point_have_no_exact_text_and_are_refused() -> None:
    with pytest.raises(DataError, match="double"):
        fitted(["a"]).codes("item_id", [7.0])


@given(st.lists(st.one_of(st.none(), st.text(), st.integers(-5, 5).map(str))))
def test_every_code_lies_inside_its_table(values: list[str | None]) -> None:
    encoder = fitted(["a", "1", "2"])
    for vocabulary in ("item_id", "brand"):
        codes = encoder.codes(vocabulary, pa.array(values, pa.string()))
        assert ((codes >= NULL) & (codes < encoder.size(vocabulary))).all()


def test_a_hashed_vocabulary_needs_no_fit_and_never_changes() -> None:
    encoder = fitted(["a"])
    codes = encoder.codes("brand", ["x", "y", None, "x"])
    assert codes[0] == codes[3] >= FIRST
    assert codes[2] == NULL
    assert encoder.size("brand") == FIRST + 16


def test_an_unknown_vocabulary_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match=r"'colour': expected one of"):
        fitted(["a"]).codes("colour", ["red"])


PRICE = FeatureSpec(
    name="price", kind="numeric", column="p", transform="log1p", minimum=0.0, maximum=10.0
)


@pytest.mark.parametrize("bad", [-1.0, -2.0, float("inf"), float("nan"), 11.0])
def test_a_number_outside_its_domain_is_refused_before_it_is_transformed(bad: float) -> None:
    with pytest.raises(DataError, match=r"'price' .*log1p.*1 values outside \[0, 10\].*rows \[1\]"):
        fitted(["a"]).numeric(PRICE, [3.0, bad, 0.0])


def test_numbers_are_transformed_and_missing_ones_take_the_default() -> None:
    encoder = fitted(["a"])
    with pytest.raises(DataError, match="missing and no default"):
        encoder.numeric(PRICE, [1.0, None])
    spec = FeatureSpec(
        name="price", kind="numeric", column="p", transform="log1p", minimum=0.0, default=3.0
    )
    got = encoder.numeric(spec, [1.0, None])
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, np.log1p([1.0, 3.0]), rtol=1e-6)


@pytest.mark.parametrize("text", ["", "{}", '{"format": 99}', "[]"])
def test_a_file_that_is_no_encoder_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "encoder.json").write_text(text)
    with pytest.raises(DataError, match=r"encoder\.json"):
        Encoder.load(tmp_path / "encoder.json")
