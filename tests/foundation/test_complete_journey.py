"""The Complete Journey adapter: its traps, its draws, and what it writes."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
import yaml

from features.dataset import load_dataset
from features.encoding import FIRST
from features.errors import DataError
from features.histories import HistoryIndex
from foundation.datasets.complete_journey import BuildReport, build_complete_journey, tables
from foundation.datasets.complete_journey.build import sample_households
from foundation.datasets.complete_journey.sampling import (
    SamplingPlan,
    draw_fractions,
    placements,
    week_impressions,
)

UTC_MS = {"2017-03-08": 1_488_949_200_000}  # store day 2017-03-08 begins at 05:00 UTC
NOBODY_BOUGHT = pl.DataFrame(schema={"product_id": pl.Int64, "num_purchases": pl.UInt32})


def utc_ms(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> int:
    moment = np.datetime64(datetime(year, month, day, hour, minute), "ms")
    return int(moment.astype(np.int64))


def lines(rows: list[dict[str, Any]]) -> pl.DataFrame:
    filled = [
        {
            "household_id": 1,
            "store_id": 10,
            "basket_id": 100,
            "product_id": 1,
            "quantity": 1,
            "sales_value": 1.0,
            "coupon_disc": 0.0,
            "week": 9,
            "transaction_timestamp": datetime(2017, 2, 21, 15, 30),
            **row,
        }
        for row in rows
    ]
    return pl.DataFrame(filled).with_columns(
        pl.col("transaction_timestamp").cast(pl.Datetime("ns"))
    )


def promoted(rows: list[tuple[int, int, str, str]]) -> pl.LazyFrame:
    names = ["product_id", "store_id", "display_location", "mailer_location"]
    return pl.LazyFrame(rows, schema=names, orient="row").with_columns(week=pl.lit(9))


def in_store(rows: list[tuple[int, int, str, str]], store_id: int = 10) -> pl.DataFrame:
    return placements(promoted(rows), 9, pl.Series([store_id]))


# --- traps of the tables ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> tables.Tables:
    return tables.read_tables(tables.find_tables())


def test_store_weeks_turn_over_at_local_midnight_on_every_real_line(real):
    local_day = tables.store_time(pl.col("transaction_timestamp")).dt.date()
    weeks_since = (local_day - pl.lit(tables.FIRST_MONDAY)).dt.total_days() // 7 + 1
    assert real.transactions.height == 1_469_307
    assert real.transactions.filter(weeks_since != pl.col("week")).height == 0


def test_every_real_redemption_falls_on_a_store_day_with_a_basket_and_not_on_a_utc_day(real):
    redeemed = real.coupon_redemptions.with_columns(day=pl.col("redemption_date").dt.date())
    by_day = {
        zone: real.transactions.select("household_id", moment.dt.date().alias("day")).unique()
        for zone, moment in {
            "store": tables.store_time(pl.col("transaction_timestamp")),
            "utc": pl.col("transaction_timestamp"),
        }.items()
    }
    matched = {
        zone: redeemed.join(days, on=["household_id", "day"], how="semi").height
        for zone, days in by_day.items()
    }
    assert matched == {"store": 2102, "utc": 1869}


def test_no_real_redemption_is_visible_to_a_basket_of_its_own_day(real):
    events = tables.redemptions(real.coupon_redemptions)
    baskets = real.transactions.select(
        "household_id",
        tables.store_time(pl.col("transaction_timestamp")).dt.date().alias("day"),
        pl.col("transaction_timestamp").dt.epoch("ms").alias("basket_ms"),
    ).unique()
    day = tables.store_time(pl.from_epoch("at_ms", time_unit="ms")).dt.date()
    last_day = events.with_columns(day=day - pl.duration(days=1))
    same_day = last_day.join(baskets, on=["household_id", "day"])
    assert same_day["at_ms"].len() >= 2102
    assert same_day.filter(pl.col("at_ms") < pl.col("basket_ms")).height == 0


def test_a_redemption_ends_its_store_day_across_the_change_of_clocks():
    dates = [datetime(2017, 3, 11), datetime(2017, 3, 12)]
    frame = pl.DataFrame(
        {
            "household_id": [1, 1],
            "coupon_upc": [5, 6],
            "campaign_id": [2, 2],
            "redemption_date": pl.Series(dates).cast(pl.Datetime("ns")),
        }
    )
    expected = [utc_ms(2017, 3, 12, 5), utc_ms(2017, 3, 13, 4)]
    assert tables.redemptions(frame)["at_ms"].to_list() == expected


def test_lines_without_a_listed_product_stay_and_have_no_department(real):
    listed = tables.items(real.products, real.transactions)
    joined = real.transactions.select("product_id").join(listed, on="product_id", how="left")
    assert joined.height == real.transactions.height
    assert joined["department"].null_count() == 4836
    assert listed["product_id"].is_duplicated().sum() == 0
    assert listed["product_label"].null_count() == 0


def test_a_product_label_reads_as_type_and_size():
    products = pl.DataFrame(
        {
            "product_id": [1, 2],
            "manufacturer_id": [7, 7],
            "department": ["GROCERY", "FUEL"],
            "brand": ["National", "Private"],
            "product_category": ["ICE", None],
            "product_type": ["ICE - CRUSHED", None],
            "package_size": ["22 LB", None],
        }
    )
    listed = tables.items(products, lines([{"product_id": 3}]))
    assert listed["product_label"].to_list() == ["ICE - CRUSHED, 22 LB", "FUEL", "UNLISTED PRODUCT"]
    assert listed["brand"].to_list() == ["National", "Private", None]


def test_fuel_counted_in_thousandths_is_clipped_to_the_declared_domain(real):
    assert real.transactions["quantity"].max() == 89_638
    events = tables.purchases(real.transactions)
    assert events["quantity"].max() == tables.MAX_QUANTITY
    assert events["quantity"].min() == 0
    counted = real.transactions.filter(pl.col("quantity").is_between(1, tables.MAX_QUANTITY))
    assert counted.height > 0.98 * events.height


def test_outcomes_of_a_basket_are_no_column_of_its_impressions():
    rows = week_impressions(
        lines([{"product_id": 1, "coupon_disc": 0.5}]),
        in_store([(1, 10, "1", "0"), (2, 10, "0", "A")]),
        NOBODY_BOUGHT,
        SamplingPlan(cut="uniform", num_negatives=3, seed=7),
    )
    outcomes = {"quantity", "sales_value", "retail_disc", "coupon_disc", "coupon_match_disc"}
    assert not outcomes & set(rows.columns)


def test_campaigns_that_start_before_the_first_transaction_are_contacts_all_the_same(real):
    contacts = tables.campaign_contacts(real.campaigns, real.campaign_descriptions)
    first_ms = int(real.transactions["transaction_timestamp"].dt.epoch("ms").min())
    early = contacts.filter(pl.col("at_ms") < first_ms)
    assert contacts.height == 6589
    assert set(early["campaign_id"].to_list()) == {24, 25, 26}


def test_a_contact_is_known_from_the_start_of_its_store_day():
    contacts = tables.campaign_contacts(
        pl.DataFrame({"campaign_id": [2], "household_id": [1]}),
        pl.DataFrame(
            {
                "campaign_id": [2],
                "campaign_type": ["Type B"],
                "start_date": pl.Series([date(2017, 3, 8)]).cast(pl.Datetime("ns")),
            }
        ),
    )
    assert contacts["at_ms"].to_list() == [UTC_MS["2017-03-08"]]
    assert contacts["campaign_type"].to_list() == ["Type B"]


def test_households_without_demographics_have_nulls(real):
    everyone = tables.users(real.transactions, real.demographics)
    assert everyone.height == 2469
    assert everyone["age"].null_count() == 2469 - 801


# --- placements and draws --------------------------------------------------------------------


def test_the_first_of_duplicate_placements_is_kept():
    rows = in_store([(1, 10, "5", "0"), (1, 10, "0", "A"), (1, 11, "0", "D")])
    assert rows.select("product_id", "display_location", "surface").rows() == [(1, "5", "display")]


def test_a_product_on_no_display_and_in_no_mailer_is_not_placed():
    rows = in_store([(1, 10, "0", "0"), (2, 10, "0", "A"), (3, 10, "9", "0"), (4, 10, "9", "A")])
    assert rows["product_id"].to_list() == [2, 3, 4]
    assert rows["surface"].to_list() == ["mailer", "display", "both"]


def test_bought_placements_are_positives_and_unplaced_purchases_are_not_shown():
    bought = lines(
        [
            {"product_id": 1},
            {"product_id": 2, "coupon_disc": 0.5},
            {"product_id": 99},
            {"product_id": 1, "store_id": 77, "basket_id": 101},
        ]
    )
    placed = in_store([(product, 10, "1", "0") for product in range(1, 6)])
    rows = week_impressions(
        bought, placed, NOBODY_BOUGHT, SamplingPlan(cut="uniform", num_negatives=10, seed=7)
    )
    positives = rows.filter(pl.col("purchase") == 1)
    assert positives.select("product_id", "coupon_used").rows() == [(1, 0), (2, 1)]
    assert positives["sampling_weight"].to_list() == [1.0, 1.0]
    negatives = rows.filter(pl.col("purchase") == 0)["product_id"].to_list()
    assert set(negatives) <= {3, 4, 5}
    assert len(negatives) == len(set(negatives)) >= 2
    assert rows["request_id"].unique().to_list() == [100]


def many_baskets(num_baskets: int) -> pl.DataFrame:
    return lines([{"basket_id": 1000 + place, "product_id": 1} for place in range(num_baskets)])


@pytest.mark.parametrize("cut", ["uniform", "hard"])
def test_sampling_weights_recover_the_log_of_every_placed_product(cut):
    placed = in_store([(product, 10, "1", "0") for product in range(1, 41)])
    before = pl.DataFrame({"product_id": [2, 3, 4], "num_purchases": [30, 10, 1]})
    rows = week_impressions(
        many_baskets(4000), placed, before, SamplingPlan(cut=cut, num_negatives=10, seed=1)
    )
    negatives = rows.filter(pl.col("purchase") == 0)
    weights = negatives.group_by("product_id").agg(pl.sum("sampling_weight"))
    assert weights.height == 39
    assert weights["sampling_weight"].to_numpy() == pytest.approx(np.full(39, 4000), rel=0.2)
    assert negatives["sampling_weight"].sum() == pytest.approx(39 * 4000, rel=0.02)


def test_the_hard_cut_draws_in_proportion_to_earlier_purchases():
    placed = in_store([(product, 10, "1", "0") for product in range(1, 5)])
    before = pl.DataFrame({"product_id": [2, 3], "num_purchases": [4, 1]})
    rows = week_impressions(
        many_baskets(6000), placed, before, SamplingPlan(cut="hard", num_negatives=1, seed=1)
    )
    drawn = rows.filter(pl.col("purchase") == 0)["product_id"].value_counts().sort("product_id")
    # 0.5 + purchases: 0.5, 4.5, 1.5 and 0.5 of 7; product 1 was bought, so it is no negative.
    expected = [6000 * share / 7 for share in (4.5, 1.5, 0.5)]
    assert drawn["count"].to_list() == pytest.approx(expected, rel=0.1)


def test_draws_depend_on_basket_and_seed_alone():
    together = draw_fractions(np.array([5, 6, 7]), 4, 1)
    assert draw_fractions(np.array([7]), 4, 1).tolist() == together[2:].tolist()
    assert draw_fractions(np.array([7]), 4, 2).tolist() != together[2:].tolist()
    spread = draw_fractions(np.arange(20_000), 5, 7)
    assert spread.min() >= 0
    assert spread.max() < 1
    assert np.histogram(spread, bins=10)[0] == pytest.approx(np.full(10, 10_000), rel=0.05)


def test_context_is_in_the_time_of_the_store():
    late = datetime(2017, 2, 28, 3, 30)
    rows = week_impressions(
        lines([{"product_id": 1, "transaction_timestamp": late}]),
        in_store([(1, 10, "1", "0")]),
        NOBODY_BOUGHT,
        SamplingPlan(cut="uniform", num_negatives=1, seed=7),
    )
    assert rows.select("hour_of_day", "day_of_week").rows() == [(22, "mon")]
    assert rows["at_ms"].to_list() == [utc_ms(2017, 2, 28, 3, 30)]


# --- the whole build -------------------------------------------------------------------------


class Build(NamedTuple):
    folder: Path
    report: BuildReport
    told: list[tuple[str, float]]


@pytest.fixture(scope="module")
def build(tmp_path_factory) -> Build:
    """Three households, written where an earlier log had been prepared."""
    out = tmp_path_factory.mktemp("few")
    (out / "prepared").mkdir()
    (out / "prepared" / "encoder.json").write_text("of an earlier log")
    told: list[tuple[str, float]] = []
    report = build_complete_journey(
        out,
        num_households=3,
        cut="hard",
        progress=lambda stage, done_frac: told.append((stage, done_frac)),
    )
    return Build(out, report, told)


@pytest.fixture
def few(build) -> Path:
    return build.folder


@pytest.mark.integration
def test_a_build_is_the_same_twice_and_a_larger_cut_only_adds_households(few, tmp_path):
    build_complete_journey(tmp_path, num_households=6, cut="hard")
    small, large = (pl.read_parquet(out / "impressions.parquet") for out in (few, tmp_path))
    own = large.filter(pl.col("household_id").is_in(small["household_id"].unique().implode()))
    assert small.height > 100
    assert own.height < large.height
    assert own.equals(small)


def test_impressions_are_in_order_with_unique_examples(few):
    rows = pl.read_parquet(few / "impressions.parquet")
    assert rows["example_id"].is_duplicated().sum() == 0
    assert rows.equals(rows.sort("at_ms", "request_id", "example_id"))


def test_splits_are_whole_store_weeks_in_a_row(few):
    splits = yaml.safe_load((few / "splits.yaml").read_text())
    assert splits["fm_train"] == [utc_ms(2017, 2, 20, 5), utc_ms(2017, 9, 4, 4)]
    assert splits["vm_train"] == [utc_ms(2017, 9, 4, 4), utc_ms(2017, 10, 30, 4)]
    assert splits["tune"] == [utc_ms(2017, 10, 30, 4), utc_ms(2017, 11, 27, 5)]
    assert splits["test"] == [utc_ms(2017, 11, 27, 5), utc_ms(2018, 1, 1, 5)]


def test_the_loader_reads_the_folder_and_every_surface_and_item_is_known(few):
    dataset = load_dataset(few)
    rows = pl.read_parquet(few / "impressions.parquet")
    impressions = dataset.impressions
    assert impressions.example_ids.tolist() == rows["example_id"].to_list()
    assert impressions.labels["purchase"].tolist() == rows["purchase"].to_list()
    assert (impressions.codes["surface"] >= FIRST).all()
    assert (dataset.items.rows(impressions.item_keys) > 0).all()
    assert set(dataset.events) == {"purchase", "redemption", "campaign_contact"}
    assert dataset.schema.vertical("shelf").objectives == ("purchase", "coupon_used")


def test_no_history_holds_an_event_of_its_own_basket(few):
    dataset = load_dataset(few)
    shown = dataset.impressions
    bought = shown.take(np.flatnonzero(shown.labels["purchase"] == 1))
    index = HistoryIndex.build(dataset.events)
    part = index.visible("purchase", bought.user_keys, bought.at_ms, max_length=5000)
    moment = np.repeat(bought.at_ms, part.lengths)
    assert len(moment) > 1000
    assert (part.at_ms < moment).all()
    events = dataset.events["purchase"]
    own = np.isin(events.at_ms, bought.at_ms) & np.isin(events.user_keys, bought.user_keys)
    assert own.sum() >= len(bought)


def test_progress_ends_at_one(build):
    fracs = [frac for _, frac in build.told]
    assert fracs == sorted(fracs)
    assert build.told[-1] == ("done", 1.0)
    assert len(fracs) > 50


def test_the_report_says_what_was_written(build):
    rows = pl.read_parquet(build.folder / "impressions.parquet")
    report = build.report
    assert (report.num_rows, report.num_households) == (rows.height, 3)
    assert report.num_positives == rows["purchase"].sum()
    assert report.positive_frac == pytest.approx(rows["purchase"].mean())
    assert (
        report.num_events["purchase"] == pl.read_parquet(build.folder / "purchase.parquet").height
    )
    history_only = rows.filter(pl.col("at_ms") < utc_ms(2017, 2, 20, 5)).height
    assert sum(report.num_rows_by_split.values()) == report.num_rows - history_only


def test_the_household_sample_is_seeded_and_nested():
    everyone = pl.Series("household_id", list(range(1, 101)) * 2)
    ten, twenty = (set(sample_households(everyone, size, seed=7)) for size in (10, 20))
    assert len(ten) == 10
    assert ten < twenty
    assert set(sample_households(everyone, 10, seed=8)) != ten
    assert len(sample_households(everyone, None, seed=7)) == 100


@pytest.mark.parametrize("size", [0, 101])
def test_a_sample_larger_than_the_data_or_empty_is_refused(size):
    with pytest.raises(DataError, match=f"expected 1 to 100 or None, got {size}"):
        sample_households(pl.Series(list(range(100))), size, seed=7)


def test_an_unknown_cut_is_refused():
    with pytest.raises(DataError, match="expected 'hard' or 'uniform', got 'soft'"):
        SamplingPlan(cut="soft", num_negatives=10, seed=7)  # type: ignore[arg-type]


def test_no_draws_are_refused():
    with pytest.raises(DataError, match="num_negatives: expected 1 or more, got 0"):
        SamplingPlan(cut="hard", num_negatives=0, seed=7)


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(DataError, match=r"transactions\.parquet is missing"):
        build_complete_journey(
            tmp_path / "out", num_households=1, cut="hard", tables_folder=tmp_path
        )


def test_a_package_that_is_not_installed_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(tables, "PACKAGE", "completejourney_absent")
    with pytest.raises(DataError, match="pip install"):
        tables.find_tables()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cut", "num_rows", "num_test_rows"),
    [("uniform", 1_859_250, 174_668), ("hard", 1_810_591, 170_074)],
)
def test_the_full_build_has_the_rows_it_had(tmp_path, cut, num_rows, num_test_rows):
    report = build_complete_journey(tmp_path, num_households=None, cut=cut)
    assert (report.num_baskets, report.num_positives) == (153_509, 327_041)
    assert (report.num_rows, report.num_rows_by_split["test"]) == (num_rows, num_test_rows)
    assert report.natural_frac == pytest.approx(0.00058, abs=5e-6)
