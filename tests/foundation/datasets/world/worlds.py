"""Worlds for the tests, and their rows end to end."""

from typing import Any

import numpy as np

from foundation.datasets.world.config import WorldConfig
from foundation.datasets.world.ticks import World

Rows = dict[str, np.ndarray]


def small(**dials: Any) -> WorldConfig:
    """A world of some thousand rows."""
    known: dict[str, Any] = {"num_users": 90, "users_per_block": 32, "num_days": 5, "num_ads": 600}
    return WorldConfig(**{**known, **dials})


def rows_of(world: World, table: str, blocks: range | None = None) -> Rows:
    """All rows of a table, or of the oracle."""
    parts = [
        piece.oracle if table == "oracle" else piece.tables[table] for piece in world.pieces(blocks)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def impressions_and_oracle(world: World, blocks: range | None = None) -> tuple[Rows, Rows]:
    """All impressions and the truth about them."""
    parts = [(piece.tables["impressions"], piece.oracle) for piece in world.pieces(blocks)]
    seen, oracle = (
        {name: np.concatenate([part[side][name] for part in parts]) for name in parts[0][side]}
        for side in (0, 1)
    )
    return seen, oracle
