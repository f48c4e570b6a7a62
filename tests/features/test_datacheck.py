import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from features.datacheck import check_dataset
from features.dataset import load_dataset
from features.encoding import NULL
from features.histories import HistoryIndex
from tests.features.logfiles import edit_table
from tests.features.tiny_log import write_tiny_log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_tiny_log(tmp_path / "log", num_days=20)
    edit_table(folder, "contact", without_repeats)
    return folder


def without_repeats(columns: dict[str, Any]) -> None:
    """The tiny log contacts everybody twice at the same moment."""
    rows = list(dict.fromkeys(zip(*columns.values(), strict=True)))
    columns.update(zip(columns, map(list, zip(*rows, strict=True)), strict=True))


def test_a_sound_log_is_counted_and_dated(folder: Path) -> None:
    report = check_dataset(folder)

    assert report.errors == ()
    assert report.warnings == ()
    assert (report.num_impressions, report.num_users, report.num_requests) == (480, 6, 96)
    assert report.num_items == 20
    assert (report.span.first, report.span.last) == ("2023-11-18", "2023-12-03")
    assert report.rows_by_window == {
        "fm_train": 180,
        "vm_train": 120,
        "tune": 60,
        "test": 120,
        "in none": 0,
    }
    assert (report.cold_user_frac, report.cold_item_frac) == (0.0, 0.0)


def test_label_rates_are_those_of_the_table(folder: Path) -> None:
    raw = pq.read_table(folder / "impressions.parquet").to_pydict()
    start, end = yaml.safe_load((folder / "splits.yaml").read_text())["test"]
    rows = zip(raw["ts"], raw["surface"], raw["click"], strict=True)
    expected = [click for at, surface, click in rows if start <= at < end and surface == "story"]

    rates = {(r.window, r.surface, r.objective): r for r in check_dataset(folder).label_rates}

    assert len(rates) == 4 * 3 * 2
    story = rates["test", "story", "click"]
    assert (story.num_rows, story.num_positive) == (len(expected), sum(expected))
    assert story.rate_frac == pytest.approx(np.mean(expected))
    whole, feed = rates["test", "", "click"], rates["test", "feed", "click"]
    assert whole.num_positive == story.num_positive + feed.num_positive > 0


def test_nulls_and_unknowns_are_shares_of_the_impressions(folder: Path) -> None:
    dataset = load_dataset(folder)

    shares = {(s.of, s.feature): s for s in check_dataset(folder).features}

    age = shares["user", "age"]
    assert age.null_frac == pytest.approx(1 / 6)  # one of six users says no age
    assert age.num_codes == dataset.encoder.size("age")
    assert (dataset.users.column("age")[1:] == NULL).sum() == 1
    assert shares["context", "slot"].null_frac == 0
    assert shares["contact", "channel"].unknown_frac == 0
    assert ("item", "price") not in shares


def test_history_lengths_are_those_that_a_test_impression_may_see(folder: Path) -> None:
    dataset = load_dataset(folder)
    test = dataset.impressions.between(*dataset.splits.test)
    lengths = (
        HistoryIndex.build(dataset.events)
        .visible("purchase", test.user_keys, test.at_ms, max_length=16)
        .lengths
    )

    purchase, contact = check_dataset(folder).sources

    assert purchase.visible_at_test["p50"] == np.sort(lengths)[len(lengths) // 2 - 1] == 16
    assert contact.visible_at_test["p0"] > 0
    assert contact.visible_at_test["p100"] <= 6
    assert (purchase.num_events, purchase.num_users) == (240, 6)
    assert purchase.span.first == "2023-11-15"
    assert 0 < purchase.num_late < 240
    assert contact.num_late == 0


def test_the_report_is_plain_json(folder: Path) -> None:
    document = dataclasses.asdict(check_dataset(folder))

    assert json.loads(json.dumps(document))["num_impressions"] == 480


def test_what_stops_the_load_is_the_report(folder: Path) -> None:
    edit_table(folder, "impressions", lambda c: c["click"].__setitem__(3, None))

    report = check_dataset(folder)

    (error,) = report.errors
    assert "impressions.parquet, column 'click': 1 labels are missing" in error
    assert report.num_impressions == 0
    assert not (folder / "prepared").exists()


def test_repeated_example_ids_stop_the_load(folder: Path) -> None:
    edit_table(folder, "impressions", lambda c: c["example_id"].__setitem__(9, 4))

    (error,) = check_dataset(folder).errors
    assert "1 example ids are there already in an earlier row; first rows [9]" in error


def test_a_feature_that_is_mostly_unknown_and_a_source_without_events_are_warnings(
    folder: Path,
) -> None:
    load_dataset(folder)
    edit_table(folder, "impressions", lambda c: c.update(slot=["new"] * len(c["ts"])))
    empty = pq.read_table(folder / "contact.parquet").slice(0, 0)
    pq.write_table(empty, folder / "contact.parquet")

    report = check_dataset(folder)

    assert report.warnings[0].startswith("feature slot of context: 100% of its values are unknown")
    assert report.warnings[1] == "source contact holds no events"
    assert report.sources[1].span.first is None


def test_every_fault_of_a_schema_is_an_error_of_its_own(folder: Path) -> None:
    text = (folder / "schema.yaml").read_text()
    text = text.replace("max_length: 8", "max_length: 0").replace(
        "soft_ttl_ms: 6", "soft_ttl_ms: -6"
    )
    (folder / "schema.yaml").write_text(text)

    assert len(check_dataset(folder).errors) == 2


@pytest.mark.parametrize("name", ["schema.yaml", "items.parquet"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()

    (error,) = check_dataset(folder).errors
    assert name in error


def test_a_window_without_rows_is_an_error_and_one_with_one_class_a_warning(folder: Path) -> None:
    splits = yaml.safe_load((folder / "splits.yaml").read_text())
    start, end = splits["test"]

    def change(columns: dict[str, Any]) -> None:
        is_test = [start <= at < end for at in columns["ts"]]
        columns["ordered"] = [
            0 if test else x for test, x in zip(is_test, columns["ordered"], strict=True)
        ]

    edit_table(folder, "impressions", change)
    splits["tune"] = [splits["tune"][1] - 1, splits["tune"][1]]
    (folder / "splits.yaml").write_text(yaml.safe_dump(splits))

    report = check_dataset(folder)
    assert report.errors == ("window tune of splits.yaml holds no impressions",)
    assert report.warnings == ("window test: every label of order is 0; AUC is undefined there",)


def test_ids_that_do_not_meet_their_table_are_a_warning(folder: Path) -> None:
    edit_table(folder, "users", lambda c: c.update(user_id=[u + 1000 for u in c["user_id"]]))

    report = check_dataset(folder)

    assert report.cold_user_frac == 1.0
    assert report.warnings[0].startswith("100% of the impressions name a user that has no row")
    ages = next(shares for shares in report.features if shares.feature == "age")
    assert (ages.null_frac, ages.unknown_frac) == (1.0, 0.0)
