import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from features.encoding import FIRST, NULL, UNKNOWN, Encoder, Vocabulary, collision_frac
from features.errors import DataError, SchemaError
from features.schema import FeatureSpec, Schema, VocabularySpec, parse_schema
from tests.features.tiny_log import SCHEMA

TRAINED = ["a", "a", "a", "b", "b", "c", None, None]
COUNT = FeatureSpec(name="count", kind="numeric", column="n", transform="log1p", minimum=0)


def schema(**item_id: Any) -> Schema:
    document = yaml.safe_load(SCHEMA)
    document["vocabularies"][0].update(item_id)
    return parse_schema(document, where="schema.yaml")


def fitted(values: list[Any], **item_id: Any) -> Encoder:
    return Encoder.fit(schema(**item_id), {"item_id": [pa.chunked_array([pa.array(values)])]})


def test_unseen_trimmed_and_null_values_have_fixed_codes() -> None:
    encoder = fitted(TRAINED, min_count=2)

    codes = encoder.codes("item_id", ["a", "b", "zzz", "yyy", None, "c", ""])

    assert codes.dtype == np.int64
    assert codes.tolist() == [FIRST, FIRST + 1, UNKNOWN, UNKNOWN, NULL, UNKNOWN, NULL]
    assert (NULL, UNKNOWN, FIRST) == (1, 2, 3)


def test_codes_do_not_depend_on_nulls_in_training() -> None:
    without = [value for value in TRAINED if value is not None]

    wanted = ["a", None, "zzz"]
    codes = fitted(TRAINED).codes("item_id", wanted)
    assert codes.tolist() == [3, 1, 2]
    np.testing.assert_array_equal(fitted([*without, ""]).codes("item_id", wanted), codes)
    assert fitted([*without, ""]).encoder_id == fitted(TRAINED).encoder_id


def test_codes_do_not_depend_on_the_order_or_chunks_of_the_values() -> None:
    turned = pa.chunked_array([pa.array(TRAINED[::-1][:3]), pa.array(TRAINED[::-1][3:])])

    encoder = Encoder.fit(schema(), {"item_id": [turned]})

    assert encoder.encoder_id == fitted(TRAINED).encoder_id
    assert encoder.size("item_id") == FIRST + 3


def test_integers_and_their_text_share_a_code_and_007_does_not() -> None:
    encoder = fitted([7, 7, 1234567890123456789])

    assert encoder.codes("item_id", ["7", "1234567890123456789"]).tolist() == [3, 4]
    assert encoder.codes("item_id", [7, 1234567890123456790]).tolist() == [3, UNKNOWN]
    assert encoder.codes("item_id", ["007", "7.0"]).tolist() == [UNKNOWN, UNKNOWN]


def test_a_saved_encoder_gives_the_same_codes_and_id(tmp_path: Path) -> None:
    encoder = fitted(TRAINED, min_count=2)
    encoder.save(tmp_path / "deep" / "encoder.json")

    read = Encoder.load(tmp_path / "deep" / "encoder.json")

    wanted = ["a", "b", "c", None, "zzz"]
    assert read.codes("item_id", wanted).tolist() == [3, 4, UNKNOWN, NULL, UNKNOWN]
    assert read.encoder_id == encoder.encoder_id
    assert read.schema_id == encoder.schema_id == schema(min_count=2).schema_id
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["encoder.json"]


def test_the_id_follows_what_was_learnt() -> None:
    assert len(fitted(TRAINED).encoder_id) == 16
    assert fitted(TRAINED).encoder_id != fitted([*TRAINED, "d"]).encoder_id


@given(st.lists(st.one_of(st.none(), st.text(max_size=4)), max_size=20))
def test_every_code_is_below_the_size_of_its_vocabulary(values: list[str | None]) -> None:
    encoder = fitted(TRAINED)
    column = pa.array(values, pa.string())

    for vocabulary in ("item_id", "brand", "age"):
        codes = encoder.codes(vocabulary, column)
        assert len(codes) == len(values)
        assert ((codes >= NULL) & (codes < encoder.size(vocabulary))).all()


def test_a_hashed_vocabulary_knows_every_value_and_keeps_null_apart() -> None:
    encoder = fitted(TRAINED)

    codes = encoder.codes("brand", [f"brand{i}" for i in range(500)])

    assert encoder.size("brand") == FIRST + 16
    assert set(codes.tolist()) == set(range(FIRST, FIRST + 16))
    assert encoder.codes("brand", [None, "brand0"]).tolist() == [NULL, int(codes[0])]


