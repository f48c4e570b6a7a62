"""Shelf impressions from baskets and placements, one store week at a time.

For every basket in a store with placements that week, each placed product that was bought is a
positive, and ten draws from the store's placed products give the negatives; a draw that was bought
or drawn before adds nothing. Draws are a hash of seed, basket and draw number, so a basket's rows
do not depend on which other baskets are built, nor on any library's random stream.

Two cuts: ``uniform`` draws evenly; ``hard`` draws in proportion to 0.5 plus the purchases of the
product, by all households, in earlier weeks. ``sampling_weight`` is the inverse of the probability
that the row is in the log, 1 - (1 - q)^10 for a product drawn with probability q each time; the
weighted rows estimate the log of every placed product.

It does not know where tables come from or what a model does with the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import DataError
from foundation.datasets.complete_journey.tables import store_time

Cut = Literal["hard", "uniform"]

# A product pulls in half purchases: two for each, and one for being placed, so that a product
# never sold can be drawn. Whole numbers, so a draw does not depend on the order of any sum.
PULL_PER_PURCHASE, PULL_OF_ANY = 2, 1
# Product ids are below 2^25 and basket ids below 2^36, so one int64 holds both.
PRODUCT_BITS = 25
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

Numbers = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class SamplingPlan:
    """How impressions are drawn.

    Attributes:
        cut: which products negatives are drawn from, and how often.
        num_negatives: draws per basket, 1 or more.
        seed: changes every draw.
    """

    cut: Cut
    num_negatives: int
    seed: int

    def __post_init__(self) -> None:
        if self.cut not in ("hard", "uniform"):
            raise DataError(f"cut: expected 'hard' or 'uniform', got {self.cut!r}")
        if self.num_negatives < 1:
            raise DataError(f"num_negatives: expected 1 or more, got {self.num_negatives}")


def placements(promotions: pl.LazyFrame, week: int, stores: pl.Series) -> pl.DataFrame:
    """Give the placed products of one week in some stores, the first of duplicates, sorted.

    A row on no display and in no mailer is not a placement (version 0.1.0 has none).
    """
    on_display, in_mailer = pl.col("display_location") != "0", pl.col("mailer_location") != "0"
    surface = (
        pl.when(on_display & in_mailer)
        .then(pl.lit("both"))
        .when(on_display)
        .then(pl.lit("display"))
        .otherwise(pl.lit("mailer"))
    )
    return (
        promotions.filter(pl.col("week") == week, pl.col("store_id").is_in(stores.implode()))
        .filter(on_display | in_mailer)
        .collect()
        .unique(["store_id", "product_id"], keep="first", maintain_order=True)
        .with_columns(surface.alias("surface"))
        .drop("week")
        .sort("store_id", "product_id")
    )


def week_impressions(
    lines: pl.DataFrame,
    placed: pl.DataFrame,
    purchases_before: pl.DataFrame,
    plan: SamplingPlan,
) -> pl.DataFrame:
    """Give the impressions of one week's baskets, positives and drawn negatives.

    Args:
        lines: transaction lines of the week.
        placed: what :func:`placements` gives for the week.
        purchases_before: columns product_id and num_purchases, of earlier weeks.
        plan: the cut, the number of draws and the seed.
    """
    placed = _with_pull(placed, purchases_before, plan.cut)
    baskets = (
        lines.select("basket_id", "household_id", "store_id", "transaction_timestamp")
        .unique()
        .sort("basket_id")
        .join(placed.select("store_id").unique(), on="store_id", how="semi")
    )
    bought = lines.select(
        "basket_id",
        "product_id",
        purchase=pl.lit(1, dtype=pl.Int64),
        coupon_used=(pl.col("coupon_disc") > 0).cast(pl.Int64),
    )
    stores = lines.select("basket_id", "store_id").unique()
    positives = (
        bought.join(stores, on="basket_id").join(placed, on=["store_id", "product_id"])
    ).with_columns(sampling_weight=pl.lit(1.0))
    log_miss = plan.num_negatives * (-pl.col("chance")).log1p()
    negatives = (
        _draw(baskets, placed, plan)
        .join(bought, on=["basket_id", "product_id"], how="anti")
        .with_columns(
            purchase=pl.lit(0, dtype=pl.Int64),
            coupon_used=pl.lit(0, dtype=pl.Int64),
            sampling_weight=1.0 / (1.0 - log_miss.exp()),
        )
    )
    rows = pl.concat([positives, negatives], how="diagonal").drop("store_id")
    return _finish(rows.join(baskets, on="basket_id"))


def _with_pull(placed: pl.DataFrame, purchases_before: pl.DataFrame, cut: Cut) -> pl.DataFrame:
    """Add what draws are in proportion to, and the chance that one draw takes the product."""
    popularity = placed.select("product_id").join(
        purchases_before, on="product_id", how="left", maintain_order="left"
    )["num_purchases"]
    pull = popularity.fill_null(0).cast(pl.Int64) * PULL_PER_PURCHASE + PULL_OF_ANY
    if cut == "uniform":
        pull = pl.Series("pull", np.ones(placed.height, dtype=np.int64))
    return placed.with_columns(pull.alias("pull")).with_columns(
        chance=pl.col("pull") / pl.col("pull").sum().over("store_id")
    )


def _draw(baskets: pl.DataFrame, placed: pl.DataFrame, plan: SamplingPlan) -> pl.DataFrame:
    """Draw placed products of each basket's store, with replacement; each product once."""
    stores, starts = np.unique(placed["store_id"].to_numpy(), return_index=True)
    cumulative = np.concatenate([[0], np.cumsum(placed["pull"].to_numpy())])
    edges = cumulative[np.append(starts, placed.height)]
    store = np.searchsorted(stores, baskets["store_id"].to_numpy())
    low, total = edges[store][:, None], np.diff(edges)[store][:, None]
    fraction = draw_fractions(baskets["basket_id"].to_numpy(), plan.num_negatives, plan.seed)
    target = low + np.minimum((fraction * total).astype(np.int64), total - 1)
    place = np.searchsorted(cumulative, target.ravel(), side="right") - 1
    basket = np.repeat(baskets["basket_id"].to_numpy(), plan.num_negatives)
    drawn: pl.DataFrame = placed[place].with_columns(basket_id=pl.Series(basket))
    return drawn.unique(["basket_id", "product_id"], keep="first", maintain_order=True)


