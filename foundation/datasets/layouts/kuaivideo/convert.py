"""KuaiVideo_x1's train.csv and test.csv as a log whose moments are ranks.

The publisher took the absolute times away and kept their order. Both files are sorted by it, so
each new timestamp becomes the next second. The lists `pos_items` and `neg_items` are not read: the
rows before a row say the same, without the lists' end at 100.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.arrays import IntArray
from features.errors import BadRows
from features.reading.tables import TableBatch
from foundation.datasets.layouts.layout import (
    Layout,
    request_ids,
    row_numbers,
    windows,
)
from foundation.datasets.layouts.logwriter import DistinctRows, LogWriter
from foundation.datasets.layouts.rawfiles import RawFiles, RawTable, integers, numbers

START_S = 1_514_764_800  # 1 January 2018, the year of the challenge; made up otherwise
# Of train.csv, a tenth of which is history only; test.csv is the last window, whole.
_SHARES = (0.1, 0.7, 0.9, 1.0)

_COLUMNS = ("timestamp", "user_id", "item_id", "is_click", "is_like", "is_follow")
_TRAIN = RawTable(pattern="train.csv", columns=_COLUMNS)
_TEST = RawTable(pattern="test.csv", columns=_COLUMNS)


class _Clock:
    """Turns sorted timestamps into seconds that grow by one with each new timestamp."""

    def __init__(self) -> None:
        self.at_s = START_S - 1
        self._where, self._last = "", -np.inf

    def seconds(self, batch: TableBatch) -> IntArray:
        """Give the moments of a batch; those of another file come after all before.

        Raises:
            BadRows: a timestamp is missing or below the one before it.
        """
        stamps = numbers(batch, "timestamp").to_numpy()
        if batch.where != self._where:
            self._where, self._last = batch.where, -np.inf
        steps = np.diff(stamps, prepend=self._last)
        bad = np.flatnonzero(~(steps >= 0))
        if len(bad):
            raise BadRows(
                f"{batch.where}, column 'timestamp'",
                "timestamps are missing or below the one before, and their order is all there is",
                (bad + batch.first_row).tolist(),
                hint="sort the file by timestamp",
            )
        at_s: IntArray = self.at_s + np.cumsum(steps > 0, dtype=np.int64)
        if len(at_s):
            self.at_s, self._last = int(at_s[-1]), float(stamps[-1])
        return at_s


def _write(files: RawFiles, log: LogWriter) -> None:
    clock, videos = _Clock(), DistinctRows()
    _rows(files, _TRAIN, log, clock, videos)
    test_start_s = clock.at_s + 1
    _rows(files, _TEST, log, clock, videos)
    log.add("videos", videos.rows())
    num_train_s = test_start_s - START_S
    edges_s = [START_S + int(share * num_train_s) for share in _SHARES] + [clock.at_s + 1]
    edges_ms = [edge_s * 1000 for edge_s in edges_s]
    log.set_splits(windows(START_S * 1000, edges_ms, place="layout kuaivideo"))


def _rows(
    files: RawFiles, table: RawTable, log: LogWriter, clock: _Clock, videos: DistinctRows
) -> None:
    for batch in files.batches(table):
        users, at_s = integers(batch, "user_id"), clock.seconds(batch)
        rows = pa.table(
            {
                "user_id": users,
                "item_id": integers(batch, "item_id"),
                "at_s": at_s,
                **{name: integers(batch, name) for name in _COLUMNS[3:]},
                "surface": pa.repeat("feed", len(batch)),
                "request_id": request_ids(users, at_s, batch.where),
                "example_id": row_numbers(log.num_rows["impressions"], len(batch)),
            }
        )
        log.add("impressions", rows)
        events = rows.select(["user_id", "item_id", "at_s", "is_like", "is_follow"])
        is_click = np.asarray(pc.fill_null(pc.equal(rows["is_click"], 1), False))
        log.add("click", events.filter(is_click))
        log.add("skip", events.select(["user_id", "item_id", "at_s"]).filter(~is_click))
        videos.add(rows.select(["item_id"]))


LAYOUT = Layout(
    name="kuaivideo",
    source="https://huggingface.co/datasets/reczoo/KuaiVideo_x1",
    tables=(_TRAIN, _TEST),
    template=Path(__file__).parent,
    write=_write,
)