@pytest.mark.parametrize("values", [[], [None, None], np.array([], dtype=object)])
def test_columns_without_values_have_codes_too(values: Any) -> None:
    assert fitted(TRAINED).codes("item_id", values).tolist() == [NULL] * len(values)


def test_dictionary_and_boolean_columns_are_read_as_their_values() -> None:
    encoder = fitted([True, True, False])

    assert encoder.codes("item_id", pa.array(["true", "x"]).dictionary_encode()).tolist() == [3, 2]
    assert encoder.codes("item_id", [False]).tolist() == [4]


@pytest.mark.parametrize("values", [[1.5], [1, "a"], ["\ud800"], [2**70]])
def test_values_without_exact_text_are_refused(values: list[Any]) -> None:
    with pytest.raises(DataError, match="values"):
        fitted(TRAINED).codes("item_id", values)


def test_an_unknown_vocabulary_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match=r"vocabulary 'nope': expected one of \['age'"):
        fitted(TRAINED).codes("nope", ["a"])


def test_numbers_are_transformed() -> None:
    numbers = fitted([]).numeric(COUNT, [0, 1, 7])

    assert numbers.dtype == np.float32
    np.testing.assert_allclose(numbers, np.log([1, 2, 8]), rtol=1e-6)


def test_numbers_outside_their_domain_stop_naming_all_that_helps() -> None:
    with pytest.raises(DataError) as caught:
        fitted([]).numeric(COUNT, [3, 0, -1, -2, float("inf"), float("nan")])

    told = str(caught.value)
    for part in (
        "'count'",
        "'n'",
        "log1p",
        "[0, inf]",
        "4 values",
        "row 2 holds -1 ",
        "least is -2",
        "[2, 3, 4, 5]",
    ):
        assert part in told


def test_a_number_too_large_for_float32_is_refused() -> None:
    identity = FeatureSpec(name="x", kind="numeric", column="x")

    assert fitted([]).numeric(identity, [3e38])[0] == np.float32(3e38)
    with pytest.raises(DataError, match=r"holds 1e\+39"):
        fitted([]).numeric(identity, [1e39])


def test_a_missing_number_is_its_default_or_an_error() -> None:
    with_default = dataclasses.replace(COUNT, default=7.0)

    np.testing.assert_allclose(fitted([]).numeric(with_default, [None, 0]), [np.log(8), 0])
    with pytest.raises(DataError, match=r"1 values are missing and no default.*rows \[1\]"):
        fitted([]).numeric(COUNT, [0, None])


def test_text_that_is_no_number_is_refused() -> None:
    with pytest.raises(DataError, match="feature 'count': expected numbers"):
        fitted([]).numeric(COUNT, ["many"])


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"\xff", b'{"format": 9}', b'{"format": 1, "vocabularies": [{"spec": 1}]}'],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "encoder.json"
    path.write_bytes(content)

    with pytest.raises(DataError, match=r"encoder\.json"):
        Encoder.load(path)


def test_a_file_with_an_impossible_vocabulary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "encoder.json"
    fitted(TRAINED).save(path)
    document = json.loads(path.read_text())
    document["vocabularies"][0]["spec"]["policy"] = "guessed"
    path.write_text(json.dumps(document))

    with pytest.raises(DataError, match="not an encoder"):
        Encoder.load(path)


@pytest.mark.parametrize(("num_values", "num_buckets"), [(300, 3000), (1000, 1000), (3000, 1000)])
def test_the_collision_rate_of_a_hashed_vocabulary_is_estimated_from_the_codes_in_use(
    num_values: int, num_buckets: int
) -> None:
    spec = VocabularySpec(name="x", policy="hashed", num_buckets=num_buckets)
    words = Vocabulary(spec=spec, values=())
    codes = np.array([words.code(f"value {place}") for place in range(num_values)])
    _, counts = np.unique(codes, return_counts=True)

    real = counts[counts > 1].sum() / num_values
    assert collision_frac(len(counts), num_buckets) == pytest.approx(real, abs=0.04)


def test_a_hashed_vocabulary_of_one_value_collides_with_nothing_and_a_full_one_with_all() -> None:
    assert collision_frac(0, 8) == collision_frac(1, 8) == 0
    assert collision_frac(8, 8) == 1
