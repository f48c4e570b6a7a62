"""`gemcutter data build --layout` builds what it says, and its help says what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from features.dataset import load_dataset
from features.errors import DataError
from foundation.datasets.layouts import LAYOUTS
from services.cli.layouts import BUILD_HELP, COMPLETE_JOURNEY, LayoutName
from services.cli.main import app
from tests.foundation.datasets.made_up import write_avazu


def test_help_names_every_layout_with_its_files_and_where_they_are() -> None:
    for layout in LAYOUTS.values():
        paragraphs = [text for text in BUILD_HELP.split("\n\n") if text.startswith(layout.name)]
        assert len(paragraphs) == 1
        for wanted in (*(table.pattern for table in layout.tables), layout.source):
            assert wanted in paragraphs[0]


def test_every_layout_can_be_chosen() -> None:
    assert set(LayoutName.__args__) == {COMPLETE_JOURNEY, *LAYOUTS}


def test_a_build_of_raw_files_can_be_loaded_and_its_counts_are_printed(tmp_path: Path) -> None:
    write_avazu(tmp_path / "raw")
    out = tmp_path / "log"
    arguments = ["--layout", "avazu", "--raw", str(tmp_path / "raw"), "--out", str(out)]
    result = CliRunner().invoke(app, ["data", "build", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    assert '"impressions": 30' in result.output
    assert len(load_dataset(out).impressions) == 30


def test_a_layout_without_its_raw_folder_is_told_which_files_to_get(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"expected --raw, the folder with raw_sample\.csv.*tianchi"
    ):
        CliRunner().invoke(
            app,
            ["data", "build", "--layout", "taobao-ad", "--out", str(tmp_path)],
            catch_exceptions=False,
        )


@pytest.mark.parametrize(
    "arguments", [["--raw", "x"], ["--layout", "avazu", "--raw", "x", "--cut", "hard"]]
)
def test_options_of_another_layout_are_refused(arguments: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["data", "build", "--out", str(tmp_path / "log"), *arguments])
    assert result.exit_code == 2
    assert not (tmp_path / "log").exists()
