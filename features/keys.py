"""Store keys, in one place so that writer and reader cannot disagree.

Users and items are canonical int64 keys (`features.ids`) in decimal. Everything of one user
carries one hash tag, so one request needs one slot of a cluster for its user side.
"""

from __future__ import annotations


def memory_key(user: int, space_id: str) -> str:
    """Key of a user's memory blob."""
    return f"{{u:{user}}}:{space_id}:h"


def pairs_key(user: int, space_id: str) -> str:
    """Key of the hash of a user's pair vectors, field by `pair_field`."""
    return f"{{u:{user}}}:{space_id}:p"


def pair_field(item: int) -> str:
    """Field of one item in a user's hash of pair vectors."""
    return str(item)


def user_aggregate_key(user: int, space_id: str) -> str:
    """Key of the mean of a user's pair vectors."""
    return f"{{u:{user}}}:{space_id}:a"


def user_features_key(user: int) -> str:
    """Key of a user's own features; they belong to no space."""
    return f"{{u:{user}}}:f"


def item_memory_key(item: int, space_id: str) -> str:
    """Key of the newest vectors of an item."""
    return f"i:{item}:{space_id}:m"


def item_aggregate_key(item: int, space_id: str) -> str:
    """Key of the mean of an item's newest vectors."""
    return f"i:{item}:{space_id}:a"


def active_key(vertical: str) -> str:
    """Key of the space and bundle a vertical serves now."""
    return f"active:{vertical}"
