"""A draft guesses roles and types from files, says why, and leaves open what it cannot tell."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import yaml

from features.datacheck import check_dataset
from features.dataset import load_dataset
from features.errors import DataError, SchemaError
from features.schema import Schema, load_schema
from features.schemadraft import Draft, draft_schema
from features.splits import load_splits
from tests.features.logfiles import Columns, edit_table
from tests.features.tiny_log import DAY_MS, START_MS, write_tiny_log
from tests.services.cli.email_campaign import write_email_campaign


def without_documents(folder: Path) -> Path:
    for path in folder.glob("*.yaml"):
        path.unlink()
    return folder


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return without_documents(write_tiny_log(tmp_path / "log", num_days=20))


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name != "prepared")


def written(folder: Path) -> Draft:
    draft = draft_schema(files_of(folder), folder)
    (folder / "schema.yaml").write_text(draft.schema)
    if draft.splits is not None:
        (folder / "splits.yaml").write_text(draft.splits)
    return draft


def drafted(folder: Path) -> Schema:
    assert written(folder).todos == ()
    return load_schema(folder / "schema.yaml")


def todos(folder: Path) -> str:
    draft = written(folder)
    with pytest.raises(SchemaError) as refused:
        load_schema(folder / "schema.yaml")
    assert "TODO" in str(refused.value)
    assert len(str(refused.value).splitlines()) == len(draft.todos)
    return "\n".join(draft.todos)


def test_a_folder_of_parquet_gets_the_roles_that_a_person_would_give(tiny: Path) -> None:
    schema = drafted(tiny)

    assert (schema.user.column, schema.user.dtype) == ("user_id", "int64")
    assert (schema.item.column, schema.item.dtype) == ("item_id", "int64")
    assert (schema.time.column, schema.time.unit) == ("ts", "ms")
    shown = schema.impressions
    assert (shown.example_column, shown.request_column) == ("example_id", "request_id")
    assert (shown.surface_column, shown.surfaces) == ("surface", ("feed", "story"))
    assert schema.users is not None
    assert (schema.users.path, schema.items.path) == ("users.parquet", "items.parquet")
    assert {o.label_column for o in schema.objectives} == {"click", "ordered"}
    purchase, contact = schema.source("purchase"), schema.source("contact")
    assert (purchase.user_column, purchase.item_column) == ("user_id", "item_id")
    assert purchase.arrival is not None
    assert purchase.arrival.column == "arrived"
    assert (contact.item_column, contact.arrival) == (None, None)
    assert schema.verticals[0].memory_source == "purchase"


def test_features_have_owners_and_kinds(tiny: Path) -> None:
    schema = drafted(tiny)

    found = {f.name: (f.of, f.kind) for f in schema.features}
    assert found["kind"] == ("item", "categorical")
    assert found["price"] == ("item", "numeric")
    assert found["age"] == ("user", "categorical")
    assert found["slot"] == ("context", "categorical")
    assert schema.feature("price").default == 0  # one of them is missing
    assert schema.source("purchase").columns[0].kind == "numeric"


def test_a_draft_without_a_todo_loads_and_can_be_trained_on(tiny: Path) -> None:
    drafted(tiny)

    report = check_dataset(tiny)

    assert report.errors == ()
    assert report.num_impressions == 480
    assert min((report.rows_by_window or {})[window] for window in ("fm_train", "test")) > 50


def test_every_guess_says_what_it_rests_on(tiny: Path) -> None:
    text = written(tiny).schema

    assert "# guessed: 4 distinct values of 20 -- correct me" in text
    assert "# guessed: 6 ids in the sample, whole numbers everywhere -- correct me" in text
    assert "impressions.parquet: 480 rows were looked at, all of it" in text
    assert "# guessed: its name says so, " in text


def test_windows_hold_the_shares_that_the_comment_says(tiny: Path) -> None:
    written(tiny)

    splits = load_splits(tiny / "splits.yaml")
    at_ms = np.array(pq.read_table(tiny / "impressions.parquet")["ts"])
    shares = [
        np.mean((at_ms >= start) & (at_ms < end))
        for start, end in (splits.fm_train, splits.vm_train, splits.tune, splits.test)
    ]
    assert shares == pytest.approx([0.45, 0.2, 0.05, 0.15], abs=0.05)
    assert splits.test[1] == at_ms.max() + 1


def test_a_strangers_export_of_odd_text_is_drafted_whole(tmp_path: Path) -> None:
    folder = without_documents(write_email_campaign(tmp_path / "mail export"))

    schema = drafted(folder)

    assert (schema.user.column, schema.user.dtype) == ("Abo-Nr.", "string")
    assert (schema.item.column, schema.item.dtype) == ("offer code", "string")
    assert schema.time.timezone == "UTC"  # the column's name says so
    assert (schema.impressions.path, schema.impressions.delimiter) == ("sends", ";")
    assert (schema.items.encoding, schema.items.delimiter) == ("latin-1", ";")
    assert schema.users is None
    users = {s.name: (s.user_column, s.item_column) for s in schema.sources}
    assert users == {
        "opens": ("subscriber", None),
        "orders": ("customer", "article"),
        "web": ("uid", "sku"),
    }
    units = {s.name: s.time.unit for s in schema.sources}
    assert units == {"opens": "text", "orders": "ms", "web": "s"}
    arrival = schema.source("orders").arrival
    assert arrival is not None
    assert arrival.column == "exported_ms"
    assert {o.label_column: o.bad_labels for o in schema.objectives} == {
        "clicked?": "drop",
        "bought?": "stop",
    }
    assert check_dataset(folder).errors == ()


def test_files_whose_names_differ_in_digits_are_one_table(tmp_path: Path) -> None:
    folder = without_documents(write_email_campaign(tmp_path / "export"))
    for path in (folder / "sends").iterdir():
        shutil.move(path, folder / path.name)
    (folder / "sends").rmdir()

    schema = drafted(folder)

    assert schema.impressions.path == "sends-*.csv"
    assert len(load_dataset(folder).impressions) == 11_098


def test_a_time_without_an_offset_asks_for_its_zone(tiny: Path) -> None:
    def spell(columns: Columns) -> None:
        moments = np.array(columns["ts"]).astype("datetime64[ms]")
        columns["ts"] = [str(moment) for moment in moments]

    edit_table(tiny, "contact", spell)

    assert "sources.contact.time.timezone" in todos(tiny)
    text = (tiny / "schema.yaml").read_text()
    (tiny / "schema.yaml").write_text(
        text.replace('{TODO: "name the zone of these times, such as Europe/Berlin or UTC"}', "UTC")
    )
    assert check_dataset(tiny).errors == ()


@pytest.mark.parametrize(("unit", "per_ms"), [("s", 0.001), ("us", 1000), ("ns", 1_000_000)])
def test_units_are_told_by_where_the_numbers_fall(tiny: Path, unit: str, per_ms: float) -> None:
    edit_table(tiny, "contact", lambda c: c.update(ts=[int(at * per_ms) for at in c["ts"]]))

    assert drafted(tiny).source("contact").time.unit == unit


def test_timestamps_with_a_zone_need_none(tiny: Path) -> None:
    table = pq.read_table(tiny / "contact.parquet")
    at = table["ts"].cast(pa.timestamp("ms", tz="UTC"))
    pq.write_table(table.set_column(1, "ts", at), tiny / "contact.parquet")

    time = drafted(tiny).source("contact").time
    assert (time.unit, time.timezone) == ("text", None)


@pytest.mark.parametrize(
    ("drop", "problem"),
    [
        ("example_id", "impressions.example_column: Input should be a valid string, got {'TODO'"),
        ("surface", "impressions.surfaces: Input should be a valid array, got {'TODO'"),
        ("user_id", "user.column: Input should be a valid string, got {'TODO'"),
        ("item_id", "item.column: Input should be a valid string, got {'TODO'"),
        ("ts", "time.column: Input should be a valid string, got {'TODO'"),
    ],
)
def test_what_is_not_in_the_files_is_a_todo_with_its_place(
    tiny: Path, drop: str, problem: str
) -> None:
    edit_table(tiny, "impressions", lambda c: (c.pop(drop), drop == "surface" and c.pop("slot")))

    assert problem in todos(tiny)


def test_without_a_request_every_row_is_one_and_the_draft_says_so(tiny: Path) -> None:
    edit_table(tiny, "impressions", lambda c: c.pop("request_id"))

    assert drafted(tiny).impressions.request_column == "example_id"
    assert "nothing tells which rows were shown together" in (tiny / "schema.yaml").read_text()


def test_files_without_impressions_leave_everything_open(tiny: Path) -> None:
    (tiny / "impressions.parquet").unlink()
    (tiny / "purchase.parquet").unlink()

    found = todos(tiny)
    assert "impressions.path" in found
    assert "which file holds impressions?" in found
    assert "# contact.parquet has 'user_id' (integer, 6 values), 'ts' (a moment, ms" in (
        (tiny / "schema.yaml").read_text()
    )


def test_without_items_their_path_is_a_todo(tiny: Path) -> None:
    (tiny / "items.parquet").unlink()

    assert "items.path" in todos(tiny)


def test_a_key_of_another_name_is_declared_with_its_table(tiny: Path) -> None:
    table = pq.read_table(tiny / "items.parquet")
    names = ["product_id", *table.column_names[1:]]
    pq.write_table(table.rename_columns(names), tiny / "items.parquet")

    assert written(tiny).todos == ()
    assert "id_column: product_id" in (tiny / "schema.yaml").read_text()
    dataset = load_dataset(tiny)
    assert (dataset.items.rows(dataset.impressions.item_keys) > 0).all()


def test_ids_with_leading_zeros_or_stored_as_text_are_strings(tmp_path: Path) -> None:
    folder = without_documents(write_tiny_log(tmp_path / "log", num_users=12, num_days=20))
    for name in ("impressions", "users", "purchase", "contact"):
        edit_table(
            folder, name, lambda c: c.update(user_id=[f"{user:04d}" for user in c["user_id"]])
        )

    assert drafted(folder).user.dtype == "string"


def test_ids_in_floating_point_are_never_taken_for_ids(tiny: Path) -> None:
    edit_table(tiny, "impressions", lambda c: c.update(user_id=[float(u) for u in c["user_id"]]))

    assert "user_id is stored as double: store whole numbers or text" in todos(tiny)


def test_columns_that_are_set_for_positives_only_are_outcomes(tiny: Path) -> None:
    def add(columns: Columns) -> None:
        columns["paid"] = [1.5 * click for click in columns["click"]]
        columns["reason"] = ["liked" if click else None for click in columns["click"]]
        columns["returned"] = [
            int(click and row % 3 == 0) for row, click in enumerate(columns["click"])
        ]

    edit_table(tiny, "impressions", add)
    schema = drafted(tiny)

    assert not {"paid", "reason", "returned"} & {f.name for f in schema.features}
    assert "returned" in {o.name for o in schema.objectives}
    assert "# - paid: left out" in (tiny / "schema.yaml").read_text()


def test_vectors_of_items_are_declared_with_their_length(tiny: Path) -> None:
    edit_table(tiny, "items", lambda c: c.update(picture=[[0.5, -1.0, 2.0]] * len(c["item_id"])))

    names = {f.name for f in drafted(tiny).features}
    assert {"picture.0", "picture.1", "picture.2"} <= names
    assert check_dataset(tiny).errors == ()


def test_names_that_a_schema_does_not_take_are_changed_and_stay_apart(tiny: Path) -> None:
    def add(columns: Columns) -> None:
        columns["Größe & Farbe"] = ["a", "b"] * (len(columns["item_id"]) // 2)
        columns["gr e farbe"] = ["c", "d"] * (len(columns["item_id"]) // 2)
        columns["surface"] = ["e", "f"] * (len(columns["item_id"]) // 2)
        columns["age"] = ["new", "old"] * (len(columns["item_id"]) // 2)
        columns["key: [x]"] = ["{", "}"] * (len(columns["item_id"]) // 2)

    edit_table(tiny, "items", add)
    schema = drafted(tiny)

    columns = {f.column for f in schema.features_of("item")}
    assert {"Größe & Farbe", "gr e farbe", "surface", "age", "key: [x]"} <= columns
    assert check_dataset(tiny).errors == ()


def test_csv_arrow_and_gzip_are_read_alike(tiny: Path) -> None:
    for name, write in (("items", write_csv), ("users", write_arrow), ("contact", write_csv)):
        table = pq.read_table(tiny / f"{name}.parquet")
        (tiny / f"{name}.parquet").unlink()
        write(tiny, name, table)

    schema = drafted(tiny)

    assert (schema.items.path, schema.items.delimiter) == ("items.tsv", "\t")
    assert schema.users is not None
    assert schema.users.path == "users.arrow"
    assert check_dataset(tiny).errors == ()


def write_csv(folder: Path, name: str, table: pa.Table) -> None:
    with (folder / f"{name}.tsv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(table.column_names)
        writer.writerows(zip(*table.to_pydict().values(), strict=True))


def write_arrow(folder: Path, name: str, table: pa.Table) -> None:
    pyarrow.feather.write_feather(table, folder / f"{name}.arrow")


def test_surfaces_come_from_every_row_and_not_from_the_sample_only(tiny: Path) -> None:
    def lengthen(columns: Columns) -> None:
        num_rows = 60_000
        for name, values in columns.items():
            columns[name] = (list(values) * (num_rows // len(values) + 1))[:num_rows]
        columns["example_id"] = list(range(num_rows))
        columns["ts"] = [START_MS + row * DAY_MS // 5000 for row in range(num_rows)]
        columns["surface"] = [*columns["surface"][:-1], "rare"]

    edit_table(tiny, "impressions", lengthen)
    draft = written(tiny)

    assert load_schema(tiny / "schema.yaml").surfaces == ("feed", "rare", "story")
    assert "a part of it" in draft.schema


def test_a_file_elsewhere_is_named_from_the_schemas_folder(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "schemas" / "mine"
    out.mkdir(parents=True)

    draft = draft_schema(files_of(tiny), out)
    (out / "schema.yaml").write_text(draft.schema)
    (out / "splits.yaml").write_text(draft.splits or "")

    assert yaml.safe_load(draft.schema)["items"]["path"] == "../../log/items.parquet"
    assert check_dataset(out).errors == ()


@pytest.mark.parametrize("name", ["nothing.csv", "notes.txt"])
def test_a_file_that_is_missing_or_no_table_is_named(tiny: Path, name: str) -> None:
    (tiny / "notes.txt").write_text("hello")

    with pytest.raises(DataError, match=name):
        draft_schema([tiny / name], tiny)


def test_a_table_without_a_role_is_told(tiny: Path) -> None:
    pq.write_table(pa.table({"city": ["Köln", "Bonn"]}), tiny / "cities.parquet")

    assert written(tiny).notes == ("cities.parquet: no role was found for it",)


def test_a_column_of_events_named_surface_gets_a_vocabulary_of_its_own(tiny: Path) -> None:
    edit_table(tiny, "contact", lambda c: c.update(surface=["web", "shop"] * (len(c["ts"]) // 2)))

    (channel, surface) = drafted(tiny).source("contact").columns
    assert (channel.name, surface.name) == ("channel", "contact_surface")
