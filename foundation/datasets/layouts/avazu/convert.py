"""Avazu's train.csv as a log: hours become moments, and device_ip stands for the user."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.errors import BadRows
from features.reading.tables import TableBatch
from foundation.datasets.layouts.layout import Layout, row_numbers
from foundation.datasets.layouts.logwriter import DistinctRows, LogWriter
from foundation.datasets.layouts.rawfiles import RawFiles, RawTable, integers, text

_TEXTS = (
    "C1",
    "banner_pos",
    "site_id",
    "site_domain",
    "site_category",
    "app_id",
    "app_domain",
    "app_category",
    "device_id",
    "device_ip",
    "device_model",
    "device_type",
    "device_conn_type",
    *(f"C{place}" for place in range(15, 22)),
)
_TRAIN = RawTable(pattern="train.csv", columns=("click", "hour", "C14", *_TEXTS))
_CLICKS = ("device_ip", "C14", "at_ms", "site_category", "app_category", "C17", "C21")


def _write(files: RawFiles, log: LogWriter) -> None:
    ads = DistinctRows()
    for batch in files.batches(_TRAIN):
        at_ms = _hours(batch)
        rows = pa.table(
            {
                "example_id": row_numbers(log.num_rows["impressions"], len(batch)),
                "at_ms": pc.cast(at_ms, pa.int64()),
                "hour_of_day": pc.cast(pc.hour(at_ms), pa.string()),
                "click": integers(batch, "click"),
                "C14": integers(batch, "C14"),
                **{name: text(batch, name) for name in _TEXTS},
            }
        )
        log.add("impressions", rows)
        is_click = np.asarray(pc.fill_null(pc.equal(rows["click"], 1), False))
        log.add("click", rows.filter(is_click).select(list(_CLICKS)))
        ads.add(rows.select(["C14"]))
    log.add("ads", ads.rows())


def _hours(batch: TableBatch) -> pa.ChunkedArray:
    """Give the starts of hours that are written as YYMMDDHH, UTC."""
    hours = text(batch, "hour")
    # The digits are checked first: strptime takes "1410210" for an hour too.
    is_written = pc.fill_null(pc.match_substring_regex(hours, r"^\d{8}$"), False)
    moments = pc.strptime(
        pc.if_else(is_written, hours, None), format="%y%m%d%H", unit="ms", error_is_null=True
    )
    bad = np.flatnonzero(np.asarray(pc.is_null(moments)))
    if len(bad):
        raise BadRows(
            f"{batch.where}, column 'hour'",
            "hours are not YYMMDDHH",
            (bad + batch.first_row).tolist(),
            example=repr(hours[int(bad[0])].as_py()),
        )
    return moments


LAYOUT = Layout(
    name="avazu",
    source="https://www.kaggle.com/c/avazu-ctr-prediction/data",
    tables=(_TRAIN,),
    template=Path(__file__).parent,
    write=_write,
)
