"""The more a model may know, the better it is, and none is better than the oracle."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from features.metrics import normalized_entropy
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


def remembered(log: Path, config: WorldConfig, seen: pl.DataFrame) -> list[Any]:
    """The recorded style of the last occasion of each kind, crossed with the ad's style."""
    columns = ["user_id", "at_ms", "arrived_ms", "occasion", "style"]
    events = pl.concat(
        [
            pl.read_parquet(log / f"{source.name}/*.parquet", columns=columns)
            for source in organic_sources(config)
        ]
    )
    known = pl.max_horizontal(pl.col("at_ms") + 1, "arrived_ms")
    events = events.with_columns(known_ms=known).sort("known_ms")
    found = []
    for kind in range(NUM_BANDS):
        last = events.filter(pl.col("occasion") == kind).select(
            "user_id", "known_ms", past_style="style"
        )
        joined = seen.select("user_id", "at_ms", "style").join_asof(
            last, left_on="at_ms", right_on="known_ms", by="user_id", check_sortedness=False
        )
        past = joined["past_style"].fill_null(NUM_STYLES).cast(pl.Int64).to_numpy()
        crossed = past * NUM_STYLES + joined["style"].to_numpy()
        found.append(one_hot(crossed, (NUM_STYLES + 1) * NUM_STYLES))
    return found


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    out = tmp_path_factory.mktemp("ladder")
    config = WorldConfig(num_users=1500, num_days=20, num_ads=1000, horizon=2**NUM_BANDS)
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
    p = {
        "constant": np.full((~is_train).sum(), rate),
        "popularity": popularity[~is_train],
        "ids": logistic(ids, labels, is_train),
        "sequence": logistic([*ids, *remembered(out / LOG, config, seen)], labels, is_train),
        "oracle": truth["p_click"][~is_train],
    }
    found = {}
    for name, values in p.items():
        value = normalized_entropy(values, labels[~is_train])
        assert value is not None
        found[name] = value
    return found


def test_a_ladder_of_models_ends_at_the_oracle(scores: dict[str, float]) -> None:
    ladder = ["constant", "popularity", "ids", "sequence", "oracle"]
    steps = -np.diff([scores[name] for name in ladder])
    assert (steps > 0.003).all(), scores


def test_memory_is_worth_the_most_of_what_a_sequence_model_can_learn(
    scores: dict[str, float],
) -> None:
    assert scores["ids"] - scores["sequence"] > 0.02, scores
