import datetime
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from features.arrays import FloatArray, IntArray
from features.dataset import LogDataset, load_dataset
from features.encoding import FIRST, NULL, UNKNOWN
from features.errors import DataError, SchemaError
from features.histories import HistoryIndex
from tests.features.logfiles import edit_table, edit_yaml
from tests.features.tiny_log import DAY_MS, START_MS, write_tiny_log

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_log(tmp_path / "log", num_days=20)


def prepared(folder: Path) -> list[str]:
    """What is kept, a fingerprint replaced by a star."""
    names = [path.name for path in (folder / "prepared").iterdir()]
    return sorted(name[:4] + "*" if name.startswith("log-") else name for name in names)


def refusal(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        load_dataset(folder)
    assert not (folder / "prepared").exists()
    return str(caught.value)


def fingerprint(dataset: LogDataset) -> str:
    shown = dataset.impressions
    arrays: list[IntArray | FloatArray] = [shown.example_ids, shown.request_ids, shown.user_keys]
    arrays += [shown.item_keys, shown.at_ms]
    arrays += [*shown.codes.values(), *shown.labels.values(), dataset.items.codes]
    arrays += [dataset.items.numeric, dataset.users.codes]
    for events in dataset.events.values():
        arrays += [events.user_keys, events.at_ms, events.arrival_ms, *events.codes.values()]
    return json.dumps([dataset.encoder.encoder_id, *(a.tolist() for a in arrays)])


def test_a_log_is_read_whole_in_time_order_with_its_labels(folder: Path) -> None:
    raw = pq.read_table(folder / "impressions.parquet")

    dataset = load_dataset(folder)

    shown = dataset.impressions
    assert len(shown) == len(raw)
    assert (np.diff(shown.at_ms) >= 0).all()
    row = raw.slice(int(shown.example_ids[37]), 1).to_pylist()[0]
    assert shown.item_keys[37] == row["item_id"]
    assert shown.at_ms[37] == row["ts"]
    assert shown.labels["click"][37] == row["click"]
    assert shown.labels["click"].sum() == sum(raw["click"].to_pylist()) > 0
    assert (shown.codes["surface"] >= FIRST).all()
    assert len(dataset.events["purchase"]) == pq.read_table(folder / "purchase.parquet").num_rows
    assert dataset.events["contact"].item_keys is None


def test_entities_without_a_row_are_cold_and_numbers_have_their_default(folder: Path) -> None:
    dataset = load_dataset(folder)
    items, users = dataset.items, dataset.users

    assert items.rows(np.array([100, 101, 5]))[2] == 0
    assert items.codes[0].tolist() == [UNKNOWN] * 3
    assert users.codes[users.rows(np.array([999]))[0]].tolist() == [NULL]  # as the ranker has it
    price = items.numeric[items.rows(np.array([100, 101, 5])), 0]
    np.testing.assert_allclose(price, np.log1p([3, 1, 3]), rtol=1e-6)  # 100 has none


def test_a_value_is_learnt_only_from_before_the_training_window_ends(folder: Path) -> None:
    splits = yaml.safe_load((folder / "splits.yaml").read_text())
    until_ms = splits["fm_train"][1]

    def mark(columns: dict[str, Any]) -> None:
        late = [at >= until_ms for at in columns["ts"]]
        columns["slot"] = ["late" if x else s for x, s in zip(late, columns["slot"], strict=True)]

    edit_table(folder, "impressions", mark)
    dataset = load_dataset(folder)

    slots = dataset.impressions.codes["slot"]
    is_late = dataset.impressions.at_ms >= until_ms
    assert (slots[is_late] == UNKNOWN).all()
    assert (slots[~is_late] >= FIRST).all()
    assert dataset.encoder.codes("slot", ["late", "slot0"])[0] == UNKNOWN


def test_an_event_that_arrives_too_late_teaches_nothing(folder: Path) -> None:
    until_ms = yaml.safe_load((folder / "splits.yaml").read_text())["fm_train"][1]

    def add(columns: dict[str, Any]) -> None:
        new = {"user_id": 1, "item_id": 555, "ts": until_ms - 2, "arrived": until_ms, "quantity": 1}
        old = {**new, "item_id": 556, "arrived": until_ms - 1}
        for row in (new, old):
            for name in columns:
                columns[name].append(row[name])

    edit_table(folder, "purchase", add)
    encoder = load_dataset(folder).encoder

    assert encoder.codes("item_id", [555])[0] == UNKNOWN
    assert encoder.codes("item_id", [556])[0] >= FIRST


def test_a_feature_of_an_item_that_training_never_meets_is_unknown(folder: Path) -> None:
    def add(columns: dict[str, Any]) -> None:
        for name, value in {"item_id": 999, "kind": "future", "brand": "b", "price": 1.0}.items():
            columns[name].append(value)
        columns["product_label"].append("Thing")

    edit_table(folder, "items", add)
    items = load_dataset(folder).items

    rows = items.rows(np.array([999, 101]))
    assert rows[0] > 0
    assert items.column("kind")[rows[0]] == UNKNOWN
    assert items.column("kind")[rows[1]] >= FIRST


def test_a_vocabulary_counts_how_often_training_meets_a_value(folder: Path) -> None:
    def rename(columns: dict[str, Any]) -> None:
        columns["kind"] = [f"kind of {item}" for item in columns["item_id"]]

    edit_table(folder, "items", rename)
    edit_yaml(folder, "schema.yaml", lambda d: d["vocabularies"][1].update(min_count=5))

    assert load_dataset(folder).encoder.codes("kind", ["kind of 101"])[0] >= FIRST


def test_null_features_have_the_null_code(folder: Path) -> None:
    users = load_dataset(folder).users

    assert users.column("age")[users.rows(np.array([0]))[0]] == NULL


def test_a_second_load_gives_the_same_from_what_was_prepared(folder: Path) -> None:
    first = fingerprint(load_dataset(folder))
    kept = (folder / "prepared" / "encoder.json").read_bytes()

    assert fingerprint(load_dataset(folder)) == first
    assert (folder / "prepared" / "encoder.json").read_bytes() == kept
    assert prepared(folder) == [".lock", "encoder.json", "log-*"]


def test_codes_stay_when_later_rows_bring_new_values(folder: Path) -> None:
    before = load_dataset(folder)
    edit_table(folder, "items", lambda c: c.update(kind=["fresh", *c["kind"][1:]]))

    after = load_dataset(folder)

    assert after.encoder.encoder_id == before.encoder.encoder_id
    assert after.items.column("kind").tolist()[2:] == before.items.column("kind").tolist()[2:]
    assert after.items.column("kind")[1] == UNKNOWN


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("schema.yaml", lambda d: d.update(version=2), "but schema.yaml is now"),
        (
            "splits.yaml",
            lambda d: d["fm_train"].__setitem__(1, d["fm_train"][1] - 1),
            "now ends at",
        ),
    ],
)
def test_what_was_prepared_for_something_else_is_refused_with_the_remedy(
    folder: Path, name: str, change: Callable[[dict[str, Any]], object], told: str
) -> None:
    load_dataset(folder)
    edit_yaml(folder, name, change)

    with pytest.raises(DataError, match=rf"{told}.*delete .*prepared to fit again"):
        load_dataset(folder)
    (folder / "prepared" / "encoder.json").unlink()
    assert len(load_dataset(folder).impressions) > 0


