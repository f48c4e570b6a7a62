"""The users' own features into the store, as the users table has them.

They are raw values, not codes: the ranker encodes them with its bundle's encoder, and a request may
override them one by one.
"""

from __future__ import annotations

from pathlib import Path

from features.ids import to_keys
from features.keys import user_features_key
from features.profiles import pack_profile
from features.reading.tables import feature_type, id_type, read_columns
from features.schema import Schema
from features.store import Store

_USERS_PER_WRITE = 1_000


def load_profiles_into_store(folder: Path, schema: Schema, store: Store, *, at_ms: int) -> int:
    """Write the profile of every user of a data set folder; gives their number.

    Args:
        folder: of the data set.
        schema: says where users are and what their features are.
        store: takes one key a user.
        at_ms: the moment the table is from.

    Raises:
        DataError: the users table is not what the schema says.
        StoreError: the store failed; writing again changes nothing.
    """
    spec, features = schema.user, schema.features_of("user")
    wanted = {feature.name: (feature.column, feature_type(feature)) for feature in features}
    # The id in its own type, since a feature may read the same column as text.
    if schema.users is None:
        return 0
    column = schema.id_column("user")
    table = read_columns(folder, schema.users, {**wanted, "": (column, id_type(spec))})
    where = f"{folder / schema.users.path}, column {column!r}"
    keys = to_keys(table[""], spec.dtype, where=where).tolist()
    columns = {feature.name: table[feature.name].to_pylist() for feature in features}
    for start in range(0, len(keys), _USERS_PER_WRITE):
        rows = range(start, min(start + _USERS_PER_WRITE, len(keys)))
        store.put(
            {
                user_features_key(keys[row]): pack_profile(
                    {name: values[row] for name, values in columns.items()}, at_ms=at_ms
                )
                for row in rows
            }
        )
    return len(keys)
