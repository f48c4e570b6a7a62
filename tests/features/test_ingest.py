"""A log from files of every kind: what is kept, what is refused, and what is told of it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml

from features.dataset import load_dataset
from features.encoding import FIRST, NULL, UNKNOWN
from features.errors import DataError, SchemaError
from features.reading.sorting import KeySample
from tests.features.logfiles import (
    FORMATS,
    Document,
    edit_schema,
    edit_table,
    rewrite,
    specs,
    write_as,
)
from tests.features.test_dataset import fingerprint
from tests.features.tiny_log import write_tiny_log

ROOT = Path(__file__).parents[2]
TABLES = ("impressions", "users", "items", "purchase", "contact")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_log(tmp_path / "log", num_days=20)


def content(folder: Path) -> str:
    """Everything that was loaded but what differs with the schema's hash, requests as ranks."""
    return fingerprint(load_dataset(folder)).split(",", 1)[1]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("num_files", "path"), [(1, "{name}/part-0.{kind}"), (3, "{name}"), (3, "{name}/*.{kind}")]
)
def test_a_log_is_the_same_from_any_format_in_one_file_or_many(
    folder: Path, tmp_path: Path, kind: str, num_files: int, path: str
) -> None:
    for name in ("log", "other"):  # a request id is text in a CSV, so it is text everywhere here
        place = tmp_path / name
        if name == "other":
            write_tiny_log(place, num_days=20)
        edit_table(
            place, "impressions", lambda c: c.update(request_id=list(map(str, c["request_id"])))
        )
    expected = content(tmp_path / "other")

    rewrite(folder, kind, num_files=num_files, path=path)

    assert content(folder) == expected


def test_ranges_of_a_few_rows_give_the_same_as_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = content(write_tiny_log(tmp_path / "other", num_days=20))
    whole = KeySample.bounds
    monkeypatch.setattr(KeySample, "bounds", lambda self: whole(self, rows_per_range=23))

    assert content(folder) == expected


def test_big_ids_stay_exact_beside_each_other_in_every_format(tmp_path: Path) -> None:
    big = 1234567890123456789
    for kind in FORMATS:
        folder = write_tiny_log(tmp_path / kind, num_days=20)

        def to_big(columns: dict[str, Any]) -> None:
            columns["user_id"] = [big + user for user in columns["user_id"]]

        for name in ("impressions", "users", "purchase", "contact"):
            edit_table(folder, name, to_big)
        rewrite(folder, kind, num_files=2, path="{name}")

        dataset = load_dataset(folder)

        assert np.unique(dataset.impressions.user_keys).tolist() == [big + u for u in range(6)]
        assert (dataset.users.rows(dataset.impressions.user_keys) > 0).all()


def test_string_ids_with_zeros_and_points_stay_apart_in_every_format(tmp_path: Path) -> None:
    for kind in FORMATS:
        folder = write_tiny_log(tmp_path / kind, num_days=20)
        edit_schema(folder, lambda d: d["item"].update(dtype="string"))
        words = {100: "007", 101: "7", 102: "7.0"}

        def to_text(columns: dict[str, Any], words: dict[int, str] = words) -> None:
            columns["item_id"] = [words.get(i, f"item {i}") for i in columns["item_id"]]

        for name in ("impressions", "items", "purchase"):
            edit_table(folder, name, to_text)
        rewrite(folder, kind, num_files=2, path="{name}")

        dataset = load_dataset(folder)

        codes = dataset.encoder.codes("item_id", ["007", "7", "7.0", "70"])
        assert len(set(codes.tolist())) == 4
        assert (codes[:3] >= FIRST).all()
        assert codes[3] == UNKNOWN


