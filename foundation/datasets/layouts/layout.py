"""What a layout is: which files it expects, where they are from, and what makes a log of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from features.arrays import IntArray
from features.errors import DataError
from features.log import Splits
from features.reading.progress import Progress
from foundation.datasets.layouts.logwriter import LogWriter
from foundation.datasets.layouts.rawfiles import RawFiles, RawTable

DAY_MS = 86_400_000
_NUM_SECONDS = 1 << 32
_NUM_USERS = 1 << 31


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A public data set's layout.

    Attributes:
        name: on the command line.
        source: where to get the files.
        tables: of raw files.
        template: folder with its schema.yaml.
        write: makes the log's tables of the raw ones.
    """

    name: str
    source: str
    tables: tuple[RawTable, ...]
    template: Path
    write: Callable[[RawFiles, LogWriter], None]


@dataclass(frozen=True, kw_only=True)
class ConversionReport:
    """What a conversion wrote.

    Attributes:
        num_rows: by table.
        num_dropped: rows left out, by reason.
    """

    folder: Path
    num_rows: dict[str, int]
    num_dropped: dict[str, int]


def convert(layout: Layout, raw: Path, out: Path, progress: Progress) -> ConversionReport:
    """Write the log folder that `load_dataset` reads from a public data set's own files.

    Args:
        layout: of the files.
        raw: folder with the files.
        out: folder to write.
        progress: told of rows.

    Raises:
        DataError: a file, a column or a value is not what the layout says; nothing is written
            then.

    Cost: memory for one batch, and for the different items of layouts that do not list them.
    """
    if out.resolve() == raw.resolve():
        raise DataError(f"{out}: expected another folder than that of the raw files")
    files = RawFiles(raw, layout.tables, layout=layout.name)
    with LogWriter(out, layout.template, progress) as writer:
        layout.write(files, writer)
    return ConversionReport(
        folder=out, num_rows=dict(writer.num_rows), num_dropped=dict(writer.num_dropped)
    )


def row_numbers(first_row: int, num_rows: int) -> IntArray:
    """Give the places of rows in the whole table: an example id where a layout has none."""
    return np.arange(first_row, first_row + num_rows, dtype=np.int64)


def request_ids(users: pa.ChunkedArray, at_s: pa.ChunkedArray | IntArray, place: str) -> IntArray:
    """Give one id for each user and second: rows of both were shown together, by assumption.

    Raises:
        DataError: a user id of 2^31 or more, below 0 or missing, for which no id is left.
    """
    found = np.asarray(users.to_numpy(), dtype=np.float64)
    if not ((found >= 0) & (found < _NUM_USERS)).all():
        raise DataError(f"{place}: expected user ids of 0 to {_NUM_USERS - 1}, got others")
    ids: IntArray = np.asarray(users, dtype=np.int64) * _NUM_SECONDS + np.asarray(at_s)
    return ids


def windows(history_start_ms: int, edges_ms: Sequence[int], *, place: str) -> Splits:
    """Give windows of time that lie end to end.

    Args:
        history_start_ms: where events begin, Unix ms.
        edges_ms: where fm_train, vm_train, tune and test begin and where test ends, Unix ms.
        place: layout or file, for errors.

    Raises:
        DataError: a window is empty, because there are too few rows.
    """
    if any(edges_ms[i] >= edges_ms[i + 1] for i in range(4)):
        raise DataError(f"{place}: expected rows for four windows of time, got too few")
    fm_train, vm_train, tune, test = ((edges_ms[i], edges_ms[i + 1]) for i in range(4))
    return Splits(
        history_start_ms=history_start_ms,
        fm_train=fm_train,
        vm_train=vm_train,
        tune=tune,
        test=test,
    )
