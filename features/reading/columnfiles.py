"""Columns on disk: one NumPy file each, appended to while a log is read, mapped afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
import numpy.typing as npt

from features.arrays import AnyArray
from features.errors import DataError


class ColumnWriter:
    """Appends to the columns of a table; they are whole once it is closed.

    Args:
        folder: where the files are written, `<name>.npy`; names may have slashes.
        dtypes: name of each column to its type.
    """

    def __init__(self, folder: Path, dtypes: Mapping[str, npt.DTypeLike]) -> None:
        self._dtypes = {name: np.dtype(dtype) for name, dtype in dtypes.items()}
        self._files: dict[str, BinaryIO] = {}
        self._num_rows = dict.fromkeys(dtypes, 0)
        for name in dtypes:
            path = column_path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._files[name] = path.open("wb")
            self._write_header(name)

    def append(self, columns: Mapping[str, AnyArray]) -> None:
        """Write rows of every column named; columns of one writer may differ in length."""
        for name, values in columns.items():
            self._files[name].write(np.ascontiguousarray(values, self._dtypes[name]).data)
            self._num_rows[name] += len(values)

    def close(self) -> None:
        """Write the final lengths."""
        for name, file in self._files.items():
            file.seek(0)
            self._write_header(name)
            file.close()

    def _write_header(self, name: str) -> None:
        # NumPy leaves room in the header for a first axis that grows.
        header = {
            "descr": np.lib.format.dtype_to_descr(self._dtypes[name]),
            "fortran_order": False,
            "shape": (self._num_rows[name],),
        }
        np.lib.format.write_array_header_1_0(self._files[name], header)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; after an error the files are of no use."""
        if error is None:
            self.close()
            return
        for file in self._files.values():
            file.close()


def map_columns(folder: Path, names: Iterable[str]) -> dict[str, AnyArray]:
    """Map columns into memory, read only; nothing is read before it is used.

    Raises:
        DataError: a column is missing or damaged.
    """
    found = {}
    for name in names:
        path = column_path(folder, name)
        try:
            # A plain array over the mapped file: the subclass is slow to slice.
            found[name] = np.asarray(np.load(path, mmap_mode="r"))
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path}: not a column: {error}") from error
    return found


def column_path(folder: Path, name: str) -> Path:
    """Where a column of this name lies."""
    return folder / f"{name}.npy"
