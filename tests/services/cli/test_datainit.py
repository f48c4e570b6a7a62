"""The command writes a draft once, says what is left to do, and overwrites nothing."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from features.errors import DataError
from features.schema import load_schema
from services.cli.datainit import write_draft
from tests.features.tiny_log import write_tiny_log


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    folder = write_tiny_log(tmp_path / "log", num_days=20)
    for path in folder.glob("*.yaml"):
        path.unlink()
    return sorted(folder.iterdir())


def init(files: list[Path], out: Path | None = None) -> str:
    said = io.StringIO()
    write_draft(files, out, Console(file=said, width=80))
    return said.getvalue()


def test_a_draft_is_written_beside_the_files(files: list[Path]) -> None:
    said = init(files)

    folder = files[0].parent
    assert load_schema(folder / "schema.yaml").surfaces == ("feed", "story")
    assert (folder / "splits.yaml").exists()
    assert f"wrote {folder / 'schema.yaml'}" in said
    assert "to do" not in said


@pytest.mark.parametrize("name", ["schema.yaml", "splits.yaml"])
def test_nothing_is_overwritten(files: list[Path], name: str) -> None:
    folder = files[0].parent
    (folder / name).write_text("mine")

    with pytest.raises(DataError, match=f"{name}: it is there already and is not overwritten"):
        init(files)

    assert [path.name for path in folder.glob("*.yaml")] == [name]
    assert (folder / name).read_text() == "mine"


def test_what_is_left_to_do_is_printed_a_line_each(files: list[Path]) -> None:
    said = init([path for path in files if path.name != "items.parquet"])

    lines = [line for line in said.splitlines() if line.startswith("to do ")]
    assert lines[0].startswith("to do schema.yaml: items.path")
    assert "which file holds one row per item?" in lines[0]


def test_a_draft_may_go_elsewhere(files: list[Path], tmp_path: Path) -> None:
    init(files, tmp_path / "drafts" / "one")

    assert load_schema(tmp_path / "drafts" / "one" / "schema.yaml").items.path.startswith("../")
