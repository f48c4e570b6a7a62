"""TaobaoAd's four CSV files as a log.

Kept as they are: ids, labels and moments. Left out and counted: behaviours outside the 22 days
that the publisher names, among which are moments that no clock can have shown.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foundation.datasets.layouts.layout import Layout, request_ids, row_numbers
from foundation.datasets.layouts.logwriter import LogWriter
from foundation.datasets.layouts.rawfiles import RawFiles, RawTable, integers, text

# 22 April to 13 May 2017, days of Asia/Shanghai.
FIRST_S, END_S = 1_492_790_400, 1_494_691_200

_SAMPLES = RawTable(
    pattern="raw_sample.csv",
    columns=("user", "time_stamp", "adgroup_id", "pid", "clk"),
)
_ADS = RawTable(
    pattern="ad_feature.csv",
    columns=("adgroup_id", "cate_id", "campaign_id", "customer", "brand", "price"),
)
_USERS = RawTable(
    pattern="user_profile.csv",
    columns=(
        "userid",
        "cms_segid",
        "cms_group_id",
        "final_gender_code",
        "age_level",
        "pvalue_level",
        "shopping_level",
        "occupation",
        "new_user_class_level",
    ),
)
_BEHAVIOURS = RawTable(
    pattern="behavior_log.csv",
    columns=("user", "time_stamp", "btag", "cate", "brand"),
)


def _write(files: RawFiles, log: LogWriter) -> None:
    _impressions(files, log)
    for batch in files.batches(_ADS):
        categories = {name: _known(text(batch, name)) for name in _ADS.columns[1:]}
        log.add("ads", {"adgroup_id": integers(batch, "adgroup_id"), **categories})
    for batch in files.batches(_USERS):
        categories = {name: _known(text(batch, name)) for name in _USERS.columns[1:]}
        log.add("users", {"user": integers(batch, "userid"), **categories})
    for batch in files.batches(_BEHAVIOURS):
        at_s = integers(batch, "time_stamp")
        is_kept = pc.fill_null(
            pc.and_(pc.greater_equal(at_s, FIRST_S), pc.less(at_s, END_S)), False
        )
        rows = pa.table(
            {
                "user": integers(batch, "user"),
                "time_stamp": at_s,
                **{name: _known(text(batch, name)) for name in ("btag", "cate", "brand")},
            }
        ).filter(is_kept)
        log.add("behavior", rows)
        log.drop("behaviours outside 22 April to 13 May 2017", len(batch) - rows.num_rows)


def _impressions(files: RawFiles, log: LogWriter) -> None:
    for batch in files.batches(_SAMPLES):
        users, at_s = integers(batch, "user"), integers(batch, "time_stamp")
        rows = pa.table(
            {
                "user": users,
                "adgroup_id": integers(batch, "adgroup_id"),
                "time_stamp": at_s,
                "pid": text(batch, "pid"),
                "clk": integers(batch, "clk"),
                "request_id": request_ids(users, at_s, batch.where),
                "example_id": row_numbers(log.num_rows["impressions"], len(batch)),
            }
        )
        log.add("impressions", rows)
        clicks = rows.filter(np.asarray(pc.fill_null(pc.equal(rows["clk"], 1), False)))
        names = ("user", "adgroup_id", "time_stamp", "pid")
        log.add("ad_click", {name: clicks[name] for name in names})


def _known(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give values with the files' own word for nothing as null."""
    return pc.if_else(pc.equal(values, "NULL"), None, values)


LAYOUT = Layout(
    name="taobao-ad",
    source="https://tianchi.aliyun.com/dataset/56",
    tables=(_SAMPLES, _ADS, _USERS, _BEHAVIOURS),
    template=Path(__file__).parent,
    write=_write,
)
