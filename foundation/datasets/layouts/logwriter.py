"""Writes the Parquet tables of a log folder batch by batch; all of them appear, or none."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from features.dataset import PREPARED
from features.errors import DataError
from features.log import Splits
from features.reading.progress import Progress
from features.splits import save_splits

Columns: TypeAlias = Mapping[str, Any] | pa.Table

_SCHEMA, _SPLITS = "schema.yaml", "splits.yaml"


class LogWriter:
    """A log folder in the making.

    Args:
        out: folder to write; made if missing, files in it are replaced.
        template: folder with schema.yaml and, where windows are fixed dates, splits.yaml.
        progress: told of rows.

    Attributes:
        num_rows: written, by table.
        num_dropped: left out, by reason.
    """

    def __init__(self, out: Path, template: Path, progress: Progress) -> None:
        self._out, self._template, self._progress = out, template, progress
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._splits: Splits | None = None
        self.num_rows: Counter[str] = Counter()
        self.num_dropped: Counter[str] = Counter()

    def add(self, name: str, columns: Columns) -> None:
        """Append rows to a table; no rows make it all the same.

        Args:
            name: of the table, which becomes `<name>.parquet`.
            columns: arrays of one length, or a table.
        """
        table = _table(columns)
        if name not in self._writers:
            self._writers[name] = pq.ParquetWriter(
                self._partial(name), table.schema, compression="zstd"
            )
        self._writers[name].write_table(table)
        self.num_rows[name] += table.num_rows
        self._progress(f"writing {name}", self.num_rows[name])

    def drop(self, reason: str, num_rows: int) -> None:
        """Count rows that were left out."""
        if num_rows:
            self.num_dropped[reason] += num_rows

    def set_splits(self, splits: Splits) -> None:
        """Give the windows, where they follow from the rows."""
        self._splits = splits

    def __enter__(self) -> Self:
        """Make the folder."""
        try:
            self._out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"{self._out}: expected a folder that can be written: {error}"
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put everything in place, or take back what was written before the error."""
        for writer in self._writers.values():
            writer.close()
        if error is not None:
            for name in self._writers:
                self._partial(name).unlink(missing_ok=True)
            return
        # What an earlier build's rows were encoded with is no longer true.
        shutil.rmtree(self._out / PREPARED, ignore_errors=True)
        for name in self._writers:
            self._partial(name).replace(self._out / f"{name}.parquet")
        shutil.copyfile(self._template / _SCHEMA, self._out / _SCHEMA)
        if self._splits is None:
            shutil.copyfile(self._template / _SPLITS, self._out / _SPLITS)
        else:
            save_splits(self._out / _SPLITS, self._splits)

    def _partial(self, name: str) -> Path:
        return self._out / f".{name}.parquet.partial"


class DistinctRows:
    """Collects the different rows of some integer columns, such as the items of a log.

    Cost: memory for twice the different rows; O(N log N) for N rows in all.
    """

    def __init__(self) -> None:
        self._known: pa.Table | None = None
        self._pending: list[pa.Table] = []
        self._num_pending = 0

    def add(self, columns: Columns) -> None:
        """Take in rows, of the same columns every time."""
        rows = _distinct(_table(columns))
        self._pending.append(rows)
        self._num_pending += rows.num_rows
        # Merged only when as much is new as is known, or every batch would cost as much as all.
        if self._num_pending > (0 if self._known is None else self._known.num_rows):
            self._merge()

    def rows(self) -> pa.Table:
        """Give them, sorted.

        Raises:
            ValueError: nothing was ever added.
        """
        self._merge()
        if self._known is None:
            raise ValueError("no rows were added")
        return self._known.sort_by([(name, "ascending") for name in self._known.column_names])

    def _merge(self) -> None:
        parts = [*self._pending, *([] if self._known is None else [self._known])]
        if parts:
            self._known = _distinct(pa.concat_tables(parts))
        self._pending, self._num_pending = [], 0


def _distinct(table: pa.Table) -> pa.Table:
    return table.group_by(table.column_names).aggregate([]).select(table.column_names)


def _table(columns: Columns) -> pa.Table:
    return columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
