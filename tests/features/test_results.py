"""Result rows are appended, read back, and the newest of a metric is current."""

from dataclasses import replace
from pathlib import Path

import pytest

from features.errors import DataError
from features.profiles import pack_profile, unpack_profile
from features.results import ResultRow, append_results, current_results, read_results

ROW = ResultRow(
    date="2026-12-01",
    commit="abc",
    command="run, twice",
    machine="m",
    config="c",
    case="cj-hard",
    metric="auc/kunlun",
    value=0.5,
    unit="frac",
    low=0.4,
)


def test_rows_come_back_as_they_were_and_the_newest_is_current(tmp_path: Path) -> None:
    path = tmp_path / "results" / "foundation.csv"
    append_results(path, [ROW])
    append_results(path, [replace(ROW, value=0.75, low=None)])
    assert read_results(path) == [ROW, replace(ROW, value=0.75, low=None)]
    assert current_results(path)["cj-hard", "auc/kunlun"].value == 0.75
    assert path.read_text().count("date,commit") == 1


def test_a_file_with_another_header_or_a_bad_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="expected the header"):
        append_results(path, [ROW])
    path.unlink()
    append_results(path, [ROW])
    path.write_text(path.read_text().replace("0.5", "half"))
    with pytest.raises(DataError, match="line 2"):
        read_results(path)


def test_every_results_file_of_the_project_can_be_read() -> None:
    files = sorted((Path(__file__).parents[2] / "docs" / "results").glob("*.csv"))
    assert files
    for path in files:
        assert read_results(path)


def test_a_profile_comes_back_and_damage_is_no_profile() -> None:
    data = pack_profile({"age": "30s", "income": None, "visits": 3}, at_ms=5)
    assert unpack_profile(data) == ({"age": "30s", "income": None, "visits": 3}, 5)
    for damaged in (None, b"", b"\xff\x00", b"[]", b'{"features": 3, "at_ms": 1}', data[:-2]):
        assert unpack_profile(damaged) is None