def test_a_damaged_prepared_file_is_refused_with_the_remedy(folder: Path) -> None:
    load_dataset(folder)
    path = folder / "prepared" / "encoder.json"
    path.write_bytes(path.read_bytes()[:100])

    with pytest.raises(DataError, match=r"encoder\.json: not an encoder.*delete .*prepared"):
        load_dataset(folder)


def test_processes_that_load_at_once_agree_and_leave_one_file(folder: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from features.dataset import load_dataset\n"
        "print(load_dataset(Path(sys.argv[1])).encoder.encoder_id)"
    )
    command = [sys.executable, "-c", script, str(folder)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) for _ in range(3)]

    told = {process.communicate(timeout=120)[0].strip() for process in running}

    assert [process.returncode for process in running] == [0, 0, 0]
    assert told == {load_dataset(folder).encoder.encoder_id.encode()}
    assert prepared(folder) == [".lock", "encoder.json", "log-*"]


def test_labels_that_are_missing_or_not_0_or_1_stop_with_counts_and_rows(folder: Path) -> None:
    csv = pq.read_table(folder / "impressions.parquet").to_pydict()
    csv["click"][:5] = ["1", "", "nan", "2", "0"]
    lines = [",".join(csv), *(",".join(map(str, row)) for row in zip(*csv.values(), strict=True))]
    (folder / "impressions.csv").write_text("\n".join(lines) + "\n")
    edit_yaml(folder, "schema.yaml", lambda d: d["impressions"].update(path="impressions.csv"))

    told = refusal(folder)

    assert "impressions.csv, column 'click': 2 labels are missing; first rows [1, 2]" in told
    assert "impressions.csv, column 'click': 1 labels are not 0 or 1; first rows [3]" in told
    assert "row 3 holds 2" in told


