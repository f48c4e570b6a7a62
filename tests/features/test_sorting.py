"""Sorting by ranges: the same as sorting at once, whatever the batches and the bounds."""

from contextlib import closing
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from features.reading.columnfiles import ColumnWriter, map_columns
from features.reading.sorting import KeySample, RangeSorter

DTYPES = {"key": np.int64, "part/other": np.float32}
SMALL, LARGE = -(2**63), 2**63 - 1

batches = st.lists(
    st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 9)), max_size=8), max_size=8
)


def by_both(columns: dict[str, np.ndarray]) -> np.ndarray:
    return np.lexsort((columns["part/other"], columns["key"]))


@settings(max_examples=60)
@given(parts=batches, bounds=st.lists(st.integers(-4, 4), max_size=4, unique=True))
def test_sorting_by_ranges_is_sorting_at_once(
    tmp_path_factory, parts: list[list[tuple[int, int]]], bounds: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("sort")
    edges = np.array(sorted(bounds), dtype=np.int64)
    with closing(RangeSorter(folder / "ranges", DTYPES, key="key", bounds=edges)) as sorter:
        for part in parts:
            keys = np.array([key for key, _ in part], dtype=np.int64)
            others = np.array([other for _, other in part], dtype=np.float32)
            sorter.add({"key": keys, "part/other": others})
        num_rows = sorter.write(folder / "out", by_both)

    found = map_columns(folder / "out", DTYPES)
    expected = sorted(pair for part in parts for pair in part)
    assert num_rows == len(expected)
    pairs = zip(found["key"].tolist(), found["part/other"].tolist(), strict=True)
    assert list(pairs) == expected
    assert not (folder / "ranges").exists()


def test_bounds_part_skewed_keys_into_ranges_of_about_the_same_size() -> None:
    rng = np.random.default_rng(0)
    keys = (10**9 * rng.random(400_000) ** 4).astype(np.int64)
    sample = KeySample()
    for part in np.array_split(keys, 37):
        sample.add(part)

    bounds = sample.bounds(rows_per_range=50_000)
    sizes = np.bincount(np.searchsorted(bounds, keys, side="right"))

    assert sample.num_rows == len(keys)
    assert len(sizes) == 8
    assert sizes.max() < 1.2 * 50_000


def test_a_sample_is_the_same_whatever_the_batches() -> None:
    keys = np.random.default_rng(1).integers(SMALL, LARGE, 700_000)
    found = []
    for size in (700_000, 9_973, 262_144):
        sample = KeySample()
        for first in range(0, len(keys), size):
            sample.add(keys[first : first + size])
        found.append(sample.bounds(rows_per_range=100_000).tolist())

    assert len(found[0]) == 6
    assert all(
        abs(a - b) < 2**58 for other in found[1:] for a, b in zip(found[0], other, strict=True)
    )


def test_one_key_that_fills_a_table_stays_in_one_range(tmp_path: Path) -> None:
    sample = KeySample()
    sample.add(np.full(10_000, 7))
    bounds = sample.bounds(rows_per_range=1_000)

    sorter = RangeSorter(tmp_path / "r", {"key": np.int64}, key="key", bounds=bounds)
    with closing(sorter):
        sorter.add({"key": np.array([9, 7, 7, 6, 7])})
        assert sorter.write(tmp_path / "out", lambda c: np.argsort(c["key"])) == 5

    assert map_columns(tmp_path / "out", ["key"])["key"].tolist() == [6, 7, 7, 7, 9]


def test_columns_that_are_appended_to_are_ordinary_numpy_files(tmp_path: Path) -> None:
    with ColumnWriter(tmp_path, {"a/b": np.int64, "c": np.float32}) as writer:
        for first in range(0, 30, 10):
            writer.append({"a/b": np.arange(first, first + 10)})
        writer.append({"c": np.array([0.5])})

    np.testing.assert_array_equal(np.load(tmp_path / "a" / "b.npy"), np.arange(30))
    assert np.load(tmp_path / "c.npy").tolist() == [0.5]
