"""A label that an impression could know is named; an honest log is let through."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from features.datacheck import DataReport, check_dataset
from features.datacheck.rebuilt import count_different
from features.dataset import load_dataset
from features.histories import HistoryIndex
from tests.features.logfiles import Columns, edit_table
from tests.features.tiny_log import write_tiny_log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_log(tmp_path / "log", num_days=30)


def singles(report: DataReport, objective: str) -> dict[tuple[str, str], Any]:
    assert report.leaks is not None
    of_objective = [one for one in report.leaks.features if one.objective == objective]
    return {(one.of, one.feature): one for one in of_objective}


def test_an_honest_log_has_no_leak_and_every_feature_is_judged(folder: Path) -> None:
    report = check_dataset(folder)

    assert report.errors == ()
    assert report.leaks is not None
    assert report.leaks.num_rows == report.num_impressions == 720
    found = singles(report, "click")
    newest = "seconds since the newest visible event"
    expected = {("item", "price"), ("context", "slot"), ("user", "age"), ("contact", newest)}
    assert expected <= found.keys()
    assert ("purchase", "own item in the 60 s before") in found
    assert ("contact", "own item in the 60 s before") not in found  # it names no items
    assert all(0.3 < one.auc < 0.8 and one.ne > 0.8 for one in found.values())


def test_a_category_written_after_the_outcome_is_named(folder: Path) -> None:
    def spoil(columns: Columns) -> None:
        columns["slot"] = ["paid" if click else "free" for click in columns["click"]]

    edit_table(folder, "impressions", spoil)
    report = check_dataset(folder)

    (error,) = report.errors
    assert error.startswith("likely leak: 'slot' of context alone tells click (AUC 1.000, NE 0.0")
    one = singles(report, "click")["context", "slot"]
    assert one.auc == 1.0
    assert one.is_likely_leak
    assert not singles(report, "order")["context", "slot"].is_likely_leak


def test_a_number_that_is_low_only_for_positives_is_named(folder: Path) -> None:
    schema = (folder / "schema.yaml").read_text()
    more = "  - {name: dwell, of: context, kind: numeric, column: dwell}\nsources:"
    (folder / "schema.yaml").write_text(schema.replace("sources:", more, 1))
    rng = np.random.default_rng(0)

    def spoil(columns: Columns) -> None:
        columns["dwell"] = [rng.uniform(0, 1) - 2 * click for click in columns["click"]]

    edit_table(folder, "impressions", spoil)
    (error,) = check_dataset(folder).errors

    assert error.startswith("likely leak: 'dwell' of context alone tells click (AUC 1.000")


def clicks_as_events(folder: Path, *, shift_ms: int, of: float = 1.0) -> None:
    """Every click is a purchase of its own item too, so long after the impression."""
    shown = pq.read_table(folder / "impressions.parquet").to_pydict()
    rows = [row for row, click in enumerate(shown["click"]) if click]
    rows = rows[: int(len(rows) * of)]

    def add(columns: Columns) -> None:
        at_ms = [shown["ts"][row] + shift_ms for row in rows]
        columns["user_id"] += [shown["user_id"][row] for row in rows]
        columns["item_id"] += [shown["item_id"][row] for row in rows]
        columns["ts"] += at_ms
        columns["arrived"] += at_ms
        columns["quantity"] += [1.0] * len(rows)

    edit_table(folder, "purchase", add)


def own_item(report: DataReport) -> dict[tuple[str, int], tuple[float, float]]:
    assert report.leaks is not None
    return {
        (one.when, one.within_ms): (one.positive_frac or 0.0, one.negative_frac or 0.0)
        for one in report.leaks.own_item
        if one.objective == "click"
    }


def test_clicks_dated_just_before_their_impression_are_named(folder: Path) -> None:
    clicks_as_events(folder, shift_ms=-1000)

    report = check_dataset(folder)

    assert any(
        "own item in the 60 s before' of purchase alone tells click" in e for e in report.errors
    )
    assert own_item(report)["before", 60_000][0] == 1.0
    assert any("see their own item in the" in warning for warning in report.warnings)


@pytest.mark.parametrize(("shift_ms", "when"), [(0, "same moment"), (5000, "after")])
def test_outcomes_at_the_moment_or_after_it_are_counted_and_hidden(
    folder: Path, shift_ms: int, when: str
) -> None:
    clicks_as_events(folder, shift_ms=shift_ms)

    report = check_dataset(folder)

    assert report.errors == ()
    positive, negative = own_item(report)[when, 60_000 if shift_ms else 0]
    assert positive == 1.0
    assert negative < 0.2
    assert own_item(report)["before", 60_000][0] < 0.2


def test_an_event_that_arrives_after_the_impression_is_not_seen_by_it(folder: Path) -> None:
    clicks_as_events(folder, shift_ms=-1000)

    def delay(columns: Columns) -> None:
        columns["arrived"] = [at_ms + 60_000 for at_ms in columns["ts"]]

    edit_table(folder, "purchase", delay)
    report = check_dataset(folder)

    assert report.errors == ()
    assert own_item(report)["before", 60_000] == (0.0, 0.0)


def test_histories_of_test_impressions_come_out_the_same_without_later_events(
    folder: Path,
) -> None:
    dataset = load_dataset(folder)

    num_rebuilt, num_different = count_different(dataset, dataset.histories())

    assert num_rebuilt == 2 * min(200, len(dataset.impressions.between(*dataset.splits.test)))
    assert num_different == 0


def test_an_index_that_shows_the_future_is_found_out(folder: Path) -> None:
    dataset = load_dataset(folder)

    class Careless(HistoryIndex):
        def visible(self, source: str, user_keys: Any, at_ms: Any, *, max_length: int) -> Any:
            return super().visible(source, user_keys, at_ms + 86_400_000, max_length=max_length)

    careless = Careless({name: [segment] for name, segment in dataset.segments.items()})
    _, num_different = count_different(dataset, careless)

    assert num_different > 0


def test_too_few_rows_of_a_class_give_no_verdict(folder: Path) -> None:
    def spoil(columns: Columns) -> None:
        columns["ordered"] = [int(row % 100 == 0) for row in range(len(columns["ordered"]))]
        columns["slot"] = ["paid" if order else "free" for order in columns["ordered"]]

    edit_table(folder, "impressions", spoil)
    report = check_dataset(folder)

    assert singles(report, "order")["context", "slot"].auc is None
    assert report.errors == ()
