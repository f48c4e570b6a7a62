import dataclasses
from pathlib import Path

import pytest

from features.errors import DataError
from features.results import HEADER, ResultRow, append_results, current_results, read_results

ROW = ResultRow(
    date="2025-01-02",
    commit="abc",
    command="gemcutter, quickstart",
    machine='2 cores "small"',
    config="d=64",
    case="cj",
    metric="ne/purchase",
    value=0.1 + 0.2,
    unit="ratio",
    low=0.25,
    high=0.375,
    seeds="3",
    note="two\nlines",
)


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    bare = dataclasses.replace(ROW, low=None, high=None, seeds="", note="", value=-1e-300)

    append_results(tmp_path / "docs" / "r.csv", [ROW])
    append_results(tmp_path / "docs" / "r.csv", [bare])

    assert read_results(tmp_path / "docs" / "r.csv") == [ROW, bare]
    assert (tmp_path / "docs" / "r.csv").read_text().startswith(",".join(HEADER) + "\n")


def test_the_newest_row_of_a_figure_is_the_current_one(tmp_path: Path) -> None:
    newer = dataclasses.replace(ROW, value=0.5)
    other = dataclasses.replace(ROW, metric="auc")
    append_results(tmp_path / "r.csv", [ROW, other, newer])

    assert current_results(tmp_path / "r.csv") == {
        ("cj", "ne/purchase"): newer,
        ("cj", "auc"): other,
    }


def test_a_file_without_a_last_line_end_is_continued_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    append_results(path, [ROW])
    path.write_text(path.read_text().rstrip("\n"))

    append_results(path, [ROW])

    assert read_results(path) == [ROW, ROW]


def test_a_file_with_another_header_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("date,value\n")

    with pytest.raises(DataError, match=r"r\.csv: expected the header"):
        append_results(path, [ROW])
    assert path.read_text() == "date,value\n"


@pytest.mark.parametrize(
    ("old", "new"), [("0.25", "x"), (",3,", ","), ("0.25", "nan"), (",3,", ",3,4,")]
)
def test_a_broken_row_is_named_by_its_line(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "r.csv"
    append_results(path, [dataclasses.replace(ROW, note="")])
    path.write_text(path.read_text().replace(old, new))

    with pytest.raises(DataError, match=r"r\.csv, line 2"):
        read_results(path)


def test_every_results_file_of_the_project_can_be_read() -> None:
    files = sorted((Path(__file__).parents[2] / "docs" / "results").glob("*.csv"))

    assert files
    for file in files:
        assert read_results(file)


def test_a_figure_that_is_not_finite_is_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"\(cj, ne/purchase\), value"):
        append_results(tmp_path / "r.csv", [ROW, dataclasses.replace(ROW, value=float("nan"))])
    assert not (tmp_path / "r.csv").exists()
