from pathlib import Path

import numpy as np
import pytest

from features.entities import EntityTable
from features.errors import DataError


def table(keys: list[int] | None = None, *, num_numbers: int = 1) -> EntityTable:
    ids = np.array([-5, 10, 1234567890123456789] if keys is None else keys, dtype=np.int64)
    rows = len(ids) + 1
    return EntityTable(
        keys=ids,
        codes=np.arange(rows * 2, dtype=np.int64).reshape(rows, 2),
        feature_names=("kind", "brand"),
        numeric=np.full((rows, num_numbers), 0.5, dtype=np.float32),
        numeric_names=("price",)[:num_numbers],
    )


def test_known_keys_have_their_row_and_unknown_ones_the_cold_row() -> None:
    keys = np.array([1234567890123456789, 1234567890123456790, -5, 0, 10, 2**62], dtype=np.int64)

    rows = table().rows(keys)

    assert rows.dtype == np.int64
    assert rows.tolist() == [3, 0, 1, 0, 2, 0]


def test_every_key_of_an_empty_table_is_cold() -> None:
    assert len(table([])) == 0
    assert table([]).rows(np.array([1, 2])).tolist() == [0, 0]


def test_a_column_is_found_by_name() -> None:
    assert table().column("brand").tolist() == [1, 3, 5, 7]
    with pytest.raises(DataError, match=r"'price'.*'kind'"):
        table().column("price")


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("num_numbers", [0, 1])
def test_a_saved_table_is_the_same(tmp_path: Path, mmap: bool, num_numbers: int) -> None:
    saved = table(num_numbers=num_numbers)
    saved.save(tmp_path / "items")

    read = EntityTable.load(tmp_path / "items", mmap=mmap)

    assert read.keys.tolist() == saved.keys.tolist()
    assert read.codes.tolist() == saved.codes.tolist()
    assert read.numeric.tolist() == saved.numeric.tolist()
    assert (read.feature_names, read.numeric_names) == (saved.feature_names, saved.numeric_names)
    assert isinstance(read.codes, np.memmap) == mmap


@pytest.mark.parametrize("keys", [[2, 1], [1, 1]])
def test_keys_out_of_order_or_repeated_are_refused(keys: list[int]) -> None:
    with pytest.raises(DataError, match="strictly increasing"):
        table(keys)


def test_parts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    table().save(tmp_path)
    np.save(tmp_path / "keys.npy", np.array([1, 2], dtype=np.int64))

    with pytest.raises(DataError, match="expected 3 rows"):
        EntityTable.load(tmp_path)


@pytest.mark.parametrize("name", ["keys.npy", "names.json"])
@pytest.mark.parametrize("content", [None, b"", b"[]"])
def test_a_missing_or_damaged_part_is_refused(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    table().save(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)

    with pytest.raises(DataError, match="not an entity table"):
        EntityTable.load(tmp_path)
