"""The more a model may know, the better it is, and none is better than the oracle."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from features.metrics import normalized_entropy
from foundation.datasets.world.bands import band_weights
from foundation.datasets.world.config import NUM_STYLES, WorldConfig
from foundation.datasets.world.oracle import read_oracle
from foundation.datasets.world.organic import organic_sources
from foundation.datasets.world.sinks import LOG, ORACLE, write_parquet
from foundation.datasets.world.ticks import World

NUM_BANDS = 4


def one_hot(values: np.ndarray, num_values: int) -> sparse.csr_matrix:
    rows = np.arange(len(values))
    return sparse.csr_matrix(
        (np.ones(len(values), dtype=np.float32), (rows, values)), shape=(len(values), num_values)
    )


def logistic(features: list[Any], labels: np.ndarray, is_train: np.ndarray) -> np.ndarray:
    matrix = sparse.hstack(features).tocsr()
    model = LogisticRegression(C=0.1, max_iter=300).fit(matrix[is_train], labels[is_train])
    return np.asarray(model.predict_proba(matrix[~is_train])[:, 1])


def read_seen(log: Path) -> pl.DataFrame:
    seen = pl.read_parquet(log / "impressions/*.parquet").sort("at_ms", maintain_order=True)
    return seen.join(pl.read_parquet(log / "items.parquet"), on="item_id", maintain_order="left")


def last_occasions(log: Path, config: WorldConfig, seen: pl.DataFrame) -> list[pl.DataFrame]:
    """The recorded style, and the source, of the last occasion of each kind, -1 for none."""
    columns = ["user_id", "at_ms", "arrived_ms", "occasion", "style"]
    events = pl.concat(
        [
            pl.read_parquet(log / f"{spec.name}/*.parquet", columns=columns).with_columns(
                source=pl.lit(place)
            )
            for place, spec in enumerate(organic_sources(config))
        ]
    )
    known = pl.max_horizontal(pl.col("at_ms") + 1, "arrived_ms")
    events = events.with_columns(known_ms=known).sort("known_ms")
    asked = seen.select("user_id", "at_ms")
    found = []
    for kind in range(NUM_BANDS):
        last = events.filter(pl.col("occasion") == kind).select(
            "user_id", "known_ms", "source", style=pl.col("style").cast(pl.Int64)
        )
        joined = asked.join_asof(
            last, left_on="at_ms", right_on="known_ms", by="user_id", check_sortedness=False
        )
        found.append(joined.select(pl.col("style", "source").fill_null(-1)))
    return found


def crossed(seen: pl.DataFrame, last: list[pl.DataFrame]) -> list[Any]:
    """The style of each last occasion with the ad's style, as one category."""
    own = seen["style"].to_numpy()
    codes = [(frame["style"].to_numpy() + 1) * NUM_STYLES + own for frame in last]
    return [one_hot(code, (NUM_STYLES + 1) * NUM_STYLES) for code in codes]


def bayes_filter(
    config: WorldConfig, seen: pl.DataFrame, last: list[pl.DataFrame], truth: dict[str, np.ndarray]
) -> np.ndarray:
    """What is best for one who knows all but the true styles: the mean over what they may be.

    A record of quality q tells the truth with probability q and nothing otherwise, so the sign it
    gives is right with probability (1 + q) / 2.
    """
    qualities = np.array([*(spec.quality for spec in organic_sources(config)), 0.0])
    own = seen["style"].to_numpy().astype(np.int64)
    means = []
    for frame in last:
        odd = np.array([style.bit_count() & 1 for style in range(NUM_STYLES)])
        sign = 1 - 2 * odd[np.maximum(frame["style"].to_numpy(), 0) & own]
        means.append(sign * qualities[frame["source"].to_numpy()])
    p = truth["p_click"].astype(np.float64)
    rest = np.log(p / (1 - p)) - truth["logit_memory"]
    found = np.zeros(len(p))
    for signs in itertools.product((-1, 1), repeat=NUM_BANDS):
        logit, chance = rest.copy(), np.ones(len(p))
        for sign, weight, mean in zip(signs, band_weights(config), means, strict=True):
            logit += weight * sign
            chance *= (1 + sign * mean) / 2
        found += chance / (1 + np.exp(-logit))
    return found


@dataclass(frozen=True)
class Ladder:
    """The rungs on the rows after training: labels, predictions and NE."""

    labels: np.ndarray
    p: dict[str, np.ndarray]
    ne: dict[str, float]


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Ladder:
    out = tmp_path_factory.mktemp("ladder")
    config = WorldConfig(
        num_users=1500, num_days=20, num_ads=1000, horizon=2**NUM_BANDS, fault_scale=0.0
    )
    write_parquet(World(config), out, tell=lambda share, what: None)
    seen = read_seen(out / LOG)
    labels = seen["click"].to_numpy()
    is_train = seen["at_ms"].to_numpy() < config.start_ms + 15 * 86_400_000
    count = seen["item_id"].max() + 1
    clicks, shows = (
        np.bincount(seen["item_id"].to_numpy()[is_train], weights, minlength=count)
        for weights in (labels[is_train].astype(float), None)
    )
    rate = labels[is_train].mean()
    popularity = ((clicks + 20 * rate) / (shows + 20))[seen["item_id"].to_numpy()]
    names = ("item_id", "user_id", "topic", "style", "position")
    ids = [one_hot(seen[name].to_numpy(), int(seen[name].max()) + 1) for name in names]
    ids.append(one_hot(seen["surface"].to_physical().to_numpy(), 8))
    truth = read_oracle(out / ORACLE, seen["example_id"].to_numpy())
    last = last_occasions(out / LOG, config, seen)
    p = {
        "constant": np.full((~is_train).sum(), rate),
        "popularity": popularity[~is_train],
        "ids": logistic(ids, labels, is_train),
        "sequence": logistic([*ids, *crossed(seen, last)], labels, is_train),
        "bayes": bayes_filter(config, seen, last, truth)[~is_train],
        "oracle": truth["p_click"][~is_train],
    }
    tested = labels[~is_train]
    ne = {name: normalized_entropy(values, tested) for name, values in p.items()}
    return Ladder(tested, p, {name: value for name, value in ne.items() if value is not None})


def test_a_ladder_of_models_ends_at_the_oracle(ladder: Ladder) -> None:
    rungs = ["constant", "popularity", "ids", "sequence", "bayes", "oracle"]
    steps = -np.diff([ladder.ne[name] for name in rungs])
    assert (steps > 0.003).all(), ladder.ne


def test_memory_is_worth_more_to_a_sequence_model_than_the_popularity_of_ads(
    ladder: Ladder,
) -> None:
    popularity = ladder.ne["constant"] - ladder.ne["popularity"]
    assert ladder.ne["ids"] - ladder.ne["sequence"] > max(0.02, popularity), ladder.ne


def test_the_best_that_can_be_made_of_the_records_is_calibrated(ladder: Ladder) -> None:
    """It is only if the log misreports exactly as its sources' qualities say."""
    order = np.argsort(ladder.p["bayes"])
    for part in np.array_split(order, 8):
        p = ladder.p["bayes"][part]
        surplus = ladder.labels[part].sum() - p.sum()
        assert abs(surplus) < 4 * np.sqrt((p * (1 - p)).sum())
