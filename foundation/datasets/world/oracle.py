"""What is true of a world: its closed forms, and the file of exact probabilities beside a log.

The oracle is a folder that no schema names. `world.json` holds the configuration and the closed
forms; the Parquet files hold one row for each impression, to be joined by `example_id`:

    p_click                 probability that `click` was drawn with
    p_conversion_of_click   probability of a conversion, given a click
    p_convert               probability of the label `convert`
    propensity              probability with which the policy filled the place (see `exposure`)
    delay_true_ms           delay of the conversion, -1 where there is none; also of those too late
    delay_mean_ms           the m of the delay's law (see `conversions`)
    band_signs              bit j set where g_j is -1 (see `bands`); `contributions` makes logits
    logit_memory            the sum of the bands; logit_noise: what nothing observed explains
    event_number            number of the user's last organic event; `lags` makes lags of it
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds

from features.errors import DataError
from foundation.datasets.world.bands import band_weights, explained_variance
from foundation.datasets.world.config import WorldConfig
from foundation.datasets.world.latent import (
    affinity_correlation,
    surface_matrices,
    surface_names,
)
from foundation.datasets.world.organic import (
    Columns,
    organic_sources,
    source_shares,
    visible_quality,
)

WORLD_JSON = "world.json"
_PROBABILITIES = ("p_click", "p_conversion_of_click", "p_convert", "propensity")


def describe(config: WorldConfig) -> dict[str, Any]:
    """Give the configuration and everything about it that is known without drawing."""
    matrices, of_conversions = surface_matrices(config)
    lengths = [2**k for k in range(config.num_bands + 1)]
    shares = source_shares(config)
    return {
        "config": dataclasses.asdict(config),
        "band_weights": band_weights(config).tolist(),
        "explained_variance": {str(n): explained_variance(config, n) for n in lengths},
        "visible_quality": visible_quality(config),
        "surfaces": surface_names(config),
        "surface_correlation": [[affinity_correlation(a, b) for b in matrices] for a in matrices],
        "conversion_correlation": [affinity_correlation(a, of_conversions) for a in matrices],
        "sources": [
            {"share_frac": float(share), **dataclasses.asdict(spec)}
            for share, spec in zip(shares, organic_sources(config), strict=True)
        ],
    }


def read_config(folder: Path) -> WorldConfig:
    """Give the configuration of the world that an oracle folder tells of.

    Raises:
        DataError: there is none, or it is of another version of the world.
    """
    path = folder / WORLD_JSON
    try:
        return WorldConfig(**json.loads(path.read_text(encoding="utf-8"))["config"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: expected the description of a world ({error})") from error


def read_oracle(folder: Path, example_ids: np.ndarray[Any, Any] | None = None) -> Columns:
    """Give the oracle's columns, of the examples asked for, in their order.

    Raises:
        DataError: an example has no row.
    """
    table = ds.dataset(sorted(folder.glob("*.parquet")), format="parquet").to_table()
    columns = {name: table[name].to_numpy() for name in table.column_names}
    if example_ids is None:
        return columns
    order = np.argsort(columns["example_id"])
    known = columns["example_id"][order]
    places = np.minimum(np.searchsorted(known, example_ids), len(known) - 1)
    missing = np.flatnonzero(known[places] != example_ids)
    if len(missing):
        raise DataError(
            f"{folder}: {len(missing)} examples have no row, the first is "
            f"{example_ids[missing[0]]}; expected the oracle of the same world"
        )
    return {name: column[order[places]] for name, column in columns.items()}


def columns_named(names: list[str]) -> list[str]:
    """Give those names that only the oracle may have: the leak test."""
    own = {*_PROBABILITIES, "delay_true_ms", "delay_mean_ms", "band_signs", "event_number"}
    return [name for name in names if name in own or name.startswith("logit_")]
