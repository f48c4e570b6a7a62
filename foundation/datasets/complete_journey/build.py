"""Writes Complete Journey as a log folder: schema, splits, impressions, events and entities.

A household cut keeps the households with the smallest hash of seed and id: a plain seeded sample,
not chosen by activity, and nested (the 200 of a seed are among its 500). It only drops households:
the rows of the ones kept are those of the full build, because draws are a function of the basket
and popularity counts everybody's purchases.

Errors: DataError for arguments out of range and missing tables.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from features.dataset import PREPARED
from features.errors import DataError
from foundation.datasets.complete_journey import tables as tables_
from foundation.datasets.complete_journey.sampling import (
    Cut,
    SamplingPlan,
    draw_fractions,
    placements,
    week_impressions,
)
from foundation.datasets.complete_journey.tables import Tables, week_start_ms

Progress = Callable[[str, float], None]

# Half-open in weeks. Weeks 1 to 8 are history only: a log that starts cold says little.
SPLIT_WEEKS = {"fm_train": (9, 37), "vm_train": (37, 45), "tune": (45, 49), "test": (49, 54)}
NUM_WEEKS = 53
SOURCES = ("purchase", "redemption", "campaign_contact")
_SPLITS_COMMENT = """\
# Who learns from what: windows [start, end) in Unix milliseconds (UTC), in this order, without
# overlap. The foundation model trains on fm_train, the vertical models on vm_train; tune chooses
# and calibrates, test is only measured. history_start_ms is where the events begin: what lies
# between it and fm_train is history and nothing else, so that the first rows have a past.
#
#   $ date -u -d '2024-01-31' +%s000      # gives 1706659200000