@pytest.mark.parametrize(
    ("table", "change", "told"),
    [
        (
            "impressions",
            lambda c: c["click"].__setitem__(3, None),
            "'click': 1 labels are missing; first rows [3]",
        ),
        ("impressions", lambda c: c["ordered"].__setitem__(3, 2), "'ordered': 1 labels are not 0"),
        (
            "impressions",
            lambda c: c["user_id"].__setitem__(4, None),
            "'user_id': 1 ids are missing",
        ),
        (
            "impressions",
            lambda c: c["example_id"].__setitem__(4, None),
            "'example_id': 1 ids are m",
        ),
        (
            "impressions",
            lambda c: c["example_id"].__setitem__(4, 0),
            "1 example ids are there alre",
        ),
        ("impressions", lambda c: c["surface"].__setitem__(2, "tv"), "row 2 holds 'tv'"),
        ("impressions", lambda c: c["ts"].__setitem__(1, 1_700_000_000), "looks like unit: s"),
        ("impressions", lambda c: c.pop("slot"), "columns ['slot'] are missing"),
        ("items", lambda c: c["item_id"].__setitem__(7, 100), "1 ids are repeated; first rows [7]"),
        ("items", lambda c: c["price"].__setitem__(7, -1.0), "items.parquet: feature 'price'"),
        (
            "items",
            lambda c: c["price"].__setitem__(7, float("inf")),
            "items.parquet: feature 'pric",
        ),
        ("purchase", lambda c: c["quantity"].__setitem__(2, 51.0), "first rows [2]"),
        ("purchase", lambda c: c["arrived"].__setitem__(2, None), "'arrived': 1 times are missing"),
        (
            "contact",
            lambda c: c.update(user_id=["x"] * len(c["ts"])),
            "contact.parquet, column 'us",
        ),
    ],
)
def test_what_is_wrong_in_a_table_stops_the_load_with_its_place(
    folder: Path, table: str, change: Callable[[dict[str, Any]], object], told: str
) -> None:
    edit_table(folder, table, change)

    message = refusal(folder)

    assert f"{table}.parquet" in message
    assert told in message