@pytest.mark.parametrize("kind", FORMATS)
def test_everything_that_is_wrong_is_told_at_once_with_file_and_row(
    folder: Path, kind: str
) -> None:
    edit_table(folder, "impressions", lambda c: c["click"].__setitem__(200, 2))
    edit_table(folder, "impressions", lambda c: c["click"].__setitem__(3, None))
    edit_table(folder, "impressions", lambda c: c["ts"].__setitem__(4, 5))
    edit_table(folder, "purchase", lambda c: c["quantity"].__setitem__(150, 99.0))
    edit_table(folder, "items", lambda c: c["item_id"].__setitem__(7, 100))
    size = -(-pq.read_metadata(folder / "impressions.parquet").num_rows // 2)
    rewrite(folder, kind, num_files=2, path="{name}")

    with pytest.raises(DataError) as caught:
        load_dataset(folder)

    told = str(caught.value).splitlines()
    assert len(told) == 5
    for line, (name, place, words) in zip(
        told,
        [
            ("impressions/part-0", 4, "1 times fall outside 1990 to 2100"),
            ("impressions/part-0", 3, "1 labels are missing"),
            (f"impressions/part-{200 // size}", 200 % size, "1 labels are not 0 or 1"),
            ("items/part-0", 7, "1 ids are repeated"),
            ("purchase/part-1", 150 - 120, "1 values outside [0, 50]"),
        ],
        strict=True,
    ):
        assert f"{name}.{kind}" in line
        assert words in line
        assert f"first rows [{place}]" in line
    assert not (folder / "prepared").exists()


def test_rows_with_bad_labels_are_dropped_and_counted_only_where_the_schema_asks(
    folder: Path,
) -> None:
    def spoil(columns: dict[str, Any]) -> None:
        columns["click"][:5] = [1, None, float("nan"), 2, 0]

    edit_table(folder, "impressions", spoil)
    num_rows = pq.read_metadata(folder / "impressions.parquet").num_rows
    edit_schema(folder, lambda d: d["objectives"][0].update(bad_labels="drop"))

    dataset = load_dataset(folder)

    assert len(dataset.impressions) == num_rows - 3
    assert not {1, 2, 3} & set(dataset.impressions.example_ids.tolist())
    assert dataset.report.num_dropped == {"click": 3}
    assert np.isin(dataset.impressions.labels["click"], [0, 1]).all()


def test_numbers_outside_their_domain_are_clipped_and_counted_only_where_the_schema_asks(
    folder: Path,
) -> None:
    edit_table(
        folder, "items", lambda c: c["price"].__setitem__(slice(1, 4), [-1.0, float("inf"), 500.0])
    )
    with pytest.raises(
        DataError, match=r"'price'.*3 values.*\[1, 2, 3\].*least is -1.*`outside: c"
    ):
        load_dataset(folder)
    edit_schema(folder, lambda d: d["features"][3].update(outside="clip"))

    dataset = load_dataset(folder)

    np.testing.assert_allclose(dataset.items.numeric[2:5, 0], np.log1p([0, 100, 100]), rtol=1e-6)
    assert dataset.report.num_clipped == {"items/price": 3}


def test_nothing_can_be_clipped_to_a_number(folder: Path) -> None:
    edit_table(folder, "items", lambda c: c["price"].__setitem__(1, float("nan")))
    edit_schema(folder, lambda d: d["features"][3].update(outside="clip", maximum=100))
    column = pa.array([1.0, float("nan")])
    assert pc.sum(pc.is_null(column)).as_py() == 0

    with pytest.raises(DataError, match=r"'price'.*1 values.*first rows \[1\]"):
        load_dataset(folder)


def test_null_rare_and_unseen_values_have_codes_of_their_own_and_are_counted(
    folder: Path,
) -> None:
    def change(columns: dict[str, Any]) -> None:
        late = [at >= until_ms for at in columns["ts"]]
        columns["slot"] = ["new" if x else "a" for x in late]
        columns["slot"][:5] = ["b", "b", "c", None, None]

    until_ms = yaml.safe_load((folder / "splits.yaml").read_text())["fm_train"][1]
    edit_table(folder, "impressions", change)
    edit_schema(folder, lambda d: d["vocabularies"][3].update(min_count=2))

    dataset = load_dataset(folder)

    codes = dataset.encoder.codes("slot", ["a", "b", "c", "zzz", None, ""]).tolist()
    assert codes == [FIRST, FIRST + 1, UNKNOWN, UNKNOWN, NULL, NULL]
    num_new = int((dataset.impressions.at_ms >= until_ms).sum())
    assert dataset.report.num_null["impressions/slot"] == 2
    assert dataset.report.num_unknown["impressions/slot"] == num_new + 1


def test_text_in_another_encoding_is_read_where_it_is_declared_and_refused_where_not(
    folder: Path,
) -> None:
    words = {100: "Café", 101: "Cafè"}

    def rename(columns: dict[str, Any]) -> None:
        columns["kind"] = [words.get(i, "tea") for i in columns["item_id"]]

    edit_table(folder, "items", rename)
    table = pq.read_table(folder / "items.parquet")
    lines = [",".join(table.column_names)]
    lines += [
        ",".join("" if v is None else str(v) for v in row.values()) for row in table.to_pylist()
    ]
    (folder / "items.csv").write_bytes("\n".join(lines).encode("latin-1"))
    edit_schema(folder, lambda d: d["items"].update(path="items.csv"))
    with pytest.raises(
        DataError, match=r"items\.csv, line 2.*'kind'.*0xE9 is not utf-8.*`encoding:`"
    ):
        load_dataset(folder)

    edit_schema(folder, lambda d: d["items"].update(encoding="latin-1"))
    dataset = load_dataset(folder)

    assert (np.diff(np.sort(dataset.encoder.codes("kind", ["Café", "Cafè", "tea"]))) > 0).all()
    assert (dataset.encoder.codes("kind", ["Café", "Cafè"]) >= FIRST).all()


@pytest.mark.parametrize("name", ["impressions", "users", "purchase"])
def test_a_byte_order_mark_is_no_part_of_the_first_column_of_any_table(
    folder: Path, name: str
) -> None:
    table = pq.read_table(folder / f"{name}.parquet")
    write_as(table, folder / f"{name}.csv", "csv")
    text = (folder / f"{name}.csv").read_bytes()
    (folder / f"{name}.csv").write_bytes(b"\xef\xbb\xbf" + text)
    edit_schema(folder, lambda d: specs(d)[name].update(path=f"{name}.csv"))

    dataset = load_dataset(folder)

    key = {"impressions": "impressions", "users": "users", "purchase": "purchase"}[name]
    assert dataset.report.num_rows[key] == len(table)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_vectors_of_items_are_read_whole_and_one_of_another_length_is_named(
    folder: Path, kind: str
) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((20, 3)).round(3)

    def add(columns: dict[str, Any]) -> None:
        rows = values.tolist()
        columns["title"] = rows if kind == "parquet" else [";".join(map(str, r)) for r in rows]

    edit_table(folder, "items", add)
    if kind == "csv":
        write_as(pq.read_table(folder / "items.parquet"), folder / "items.csv", "csv")

    def declare(document: Document) -> None:
        title = {"name": "title", "of": "item", "kind": "vector", "dim": 3, "column": "title"}
        document["features"].append({**title, "default": 0})
        document["items"]["path"] = f"items.{kind}"
        document["verticals"][0]["features"].append("title")

    edit_schema(folder, declare)
    dataset = load_dataset(folder)

    assert dataset.items.numeric_names == ("price", "title.0", "title.1", "title.2")
    np.testing.assert_allclose(dataset.items.numeric[1:, 1:], values, rtol=1e-6)
    assert dataset.schema.vertical("home").features[-3:] == ("title.0", "title.1", "title.2")
    edit_schema(folder, lambda d: d["features"][-1].update(dim=4))
    (folder / "prepared" / "encoder.json").unlink()
    with pytest.raises(DataError, match=r"'title': 20 vectors are not of length 4.*of length 3"):
        load_dataset(folder)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d["features"][0].update(kind="vector"), "item_id.dim: expected 1 to"),
        (lambda d: d["items"].update(encoding="utf-9"), "items.encoding: expected one that"),
        (lambda d: d["sources"][0].update(delimiter=";;"), "sources.purchase.delimiter: exp"),
        (lambda d: d["features"][4].update(outside="clip"), "features.age.outside: a categ"),
        (lambda d: d["features"][3].update(dim=4), "dim and element are of vectors"),
        (lambda d: d["objectives"][0].update(bad_labels="zero"), "objectives.click.bad_labels"),
    ],
)
def test_a_declaration_that_means_nothing_is_refused_by_its_place(
    folder: Path, change: Callable[[Document], object], told: str
) -> None:
    edit_schema(folder, change)

    with pytest.raises(SchemaError) as caught:
        load_dataset(folder)

    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("nowhere/*.csv", "expected files of this pattern, found none"),
        ("gone.csv", "expected a file, a folder or a pattern"),
        ("schema.yaml", "expected a file that ends in one of .csv"),
    ],
)
def test_a_table_without_files_is_named(folder: Path, path: str, told: str) -> None:
    edit_schema(folder, lambda d: d["items"].update(path=path))

    with pytest.raises(DataError, match=told):
        load_dataset(folder)