"""


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """What a build wrote.

    Attributes:
        num_natural_rows: placed products of every basket, before drawing; what sampling weights
            sum to in expectation.
        num_rows_by_split: impressions by split; those of weeks 1 to 8 are in none.
        num_events: rows by event source.
    """

    folder: Path
    cut: Cut
    num_households: int
    num_baskets: int
    num_rows: int
    num_positives: int
    num_coupon_used: int
    num_natural_rows: int
    num_rows_by_split: dict[str, int]
    num_events: dict[str, int]
    num_items: int
    num_unlisted_lines: int

    @property
    def positive_frac(self) -> float:
        """Share of rows that were bought, as drawn."""
        return self.num_positives / self.num_rows if self.num_rows else 0.0

    @property
    def natural_frac(self) -> float:
        """Share of placed products that were bought, before drawing."""
        return self.num_positives / self.num_natural_rows if self.num_natural_rows else 0.0


def build_complete_journey(
    out: Path,
    *,
    num_households: int | None,
    cut: Cut,
    num_negatives: int = 10,
    seed: int = 7,
    tables_folder: Path | None = None,
    progress: Progress | None = None,
) -> BuildReport:
    """Write the log folder that ``load_dataset`` reads, and report what is in it.

    The same arguments give the same rows on every machine.

    Args:
        out: folder to write; made if missing, files in it are replaced.
        num_households: size of the seeded household sample; None for all 2,469.
        cut: ``uniform`` for calibration, ``hard`` for ranking (see ``sampling``).
        num_negatives: draws per basket.
        seed: of the household sample and of the draws.
        tables_folder: Parquet files to read instead of the installed package's.
        progress: called with a stage and the share done, 0 to 1.

    Raises:
        DataError: the package or a table is missing; an argument is out of range.
    """
    plan = SamplingPlan(cut=cut, num_negatives=num_negatives, seed=seed)
    tell = progress or _stay_silent
    tell("reading tables", 0.0)
    tables = tables_.read_tables(tables_folder or tables_.find_tables())
    kept = sample_households(tables.transactions["household_id"], num_households, seed=seed)
    out.mkdir(parents=True, exist_ok=True)
    weeks, num_natural_rows = [], 0
    for week, impressions, num_placed in _impressions_by_week(tables, kept, plan):
        tell("drawing impressions", week / (NUM_WEEKS + 2))
        weeks.append(impressions)
        num_natural_rows += num_placed
    tell("writing events and entities", (NUM_WEEKS + 1) / (NUM_WEEKS + 2))
    frames = {"impressions": pl.concat(weeks), **_events_and_entities(tables, kept)}
    for name, frame in frames.items():
        frame.write_parquet(out / f"{name}.parquet", compression="zstd")
    _write_splits(out / "splits.yaml", frames["campaign_contact"])
    # What an earlier build's rows were encoded with is no longer true.
    shutil.rmtree(out / PREPARED, ignore_errors=True)
    shutil.copyfile(Path(__file__).with_name("schema.yaml"), out / "schema.yaml")
    tell("done", 1.0)
    return _report(out, plan.cut, frames, num_natural_rows)


def split_windows() -> dict[str, tuple[int, int]]:
    """Give the half-open window of each split, Unix ms."""
    return {
        name: (week_start_ms(first), week_start_ms(last))
        for name, (first, last) in SPLIT_WEEKS.items()
    }


def sample_households(
    household_ids: pl.Series, num_households: int | None, *, seed: int
) -> pl.Series:
    """Give the households of a cut, sorted.

    Raises:
        DataError: more households are asked for than there are, or fewer than one.
    """
    everyone = household_ids.unique().sort()
    if num_households is None:
        return everyone
    if not 1 <= num_households <= len(everyone):
        raise DataError(
            f"num_households: expected 1 to {len(everyone)} or None, got {num_households}"
        )
    rank = np.argsort(draw_fractions(everyone.to_numpy(), 1, seed)[:, 0], kind="stable")
    return everyone[np.sort(rank[:num_households])]


def _impressions_by_week(
    tables: Tables, kept: pl.Series, plan: SamplingPlan
) -> Iterator[tuple[int, pl.DataFrame, int]]:
    """Give each week's impressions and the number of placed products its baskets could show.

    One week at a time, so the 20.9 million placements are never in memory together.
    """
    lines_of = tables.transactions.partition_by("week", as_dict=True)
    before = pl.DataFrame(schema={"product_id": pl.Int64, "num_purchases": pl.UInt32})
    for week in range(1, NUM_WEEKS + 1):
        lines = lines_of.get((week,))
        if lines is None:
            continue
        own = lines.filter(pl.col("household_id").is_in(kept.implode()))
        placed = placements(tables.promotions, week, own["store_id"].unique())
        shown = (
            own.select("basket_id", "store_id")
            .unique()
            .join(placed.group_by("store_id").len(), on="store_id")
        )
        yield week, week_impressions(own, placed, before, plan), int(shown["len"].sum())
        sold = lines.group_by("product_id").agg(pl.len().alias("num_purchases"))
        before = pl.concat([before, sold]).group_by("product_id").agg(pl.sum("num_purchases"))


def _events_and_entities(tables: Tables, kept: pl.Series) -> dict[str, pl.DataFrame]:
    def own(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.filter(pl.col("household_id").is_in(kept.implode()))

    contacts = tables_.campaign_contacts(tables.campaigns, tables.campaign_descriptions)
    return {
        "purchase": tables_.purchases(own(tables.transactions)),
        "redemption": own(tables_.redemptions(tables.coupon_redemptions)),
        "campaign_contact": own(contacts),
        "users": own(tables_.users(tables.transactions, tables.demographics)),
        "items": tables_.items(tables.products, tables.transactions),
    }


def _write_splits(path: Path, campaign_contacts: pl.DataFrame) -> None:
    # Campaigns 24 to 26 reached their households before the first week.
    starts_ms = [week_start_ms(1), *campaign_contacts["at_ms"].to_list()]
    windows = {name: list(window) for name, window in split_windows().items()}
    document = {"history_start_ms": min(starts_ms), **windows}
    text = _SPLITS_COMMENT
    for name, value in document.items():
        moments = [value] if isinstance(value, int) else value
        told = " to ".join(f"{datetime.fromtimestamp(m / 1000, UTC):%d %B %Y}" for m in moments)
        text += f"{name}: {value}  # {told}\n"
    path.write_text(text, encoding="utf-8")


def _report(
    out: Path, cut: Cut, frames: dict[str, pl.DataFrame], num_natural_rows: int
) -> BuildReport:
    impressions, items = frames["impressions"], frames["items"]
    unlisted = items.filter(pl.col("manufacturer_id").is_null())
    return BuildReport(
        folder=out,
        cut=cut,
        num_households=frames["users"].height,
        num_baskets=impressions["request_id"].n_unique(),
        num_rows=impressions.height,
        num_positives=int(impressions["purchase"].sum()),
        num_coupon_used=int(impressions["coupon_used"].sum()),
        num_natural_rows=num_natural_rows,
        num_rows_by_split={
            name: impressions.filter(pl.col("at_ms").is_between(*window, closed="left")).height
            for name, window in split_windows().items()
        },
        num_events={name: frames[name].height for name in SOURCES},
        num_items=items.height,
        num_unlisted_lines=frames["purchase"].join(unlisted, on="product_id", how="semi").height,
    )


def _stay_silent(stage: str, done_frac: float) -> None:
    """Tell nobody."""