def test_a_source_may_have_any_name_and_read_a_column_twice(folder: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        document["sources"][1]["name"] = "impressions"
        document["sources"][0]["columns"].append(
            {"name": "what", "kind": "categorical", "column": "item_id", "vocabulary": "item_id"}
        )

    edit_yaml(folder, "schema.yaml", change)
    dataset = load_dataset(folder)

    purchase = dataset.events["purchase"]
    assert purchase.item_keys is not None
    np.testing.assert_array_equal(
        purchase.codes["what"], dataset.encoder.codes("item_id", purchase.item_keys)
    )
    assert len(dataset.events["impressions"]) > 0


def write_text_times(folder: Path, *, timezone: str | None = "UTC") -> Path:
    """Impressions in naive text, purchases with offsets, contacts in naive Parquet timestamps."""

    def text(at_ms: int, hours: int | None) -> str:
        zone = datetime.timezone(datetime.timedelta(hours=hours or 0))
        moment = datetime.datetime.fromtimestamp(at_ms / 1000, zone)
        return (moment if hours is not None else moment.replace(tzinfo=None)).isoformat()

    edit_table(folder, "impressions", lambda c: c.update(ts=[text(t, None) for t in c["ts"]]))
    edit_table(folder, "purchase", lambda c: c.update(ts=[text(t, 2) for t in c["ts"]]))
    stamp = pa.timestamp("us")
    edit_table(
        folder,
        "contact",
        lambda c: c.update(ts=pa.array(c["ts"]).cast(pa.timestamp("ms")).cast(stamp)),
    )

    def declare(document: dict[str, Any]) -> None:
        zone = {} if timezone is None else {"timezone": timezone}
        document["time"] = {"column": "ts", "unit": "text", **zone}
        document["sources"][0]["time"] = {"column": "ts", "unit": "text"}
        document["sources"][1]["time"] = {"column": "ts", "unit": "text", "timezone": "UTC"}

    edit_yaml(folder, "schema.yaml", declare)
    return folder


def test_the_zone_of_the_machine_changes_nothing(folder: Path) -> None:
    expected = fingerprint(load_dataset(folder)).split(",", 1)[1].strip()
    (folder / "prepared" / "encoder.json").unlink()
    write_text_times(folder)
    script = (
        "import sys; from pathlib import Path; from features.dataset import load_dataset\n"
        "from tests.features.test_dataset import fingerprint\n"
        "print(fingerprint(load_dataset(Path(sys.argv[1]))).split(',', 1)[1])"
    )
    for zone in ("UTC", "Asia/Tokyo"):
        command = [sys.executable, "-c", script, str(folder)]
        environment = {**os.environ, "TZ": zone, "PYTHONPATH": str(ROOT)}
        found = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert found.stdout.strip() == expected


def test_naive_times_without_a_declared_zone_ask_for_it(folder: Path) -> None:
    told = refusal(write_text_times(folder, timezone=None))

    assert "impressions.parquet, column 'ts'" in told
    assert "declare the column's `timezone`" in told


def test_events_are_in_the_history_to_the_exact_half_hour_and_stay_distinct(folder: Path) -> None:
    at_ms = START_MS + 10 * DAY_MS
    text = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
    naive = text.replace(tzinfo=None).isoformat(sep=" ")
    offset = datetime.timezone(datetime.timedelta(hours=2))
    event = (text - datetime.timedelta(minutes=30)).astimezone(offset)
    write_text_times(folder)

    def one_user(columns: dict[str, Any]) -> None:
        columns["user_id"] = [77, 77, *columns["user_id"][2:]]
        later = (event + datetime.timedelta(milliseconds=333)).isoformat()
        columns["ts"] = [later, event.isoformat(), *columns["ts"][2:]]
        columns["arrived"] = [START_MS, START_MS, *columns["arrived"][2:]]

    edit_table(folder, "purchase", one_user)
    edit_table(
        folder,
        "impressions",
        lambda c: (c["ts"].__setitem__(0, naive), c["user_id"].__setitem__(0, 77)),
    )
    dataset = load_dataset(folder)

    shown = dataset.impressions
    (row,) = np.flatnonzero(shown.user_keys == 77)
    history = HistoryIndex.build(dataset.events).visible(
        "purchase", shown.user_keys[[row]], shown.at_ms[[row]], max_length=8
    )
    assert (shown.at_ms[row] - history.at_ms).tolist() == [1_800_000, 1_799_667]


def test_the_wrong_schema_or_no_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"schema\.yaml"):
        load_dataset(tmp_path / "nowhere")


def test_weights_are_read_and_must_be_above_0(folder: Path) -> None:
    edit_yaml(folder, "schema.yaml", lambda d: d["objectives"][0].update(weight_column="w"))
    edit_table(folder, "impressions", lambda c: c.update(w=[2.0] * len(c["ts"])))
    assert (load_dataset(folder).impressions.weights == 2).all()
    edit_table(folder, "impressions", lambda c: c["w"].__setitem__(5, 0.0))

    with pytest.raises(DataError, match=r"'w': 1 weights are missing.*first rows \[5\]"):
        load_dataset(folder)
