"""Criteo's train.txt as a log without users and moments: the order of its rows is all there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from foundation.datasets.layouts.layout import Layout, row_numbers, windows
from foundation.datasets.layouts.logwriter import LogWriter
from foundation.datasets.layouts.rawfiles import RawFiles, RawTable, integers, text

START_MS = 1_388_534_400_000  # 1 January 2014; the year of the challenge, made up otherwise
STEP_MS = 13  # 45,840,617 rows make 6.9 days of the week they are from
# There is no history to warm up, so training begins with the first row.
_SHARES = (0.0, 0.6, 0.8, 0.85, 1.0)

_NUMBERS = tuple(f"I{place}" for place in range(1, 14))
_CATEGORIES = tuple(f"C{place}" for place in range(1, 27))
_TRAIN = RawTable(
    pattern="train.txt",
    columns=("label", *_NUMBERS, *_CATEGORIES),
    has_header=False,
    delimiter="\t",
)


def _write(files: RawFiles, log: LogWriter) -> None:
    for batch in files.batches(_TRAIN):
        rows = row_numbers(log.num_rows["impressions"], len(batch))
        log.add(
            "impressions",
            {
                "row": rows,
                "ad": np.zeros(len(batch), dtype=np.int64),
                "at_ms": START_MS + STEP_MS * rows,
                "surface": pa.repeat("display", len(batch)),
                "label": integers(batch, "label"),
                **{name: integers(batch, name) for name in _NUMBERS},
                **{name: text(batch, name) for name in _CATEGORIES},
            },
        )
    nothing = pa.array([], pa.int64())
    log.add("history", {"row": nothing, "ad": nothing, "at_ms": nothing})
    log.add("ads", {"ad": pa.array([0], pa.int64())})
    num_rows = log.num_rows["impressions"]
    edges_ms = [START_MS + STEP_MS * int(share * num_rows) for share in _SHARES]
    log.set_splits(windows(START_MS, edges_ms, place="layout criteo"))


LAYOUT = Layout(
    name="criteo",
    source="https://www.kaggle.com/c/criteo-display-ad-challenge/data",
    tables=(_TRAIN,),
    template=Path(__file__).parent,
    write=_write,
)
