"""Keys are a contract between processes: these are their exact texts."""

from features import keys


def test_keys_are_the_documented_ones() -> None:
    space = "00112233445566ff"
    assert keys.memory_key(-5, space) == "{u:-5}:00112233445566ff:h"
    assert keys.pairs_key(5, space) == "{u:5}:00112233445566ff:p"
    assert keys.pair_field(-7) == "-7"
    assert keys.user_aggregate_key(5, space) == "{u:5}:00112233445566ff:a"
    assert keys.user_features_key(5) == "{u:5}:f"
    assert keys.item_memory_key(7, space) == "i:7:00112233445566ff:m"
    assert keys.item_aggregate_key(7, space) == "i:7:00112233445566ff:a"
    assert keys.active_key("ads") == "active:ads"


def test_everything_of_one_user_has_one_hash_tag() -> None:
    space = "00112233445566ff"
    of_user = [
        keys.memory_key(5, space),
        keys.pairs_key(5, space),
        keys.user_aggregate_key(5, space),
        keys.user_features_key(5),
    ]

    assert {key[: key.index("}") + 1] for key in of_user} == {"{u:5}"}
    assert len(set(of_user)) == len(of_user)