def test_a_changed_file_is_read_again_with_the_same_codes(folder: Path) -> None:
    before = load_dataset(folder)
    num_events = len(before.events["contact"])

    edit_table(folder, "contact", lambda c: [c[name].pop() for name in c])
    after = load_dataset(folder)

    assert after.encoder.encoder_id == before.encoder.encoder_id
    assert len(after.events["contact"]) == num_events - 1
    assert len(before.events["contact"]) == num_events  # mapped before, and still whole
    assert int(before.events["contact"].at_ms.sum()) > 0
    assert len(list((folder / "prepared").glob("log-*"))) == 1


def test_windows_are_drawn_by_time_where_nobody_wrote_them_and_stay_as_they_are(
    folder: Path,
) -> None:
    (folder / "splits.yaml").unlink()

    dataset = load_dataset(folder)

    splits, at_ms = dataset.splits, dataset.impressions.at_ms
    windows = (splits.fm_train, splits.vm_train, splits.tune, splits.test)
    shares = [len(dataset.impressions.between(*window)) / len(at_ms) for window in windows]
    assert splits.test[1] == at_ms[-1] + 1
    assert [a[1] for a in windows[:-1]] == [b[0] for b in windows[1:]]
    np.testing.assert_allclose(shares, [0.45, 0.2, 0.05, 0.15], atol=0.03)
    edit_table(folder, "impressions", lambda c: [c[name].pop() for name in c])
    assert load_dataset(folder).splits == splits


