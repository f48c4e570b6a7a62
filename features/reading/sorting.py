"""Sorts tables that need not fit into memory: by ranges of one key, then each range by itself.

Rows go to the file of the range that their key falls into as they come; at the end every range is
read, put in order and appended to the result. Memory is that of one range. All rows of one key are
in one range, so a single key with very many rows makes a large one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from features.arrays import AnyArray, Arrays, IntArray
from features.reading.columnfiles import ColumnWriter

Order = Callable[[Arrays], IntArray]

_ROWS_PER_RANGE = 1_000_000
_MAX_SAMPLE = 200_000


class KeySample:
    """A sample of keys that says where ranges of about equal size begin."""

    def __init__(self) -> None:
        self._parts: list[IntArray] = []
        self._step = 1
        self.num_rows = 0

    def add(self, keys: IntArray) -> None:
        """Look at more keys; every so many are kept, ever fewer, whatever the batches."""
        first = -self.num_rows % self._step
        self._parts.append(np.array(keys[first :: self._step]))
        self.num_rows += len(keys)
        if sum(map(len, self._parts)) > _MAX_SAMPLE:
            kept = np.concatenate(self._parts)[::2]
            self._parts, self._step = [kept], self._step * 2

    def bounds(self, *, rows_per_range: int = _ROWS_PER_RANGE) -> IntArray:
        """Give the first key of every range but the first, increasing."""
        num_ranges = -(-self.num_rows // rows_per_range)
        if num_ranges < 2:
            return np.zeros(0, dtype=np.int64)
        keys = np.sort(np.concatenate(self._parts))
        places = np.arange(1, num_ranges) * len(keys) // num_ranges
        return np.unique(keys[places])


class RangeSorter:
    """Takes rows in any order and gives them sorted; close it when done.

    Args:
        folder: for the ranges' files; must not exist.
        dtypes: name of each column to its type.
        key: the column that ranges are made of, int64.
        bounds: from :class:`KeySample`.
    """

    def __init__(
        self, folder: Path, dtypes: Mapping[str, npt.DTypeLike], *, key: str, bounds: IntArray
    ) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._row = np.dtype([(name, np.dtype(dtype)) for name, dtype in dtypes.items()])
        self._key, self._bounds = key, bounds
        self._paths = [folder / f"{place}.rows" for place in range(len(bounds) + 1)]
        self._files = [path.open("wb") for path in self._paths]

    def add(self, columns: Mapping[str, AnyArray]) -> None:
        """Take rows."""
        rows = np.empty(len(columns[self._key]), dtype=self._row)
        for name in self._row.names or ():
            rows[name] = columns[name]
        if not len(self._bounds):
            self._files[0].write(rows.data)
            return
        places = np.searchsorted(self._bounds, columns[self._key], side="right")
        order = np.argsort(places, kind="stable")
        edges = np.searchsorted(places[order], np.arange(len(self._files) + 1))
        rows = rows[order]
        for place, file in enumerate(self._files):
            if edges[place] < edges[place + 1]:
                file.write(rows[edges[place] : edges[place + 1]].data)

    def ranges(self, order: Order) -> Iterator[Arrays]:
        """Give the rows of each range in turn, in order; frees its file."""
        for file, path in zip(self._files, self._paths, strict=True):
            file.close()
            rows = np.fromfile(path, dtype=self._row)
            path.unlink()
            columns = {name: np.ascontiguousarray(rows[name]) for name in self._row.names or ()}
            del rows
            index = order(columns)
            yield {name: column[index] for name, column in columns.items()}

    def write(self, folder: Path, order: Order) -> int:
        """Write the sorted columns into a folder and give the number of rows."""
        num_rows = 0
        fields = {name: self._row[name] for name in self._row.names or ()}
        with ColumnWriter(folder, fields) as writer:
            for columns in self.ranges(order):
                writer.append(columns)
                num_rows += len(columns[self._key])
        return num_rows

    def close(self) -> None:
        """Close and remove what is left of the ranges' files."""
        for file, path in zip(self._files, self._paths, strict=True):
            file.close()
            path.unlink(missing_ok=True)
        self._folder.rmdir()
