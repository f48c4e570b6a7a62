from pathlib import Path
from typing import Any

import pytest
import yaml

from features.errors import DataError
from features.splits import load_splits

DAY_MS = 86_400_000
T = 1_700_000_000_000


def document(**changes: Any) -> dict[str, Any]:
    windows = {
        "history_start_ms": T,
        "fm_train": [T + 1 * DAY_MS, T + 2 * DAY_MS],
        "vm_train": [T + 2 * DAY_MS, T + 3 * DAY_MS],
        "tune": [T + 3 * DAY_MS, T + 4 * DAY_MS],
        "test": [T + 5 * DAY_MS, T + 6 * DAY_MS],
    }
    changed = windows | changes
    return {name: value for name, value in changed.items() if value is not None}


def written(tmp_path: Path, content: str) -> Path:
    (tmp_path / "splits.yaml").write_text(content)
    return tmp_path / "splits.yaml"


def test_windows_are_read_as_written_and_may_leave_gaps(tmp_path: Path) -> None:
    splits = load_splits(written(tmp_path, yaml.safe_dump(document())))

    assert splits.history_start_ms == T
    assert splits.fm_train == (T + DAY_MS, T + 2 * DAY_MS)
    assert splits.test == (T + 5 * DAY_MS, T + 6 * DAY_MS)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"vm_train": [T + 2 * DAY_MS - 1, T + 3 * DAY_MS]}, "vm_train is .* starts at"),
        ({"tune": [T + 3 * DAY_MS, T + 3 * DAY_MS]}, "tune is .* not empty"),
        ({"fm_train": [T - 1, T + 2 * DAY_MS]}, "fm_train is"),
        ({"test": [T + 6 * DAY_MS, T + 5 * DAY_MS]}, "test is"),
        ({"tune": None}, r"missing \['tune'\], unknown \[\]"),
        ({"train": [1, 2]}, r"missing \[\], unknown \['train'\]"),
        ({"tune": [T]}, r"tune: expected \[start, end\]"),
        ({"tune": ["a", "b"]}, "tune: expected Unix milliseconds, got 'a'"),
        ({"history_start_ms": T / 1000}, "history_start_ms: expected Unix milliseconds"),
        ({"history_start_ms": T // 1000}, "history_start_ms: .* of 1990 to 2100, got 1700000000"),
        ({"history_start_ms": True}, "history_start_ms: expected Unix milliseconds, got True"),
    ],
)
def test_windows_that_cannot_be_are_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(DataError, match=rf"splits\.yaml: {told}"):
        load_splits(written(tmp_path, yaml.safe_dump(document(**changes))))


@pytest.mark.parametrize(
    ("content", "told"), [("[", "splits.yaml"), ("- 1", "got list"), ("a: 1\na: 2", "given twice")]
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, content: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        load_splits(written(tmp_path, content))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"splits\.yaml"):
        load_splits(tmp_path / "splits.yaml")