def test_too_few_moments_for_windows_ask_for_them(folder: Path) -> None:
    (folder / "splits.yaml").unlink()
    edit_table(folder, "impressions", lambda c: c.update(ts=[c["ts"][0]] * len(c["ts"])))

    with pytest.raises(DataError, match=r"at 1 different times; write splits\.yaml"):
        load_dataset(folder)


def test_a_reading_that_was_killed_leaves_nothing_that_counts(folder: Path) -> None:
    script = (
        "import os, sys, features.reading.ingest as ingest\n"
        "from pathlib import Path; from features.dataset import load_dataset\n"
        "ingest._Ingest.events = lambda self, source: os._exit(9)\n"
        "load_dataset(Path(sys.argv[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(folder)], cwd=ROOT, check=False)
    assert done.returncode == 9
    left = [path.name for path in (folder / "prepared").iterdir()]
    assert any(name.startswith(".partial-") for name in left)

    dataset = load_dataset(folder)

    assert len(dataset.impressions) > 0
    names = sorted(path.name[:4] for path in (folder / "prepared").iterdir())
    assert names == [".loc", "enco", "log-"]


def test_a_full_disk_is_said_and_leaves_nothing_behind(folder: Path) -> None:
    script = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from features.dataset import load_dataset; from features.errors import DataError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n    load_dataset(Path(sys.argv[1]))\n"
        "except DataError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", script, str(folder)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)

    assert "what was read of the log cannot be kept" in done.stdout
    assert "File too large" in done.stdout
    assert not (folder / "prepared").exists()


def test_a_log_that_was_read_is_mapped_without_a_lock_or_a_write(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fingerprint(load_dataset(folder))

    def refuse(folder: Path) -> None:
        raise AssertionError("a second load took the lock")

    monkeypatch.setattr("features.dataset.locked", refuse)
    before = sorted((p, p.stat().st_mtime_ns) for p in folder.rglob("*"))

    assert fingerprint(load_dataset(folder)) == expected
    assert sorted((p, p.stat().st_mtime_ns) for p in folder.rglob("*")) == before


def test_progress_tells_what_is_read(folder: Path) -> None:
    told: list[str] = []

    load_dataset(folder, progress=lambda what, num_rows: told.append(what))

    assert {"scanning impressions", "reading impressions", "reading purchase"} <= set(told)


def test_an_items_table_may_call_its_id_otherwise(folder: Path, tmp_path: Path) -> None:
    expected = load_dataset(write_tiny_log(tmp_path / "other", num_days=20))

    def rename(columns: dict[str, Any]) -> None:
        columns["sku"] = columns.pop("item_id")

    edit_table(folder, "items", rename)
    edit_schema(folder, lambda d: d["items"].update(id_column="sku"))
    edit_schema(folder, lambda d: d["features"][0].update(column="sku"))
    dataset = load_dataset(folder)

    np.testing.assert_array_equal(dataset.items.codes, expected.items.codes)
    np.testing.assert_array_equal(dataset.items.keys, expected.items.keys)


@pytest.mark.parametrize("what", ["grows", "comes", "goes"])
def test_files_that_change_while_they_are_read_are_named_and_nothing_is_kept(
    folder: Path, what: str
) -> None:
    rewrite(folder, "csv", num_files=2, path="{name}")
    done = False

    def change(doing: str, num_rows: int) -> None:
        nonlocal done
        if doing == "reading purchase" and not done:
            done = True
            part = folder / "contact" / "part-1.csv"
            match what:
                case "grows":
                    part.write_text(part.read_text() + part.read_text().splitlines()[-1] + "\n")
                case "comes":
                    (folder / "contact" / "part-2.csv").write_bytes(part.read_bytes())
                case _:
                    part.unlink()

    with pytest.raises(DataError, match=r"changed while they were read: \['contact/part-"):
        load_dataset(folder, progress=change)
    assert not (folder / "prepared").exists()


def test_one_vector_of_another_length_is_told_once_with_its_row(folder: Path) -> None:
    def add(columns: dict[str, Any]) -> None:
        columns["title"] = [[1.0, 2.0, 3.0]] * 4 + [[1.0]] + [None] * 15

    edit_table(folder, "items", add)
    title = {"name": "title", "of": "item", "kind": "vector", "dim": 3, "column": "title"}
    edit_schema(folder, lambda d: d["features"].append({**title, "default": 0}))

    with pytest.raises(DataError) as caught:
        load_dataset(folder)

    (line,) = str(caught.value).splitlines()
    assert "items.parquet, column 'title': 1 vectors are not of length 3; first rows [4]" in line
