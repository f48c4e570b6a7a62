import pytest

from features.profiles import Profile, pack_profile, unpack_profile

AT_MS = 1_700_000_000_123


def test_a_profile_is_read_as_it_was_written() -> None:
    features = {"city": "Zürich", "age": None, "visits": 7, "spend": 1.5}

    found = unpack_profile(pack_profile(features, at_ms=AT_MS))
    assert found == Profile(features=features, at_ms=AT_MS, num_refused=0)


def test_the_stored_form_is_small_json_that_other_programs_can_read() -> None:
    stored = pack_profile({"city": "Zürich", "age": None}, at_ms=AT_MS)

    expected = '{"features":{"city":"Zürich","age":null},"at_ms":1700000000123}'
    assert stored == expected.encode()


def test_values_that_are_no_features_are_left_out() -> None:
    stored = b'{"features":{"a":[1],"b":{"c":1},"d":"x","e":NaN,"f":true},"at_ms":5}'

    assert unpack_profile(stored) == Profile(features={"d": "x"}, at_ms=5, num_refused=4)


@pytest.mark.parametrize(
    "stored",
    [
        None,
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b'{"features":{},"at_ms":null}',
        b'{"features":{},"at_ms":1e400}',
        b'{"features":{},"at_ms":true}',
        b'{"features":[],"at_ms":5}',
        b'{"features":{"a":1}}',
        b'{"features":{"a":1},"at_ms":5',
        b"[" * 100_000,
    ],
)
def test_what_cannot_be_read_is_no_profile_and_raises_nothing(stored: bytes | None) -> None:
    assert unpack_profile(stored) is None
    empty = unpack_profile(b'{"features":{},"at_ms":5}')
    assert empty == Profile(features={}, at_ms=5, num_refused=0)
