"""User features in the store."""

from pathlib import Path

import numpy as np

from features.keys import user_features_key
from features.profiles import Profile, unpack_profile
from features.store import MemoryStore
from precompute.profiles import load_profiles_into_store
from tests.precompute.tinylog import START_MS, tiny_log


def profile(**features: str | float | None) -> Profile:
    return Profile(features=dict(features), at_ms=START_MS, num_refused=0)


def test_profiles_hold_the_raw_values_that_give_the_codes_of_training(tmp_path: Path) -> None:
    log = tiny_log(tmp_path)
    store = MemoryStore()
    assert load_profiles_into_store(log.folder, log.schema, store, at_ms=START_MS) == 2
    values = store.read([user_features_key(user) for user in (1, 2, 3)]).values
    assert unpack_profile(values[0]) == profile(age="30s", income=5.5)
    assert unpack_profile(values[1]) == profile(age=None, income=None)
    assert values[2] is None
    ages = [unpack_profile(value).features["age"] for value in values[:2]]
    rows = log.users.rows(np.array([1, 2]))
    np.testing.assert_array_equal(log.encoder.codes("age", ages), log.users.column("age")[rows])
