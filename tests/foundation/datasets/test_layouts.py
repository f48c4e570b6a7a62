"""Every public layout becomes a log that loads: counts, labels, moments and ids are exact."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from features.dataset import LogDataset, load_dataset
from features.errors import DataError
from features.ids import to_key
from features.schema import load_schema
from foundation.assembly import make_builder, to_examples
from foundation.datasets.layouts import LAYOUTS, ConversionReport, convert
from foundation.datasets.layouts.amazon_electronics.convert import TEST_DAY_S
from foundation.datasets.layouts.criteo.convert import START_MS, STEP_MS
from foundation.datasets.layouts.kuaivideo.convert import START_S
from tests.foundation.datasets.made_up import (
    KUAIVIDEO_COLUMNS,
    REVIEWED,
    SHANGHAI,
    WRITERS,
    seconds,
    write_csv,
)
from tests.foundation.small import CONFIG

WINDOWS = ("fm_train", "vm_train", "tune", "test")


def silent(what: str, num_rows: int) -> None:
    """Tell nobody."""


def build(name: str, folder: Path) -> ConversionReport:
    WRITERS[name](folder / "raw")
    return convert(LAYOUTS[name], folder / "raw", folder / "log", silent)


@cache
def built(name: str) -> tuple[LogDataset, ConversionReport]:
    with TemporaryDirectory() as folder:
        report = build(name, Path(folder))
        # What is mapped into memory stays readable when its files are gone.
        return load_dataset(Path(folder) / "log"), report


def by_example(dataset: LogDataset, values: np.ndarray) -> np.ndarray:
    return values[np.argsort(dataset.impressions.example_ids)]


# --- all of them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_row_written_is_loaded_and_every_window_has_some(name: str) -> None:
    dataset, report = built(name)
    assert len(dataset.impressions) == report.num_rows["impressions"]
    assert sorted(dataset.impressions.example_ids) == list(range(len(dataset.impressions)))
    for source, events in dataset.events.items():
        assert len(events) == report.num_rows[source]
    for window in WINDOWS:
        assert len(dataset.impressions.between(*getattr(dataset.splits, window)))


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_impression_is_of_a_listed_item(name: str) -> None:
    dataset, _ = built(name)
    assert (dataset.items.rows(dataset.impressions.item_keys) > 0).all()


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_vertical_reads_a_feature_of_items(name: str) -> None:
    schema = load_schema(LAYOUTS[name].template / "schema.yaml")
    of_items = {feature.name for feature in schema.features_of("item")}
    assert schema.verticals
    for vertical in schema.verticals:
        assert of_items & set(vertical.features)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_foundation_model_batch_is_built_with_the_histories_before_it(name: str) -> None:
    torch.set_num_threads(1)
    dataset, _ = built(name)
    test = dataset.impressions.between(*dataset.splits.test)
    batch = make_builder(dataset, CONFIG).build(to_examples(test))
    assert len(batch) == len(test)
    assert (batch.age_ms_L > 0).all()
    assert bool(len(batch.age_ms_L)) == (name != "criteo")


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_missing_file_is_told_with_what_is_expected_and_found(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path)
    gone, *others = sorted(p for p in tmp_path.rglob("*") if p.is_file())
    for path in others:
        if path.name.startswith("log_"):
            path.unlink()
    gone.rename(gone.with_name("renamed.dat"))
    with pytest.raises(DataError, match=rf"not the files of layout {name}") as caught:
        convert(LAYOUTS[name], tmp_path, tmp_path / "log", silent)
    assert "renamed.dat" in str(caught.value)
    for table in LAYOUTS[name].tables:
        assert table.pattern in str(caught.value)
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name != "criteo"])
def test_a_missing_column_is_told_with_its_file_before_anything_is_read(
    name: str, tmp_path: Path
) -> None:
    WRITERS[name](tmp_path)
    path = max((p for p in tmp_path.rglob("*.csv")), key=lambda p: p.stat().st_size)
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    (table,) = (t for t in LAYOUTS[name].tables if path.match(t.pattern))
    column = table.columns[1]
    header[header.index(column)] = "other"
    write_csv(path, ",".join(header), rows)
    with pytest.raises(DataError, match=rf"{path.name}: columns \['{column}'\] are missing") as got:
        convert(LAYOUTS[name], tmp_path, tmp_path / "log", silent)
    assert "'other'" in str(got.value)
    assert not (tmp_path / "log").exists()


def test_a_log_is_not_written_over_the_raw_files(tmp_path: Path) -> None:
    WRITERS["avazu"](tmp_path)
    with pytest.raises(DataError, match="another folder than that of the raw files"):
        convert(LAYOUTS["avazu"], tmp_path, tmp_path, silent)


# --- TaobaoAd ------------------------------------------------------------------------------------


def test_taobao_ads_keep_ids_labels_and_seconds_of_utc() -> None:
    dataset, _ = built("taobao-ad")
    first_s = seconds(2017, 5, 6, 9, SHANGHAI)
    assert first_s == seconds(2017, 5, 6, 1)
    assert by_example(dataset, dataset.impressions.at_ms)[0] == first_s * 1000
    assert list(by_example(dataset, dataset.impressions.user_keys)[:4]) == [581738] * 3 + [449818]
    assert list(by_example(dataset, dataset.impressions.item_keys)[:3]) == [1, 2, 63133]
    expected = [
        float((user + ad + 6) % 3 == 0) for user in (581738, 449818) for ad in (1, 2, 63133)
    ]
    assert list(by_example(dataset, dataset.impressions.labels["click"])[:6]) == expected


def test_taobao_ads_of_one_user_and_second_are_one_request() -> None:
    dataset, _ = built("taobao-ad")
    requests = by_example(dataset, dataset.impressions.request_ids)
    assert requests[0] == requests[1] != requests[2]
    assert len(set(requests)) == 48


def test_taobao_behaviours_of_no_possible_day_are_left_out_and_counted() -> None:
    dataset, report = built("taobao-ad")
    assert report.num_dropped == {"behaviours outside 22 April to 13 May 2017": 2}
    assert dataset.events["behavior"].at_ms.min() == seconds(2017, 4, 22, 0, SHANGHAI) * 1000


def test_the_word_null_of_taobao_is_no_brand_and_city_is_read_in_spite_of_its_blank() -> None:
    dataset, _ = built("taobao-ad")
    brand = dataset.items.column("brand")[dataset.items.rows(np.array([1, 2]))]
    assert brand[0] == 1 < brand[1]
    city = dataset.users.column("city")[dataset.users.rows(np.array([581738, 449818]))]
    assert city[0] > 2
    assert city[1] == 1


# --- KuaiRand ------------------------------------------------------------------------------------


def test_kuairand_keeps_milliseconds_and_all_three_labels() -> None:
    dataset, _ = built("kuairand")
    shown = dataset.impressions
    # The file of random exposures comes first by name, on 22 April.
    assert by_example(dataset, shown.at_ms)[0] == seconds(2022, 4, 22, 4) * 1000 + 301 + 30
    assert by_example(dataset, shown.item_keys)[0] == 30
    assert set(shown.labels) == {"click", "long_view", "like"}
    assert shown.labels["click"].sum() == 71
    assert shown.labels["like"].sum() == 0


def test_a_kuairand_click_is_known_when_the_video_is_left() -> None:
    dataset, _ = built("kuairand")
    clicks = dataset.events["click"]
    assert (clicks.arrival_ms - clicks.at_ms == 8000).all()


def test_a_kuairand_video_has_the_first_of_its_tags(tmp_path: Path) -> None:
    build("kuairand", tmp_path)
    videos = pq.read_table(tmp_path / "log" / "videos.parquet")
    assert videos["tag"].to_pylist() == ["12", "5", None]
    assert videos["video_duration"].to_pylist() == [17200.0, None, 9000.0]


def test_two_versions_of_kuairand_in_one_folder_are_refused(tmp_path: Path) -> None:
    WRITERS["kuairand"](tmp_path)
    (found,) = tmp_path.rglob("user_features_pure.csv")
    (found.parent / "user_features_1k.csv").write_bytes(found.read_bytes())
    with pytest.raises(DataError, match=r"expected one user_features\*.csv, found 2"):
        convert(LAYOUTS["kuairand"], tmp_path, tmp_path / "log", silent)


# --- KuaiVideo -----------------------------------------------------------------------------------


def test_kuaivideo_moments_are_ranks_and_the_test_file_comes_last() -> None:
    dataset, _ = built("kuaivideo")
    at_s = by_example(dataset, dataset.impressions.at_ms) // 1000
    assert list(at_s - START_S) == [row // 2 for row in range(60)]
    assert dataset.splits.test == ((START_S + 20) * 1000, (START_S + 30) * 1000)
    assert by_example(dataset, dataset.impressions.item_keys)[1] == 3_239_001


def test_kuaivideo_rows_become_events_of_clicks_and_skips() -> None:
    dataset, _ = built("kuaivideo")
    labels = dataset.impressions.labels["click"]
    assert len(dataset.events["click"]) == labels.sum() == 20
    assert len(dataset.events["skip"]) == 40


def test_a_kuaivideo_file_out_of_order_is_refused_with_its_row(tmp_path: Path) -> None:
    WRITERS["kuaivideo"](tmp_path)
    rows = [(2.0, 1, 5, 0, 0, 0, "", ""), (1.0, 1, 5, 0, 0, 0, "", "")]
    write_csv(tmp_path / "train.csv", KUAIVIDEO_COLUMNS, rows)
    with pytest.raises(DataError, match=r"train.csv, column 'timestamp'.*first rows \[1\]"):
        convert(LAYOUTS["kuaivideo"], tmp_path, tmp_path / "log", silent)


# --- Amazon Electronics --------------------------------------------------------------------------


def test_amazon_histories_before_a_test_row_are_the_public_lists() -> None:
    dataset, _ = built("amazon-electronics")
    events = dataset.events["review"]
    for user, items in REVIEWED.items():
        of_user = events.user_keys == user
        order = np.argsort(events.at_ms[of_user])
        assert events.item_keys is not None
        assert list(events.item_keys[of_user][order]) == items[:-1]
        assert events.at_ms[of_user].max() == (TEST_DAY_S - 86_400) * 1000


def test_an_amazon_row_sees_exactly_the_history_that_it_names() -> None:
    dataset, _ = built("amazon-electronics")
    shown, events = dataset.impressions, dataset.events["review"]
    for user, at_ms, item, label in zip(
        shown.user_keys, shown.at_ms, shown.item_keys, shown.labels["review"], strict=True
    ):
        num_before = int(((events.user_keys == user) & (events.at_ms < at_ms)).sum())
        expected = REVIEWED[user][num_before] if label else 10 + num_before
        assert item == expected


def test_an_amazon_user_without_a_test_row_is_refused(tmp_path: Path) -> None:
    WRITERS["amazon-electronics"](tmp_path)
    path = tmp_path / "test.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if ",3," not in line) + "\n")
    with pytest.raises(DataError, match=r"train.csv.*not before a row of the same user"):
        convert(LAYOUTS["amazon-electronics"], tmp_path, tmp_path / "log", silent)


# --- Criteo --------------------------------------------------------------------------------------


def test_criteo_rows_are_users_of_their_own_in_the_order_of_the_file() -> None:
    dataset, _ = built("criteo")
    shown = dataset.impressions
    assert list(shown.user_keys) == list(range(40))
    assert list(shown.at_ms) == [START_MS + STEP_MS * row for row in range(40)]
    assert list(shown.labels["click"]) == [float(row % 4 == 0) for row in range(40)]


def test_criteo_numbers_below_zero_are_moved_to_zero_and_counted() -> None:
    dataset, _ = built("criteo")
    assert dataset.impressions.numeric["I2"][0] == 0
    assert dataset.impressions.numeric["I2"][39] == pytest.approx(np.log1p(36))
    assert dataset.report.num_clipped["impressions/I2"] == 3


def test_a_criteo_file_of_another_width_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("1\t2\t3\n")
    with pytest.raises(DataError, match="expected 40 fields a line and no header, got 3"):
        convert(LAYOUTS["criteo"], tmp_path, tmp_path / "log", silent)


# --- Avazu ---------------------------------------------------------------------------------------


def test_avazu_hours_are_moments_of_utc_and_the_address_is_the_user() -> None:
    dataset, _ = built("avazu")
    shown = dataset.impressions
    assert by_example(dataset, shown.at_ms)[2] == seconds(2014, 10, 21, 6) * 1000
    assert by_example(dataset, shown.user_keys)[2] == to_key("b3cf8def", "string")
    assert by_example(dataset, shown.item_keys)[2] == 15708
    assert list(by_example(dataset, shown.labels["click"])[:3]) == [1, 0, 1]


def test_an_avazu_hour_that_is_none_is_told_with_its_row_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    WRITERS["avazu"](tmp_path / "raw")
    path = tmp_path / "raw" / "train.csv"
    path.write_text(path.read_text().replace(",14102206,", ",141022,"))
    with pytest.raises(DataError, match=r"column 'hour': 1 hours.*first rows \[5\].*'141022'"):
        convert(LAYOUTS["avazu"], tmp_path / "raw", tmp_path / "log", silent)
    assert list((tmp_path / "log").iterdir()) == []
