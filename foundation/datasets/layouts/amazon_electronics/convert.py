"""AmazonElectronics_x1's train.csv and test.csv as a log whose days are places in a history.

A row has no moment, but its history has a length, and the public split tests each user's last
product. So one step is one day, and everybody's test row falls on the same day: a train row with a
history shorter by n than that user's test row is n days older. Event k of a user is the last
member of the history of length k + 1.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.arrays import IntArray
from features.errors import BadRows, DataError
from features.log import Splits
from features.reading.tables import TableBatch
from foundation.datasets.layouts.layout import DAY_MS, Layout, request_ids, row_numbers, windows
from foundation.datasets.layouts.logwriter import DistinctRows, LogWriter
from foundation.datasets.layouts.rawfiles import RawFiles, RawTable, integers, text

TEST_DAY_S = 1_388_534_400  # 1 January 2014; made up
_DAY_S = DAY_MS // 1000
_MAX_LENGTH = 5000  # days before the test day, which reaches back to 2000

_COLUMNS = ("label", "user_id", "item_id", "cate_id", "item_history", "cate_history")
_TRAIN = RawTable(pattern="train.csv", columns=_COLUMNS)
_TEST = RawTable(pattern="test.csv", columns=_COLUMNS)


class _Lengths:
    """How many products each user reviewed before the tested one."""

    def __init__(self, files: RawFiles) -> None:
        users: list[IntArray] = [np.zeros(0, dtype=np.int64)]
        lengths: list[IntArray] = [np.zeros(0, dtype=np.int64)]
        for batch in files.batches(_TEST):
            users.append(np.asarray(integers(batch, "user_id"), dtype=np.int64))
            lengths.append(_history_lengths(batch))
        self._users, first = np.unique(np.concatenate(users), return_index=True)
        self._lengths = np.concatenate(lengths)[first]

    def days_before_test(self, batch: TableBatch, *, is_test: bool) -> IntArray:
        """Give how many steps before its user's test row each row lies.

        Raises:
            BadRows: rows of train.csv that are not before a row of their user in test.csv.
        """
        users, lengths = np.asarray(integers(batch, "user_id")), _history_lengths(batch)
        places = np.searchsorted(self._users, users)
        places[places == len(self._users)] = 0
        is_known = self._users[places] == users
        days: IntArray = np.where(is_known, self._lengths[places] - lengths, -1)
        wrong = np.flatnonzero(days != 0 if is_test else days <= 0)
        if len(wrong):
            what = (
                "of other histories than that user's first row there"
                if is_test
                else ("not before a row of the same user in test.csv, whose history must be longer")
            )
            raise BadRows(
                f"{batch.where}, columns 'user_id' and 'item_history'",
                f"rows are {what}",
                (wrong + batch.first_row).tolist(),
                example=f"user {users[wrong[0]]} with {lengths[wrong[0]]} products",
            )
        return days


def _write(files: RawFiles, log: LogWriter) -> None:
    lengths, products = _Lengths(files), DistinctRows()
    for table in (_TRAIN, _TEST):
        for batch in files.batches(table):
            users = integers(batch, "user_id")
            days = lengths.days_before_test(batch, is_test=table is _TEST)
            at_s = TEST_DAY_S - days * _DAY_S
            rows = pa.table(
                {
                    "user_id": users,
                    "item_id": integers(batch, "item_id"),
                    "at_s": at_s,
                    "label": integers(batch, "label"),
                    "surface": pa.repeat("review", len(batch)),
                    "request_id": request_ids(users, at_s, batch.where),
                    "example_id": row_numbers(log.num_rows["impressions"], len(batch)),
                }
            )
            log.add("impressions", rows)
            events = _last_reviews(batch, at_s)
            log.add("review", events.select(["user_id", "item_id", "at_s"]))
            products.add(events.select(["item_id", "cate_id"]))
            products.add({name: integers(batch, name) for name in ("item_id", "cate_id")})
    log.add("products", _with_one_category(products.rows()))
    log.set_splits(_splits())


def _history_lengths(batch: TableBatch) -> IntArray:
    """Give the number of products in each row's history, 1 to 5000."""
    histories = text(batch, "item_history")
    separators = pc.fill_null(pc.count_substring(histories, "^"), -1)
    lengths: IntArray = np.asarray(separators, dtype=np.int64) + 1
    bad = np.flatnonzero((lengths < 1) | (lengths > _MAX_LENGTH))
    if len(bad):
        raise BadRows(
            f"{batch.where}, column 'item_history'",
            f"histories are empty or longer than {_MAX_LENGTH}",
            (bad + batch.first_row).tolist(),
        )
    return lengths


def _last_reviews(batch: TableBatch, at_s: IntArray) -> pa.Table:
    """Give the review just before each positive row, one day older."""
    last = {
        name: pc.replace_substring_regex(text(batch, column), r"^.*\^", "")
        for name, column in (("item_id", "item_history"), ("cate_id", "cate_history"))
    }
    ends = TableBatch(batch.where, batch.first_row, pa.table(last))
    events = pa.table(
        {
            "user_id": integers(batch, "user_id"),
            "at_s": at_s - _DAY_S,
            **{name: integers(ends, name) for name in last},
        }
    )
    # A negative row repeats the history of its positive.
    return events.filter(np.asarray(pc.fill_null(pc.equal(integers(batch, "label"), 1), False)))


def _with_one_category(products: pa.Table) -> pa.Table:
    ids = np.asarray(products["item_id"])
    twice = ids[1:][ids[1:] == ids[:-1]]
    if len(twice):
        raise DataError(
            f"layout amazon-electronics: {len(twice)} products have several categories, the first "
            f"of them item_id {twice[0]}; do item_history and cate_history have the same order?"
        )
    return products


def _splits() -> Splits:
    """Give windows by steps before the test row: 3 and more, 2, 1 and 0."""
    days = (-_MAX_LENGTH, -2, -1, 0, 1)
    edges_ms = [TEST_DAY_S * 1000 + day * DAY_MS for day in days]
    return windows(edges_ms[0] - DAY_MS, edges_ms, place="layout amazon-electronics")


LAYOUT = Layout(
    name="amazon-electronics",
    source="https://huggingface.co/datasets/reczoo/AmazonElectronics_x1",
    tables=(_TRAIN, _TEST),
    template=Path(__file__).parent,
    write=_write,
)
