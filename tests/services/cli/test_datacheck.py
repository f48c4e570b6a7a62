"""The command prints the check, writes its page, and its exit code says whether to train."""

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from features.datacheck import check_dataset
from features.errors import DataError
from services.cli.datacheck import PAGE, print_check
from services.cli.datacheckpage import render_check
from tests.features.tiny_log import write_tiny_log

VOID = {"meta", "br", "path", "use", "rect", "link"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_log(tmp_path / "log", num_days=20)


def check(folder: Path, *, as_json: bool = False, page: Path | None = None) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = print_check(
        folder,
        Console(file=out, width=160),
        as_json=as_json,
        page=page,
        notes=Console(file=err, width=160),
    )
    return code, out.getvalue(), err.getvalue()


def change_column(folder: Path, name: str, values: list[object]) -> None:
    path = folder / "impressions.parquet"
    columns = {**pq.read_table(path).to_pydict(), name: values}
    pq.write_table(pa.table(columns), path)


class Balance(HTMLParser):
    """Every tag that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_a_sound_log_gives_0_and_a_page_with_every_plot(folder: Path) -> None:
    code, out, err = check(folder / "schema.yaml")

    page = (folder / PAGE).read_text()
    assert code == 0
    assert out.rstrip().endswith("\ntrainable")
    assert PAGE in err
    # rows, two objectives' rates, unseen, two sources' lengths, hours, features for click
    assert page.count("<svg") == 8
    assert "order: too few rows of a class" in page
    for text in ("trainable", "480", "Nulls by column", "came out different"):
        assert text in page


def test_the_page_is_well_formed_runs_nothing_and_fetches_nothing(folder: Path) -> None:
    page = render_check(check_dataset(folder))

    reader = Balance()
    reader.feed(page)
    assert reader.open == []
    assert "script" not in reader.seen
    assert not re.search(r"\bsrc=|@import|href=\"http|url\(http", page)


def test_names_from_the_data_are_escaped(folder: Path) -> None:
    schema = (folder / "schema.yaml").read_text()
    (folder / "schema.yaml").write_text(schema.replace("[feed, story]", "['<b>$x_$', '_[red]']", 1))
    surface = pq.read_table(folder / "impressions.parquet")["surface"].to_pylist()
    change_column(folder, "surface", ["<b>$x_$" if s == "feed" else "_[red]" for s in surface])
    text = (folder / "schema.yaml").read_text()
    (folder / "schema.yaml").write_text(text.replace("[feed, story]", "['<b>$x_$', '_[red]']"))

    code, out, _ = check(folder)

    page = (folder / PAGE).read_text()
    assert code == 0
    assert "_[red]" in out
    assert "<b>$" not in page
    assert "&lt;b&gt;$x_$" in page


def test_what_would_be_rejected_is_told_with_rows_and_gives_1(folder: Path) -> None:
    clicks = pq.read_table(folder / "impressions.parquet")["click"].to_pylist()
    change_column(folder, "click", [None if row in {3, 9} else c for row, c in enumerate(clicks)])

    code, out, _ = check(folder)

    page = (folder / PAGE).read_text()
    assert code == 1
    assert "not trainable" in out
    assert "2 labels are missing; first rows [3, 9]" in re.sub(r"\s+", " ", out)
    assert "<td>3, 9</td>" in page
    assert "not trainable" in page
    assert "<svg" not in page


def test_a_likely_leak_gives_1(folder: Path) -> None:
    clicks = pq.read_table(folder / "impressions.parquet")["click"].to_pylist()
    change_column(folder, "slot", [f"slot{click}" for click in clicks])

    code, out, _ = check(folder)

    assert code == 1
    assert "likely leak: 'slot' of context alone tells click" in re.sub(r"\s+", " ", out)
    assert "likely leak: &#x27;slot&#x27; of context" in (folder / PAGE).read_text()


def test_json_is_all_that_goes_to_the_output(folder: Path) -> None:
    _, out, _ = check(folder, as_json=True)

    document = json.loads(out)
    assert document["num_impressions"] == 480
    assert {"leaks", "timeline", "columns", "unseen"} <= document.keys()


def test_the_page_goes_where_it_is_asked_to(folder: Path, tmp_path: Path) -> None:
    check(folder, page=tmp_path / "pages" / "one.html")

    assert (tmp_path / "pages" / "one.html").exists()
    assert not (folder / PAGE).exists()


def test_a_page_that_cannot_be_written_is_told_and_changes_no_verdict(folder: Path) -> None:
    (folder / PAGE).mkdir()

    code, _, err = check(folder)

    assert code == 0
    assert "no page is written" in err


def test_a_folder_that_is_not_there_gives_1_and_stays_away(tmp_path: Path) -> None:
    code, out, _ = check(tmp_path / "nothing")

    assert code == 1
    assert "schema.yaml" in out
    assert not (tmp_path / "nothing").exists()


def test_another_yaml_file_is_not_taken_for_the_schema_beside_it(folder: Path) -> None:
    with pytest.raises(DataError, match=r"splits\.yaml: expected a log folder or its schema\.yaml"):
        check(folder / "splits.yaml")