def draw_fractions(ids: Numbers, num_draws: int, seed: int) -> Numbers:
    """Give num_draws numbers in [0, 1) for every id, a function of id, draw and seed alone, (N, D).

    Source: splitmix64 (Steele, Lea and Flood 2014), its finaliser applied to each of the three.
    """
    start = _mix(np.array([seed], dtype=np.uint64))
    by_id = _mix(ids.astype(np.uint64) ^ start)
    draws = np.arange(1, num_draws + 1, dtype=np.uint64)
    mixed = _mix(by_id[:, None] ^ _mix(draws)[None, :])
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _finish(rows: pl.DataFrame) -> pl.DataFrame:
    local = store_time(pl.col("transaction_timestamp"))
    return rows.select(
        (pl.col("basket_id") * 2**PRODUCT_BITS + pl.col("product_id")).alias("example_id"),
        pl.col("basket_id").alias("request_id"),
        "household_id",
        "product_id",
        pl.col("transaction_timestamp").dt.epoch("ms").alias("at_ms"),
        "surface",
        "display_location",
        "mailer_location",
        "store_id",
        local.dt.hour().cast(pl.Int64).alias("hour_of_day"),
        local.dt.weekday().replace_strict(dict(enumerate(DAYS, start=1))).alias("day_of_week"),
        "purchase",
        "coupon_used",
        "sampling_weight",
    ).sort("at_ms", "request_id", "example_id")
