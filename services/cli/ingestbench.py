"""How fast and in how much memory a large log is read: a made-up log, read by a process of its own.

The log has as many impressions as asked for, and five sources of as many events each, every source
with columns of its own. Users and items are drawn with a heavy tail. It is written as folders of
Parquet files, in no order of users.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from features.dataset import load_dataset

_ROWS_PER_FILE = 1_000_000
_START_MS, _SPAN_MS = 1_700_000_000_000, 90 * 86_400_000
_SOURCES = ("view", "search", "cart", "purchase", "mail")
_ANY = npt.NDArray[Any]
_SCHEMA = """\
name: large
version: 1
user: {column: user_id, dtype: int64}
item: {column: item_id, dtype: int64}
time: {column: ts, unit: ms}
impressions:
  path: impressions
  request_column: request_id
  example_column: example_id
  surface_column: surface
  surfaces: [surface0, surface1, surface2]
users: {path: users.parquet}
items: {path: items.parquet}
vocabularies:
  - {name: item_id, policy: fitted, min_count: 2}
  - {name: kind, policy: fitted, min_count: 2}
  - {name: age, policy: fitted, min_count: 2}
  - {name: slot, policy: fitted, min_count: 2}
  - {name: device, policy: fitted, min_count: 2}
  - {name: query, policy: fitted, min_count: 2}
  - {name: campaign, policy: fitted, min_count: 2}
features:
  - {name: item_id, of: item, kind: categorical, column: item_id, vocabulary: item_id}
  - {name: kind, of: item, kind: categorical, column: kind, vocabulary: kind}
  - {name: age, of: user, kind: categorical, column: age, vocabulary: age}
  - {name: slot, of: context, kind: categorical, column: slot, vocabulary: slot}
sources:
  - name: view
    path: view
    user_column: user_id
    item_column: item_id
    time: {column: ts, unit: ms}
    max_length: 256
    columns:
      - {name: seconds, kind: numeric, column: seconds, transform: log1p, minimum: 0}
      - {name: device, kind: categorical, column: device, vocabulary: device}
  - name: search
    path: search
    user_column: user_id
    time: {column: ts, unit: ms}
    max_length: 256
    columns:
      - {name: query, kind: categorical, column: query, vocabulary: query}
  - name: cart
    path: cart
    user_column: user_id
    item_column: item_id
    time: {column: ts, unit: ms}
    max_length: 256
    columns:
      - {name: quantity, kind: numeric, column: quantity, transform: log1p, minimum: 0}
  - name: purchase
    path: purchase
    user_column: user_id
    item_column: item_id
    time: {column: ts, unit: ms}
    arrival: {column: arrived, unit: ms}
    max_length: 256
    columns:
      - {name: price, kind: numeric, column: price, transform: log1p, minimum: 0}
  - name: mail
    path: mail
    user_column: user_id
    time: {column: ts, unit: ms}
    max_length: 256
    columns:
      - {name: campaign, kind: categorical, column: campaign, vocabulary: campaign}
objectives:
  - {name: click, kind: binary, label_column: click, attribution_window_ms: 0}
verticals:
  - name: feed
    surfaces: [surface0, surface1, surface2]
    objectives: [click]
    features: [item_id, kind, slot, surface]
    match_features: [kind]
    similarity_feature: kind
    memory_source: view
    memory_length: 64
    max_candidates: 500
    latency_budget_ms: 20
    soft_ttl_ms: 604800000
    hard_ttl_ms: 2592000000
"""


@dataclass(frozen=True, kw_only=True)
class IngestFigures:
    """One reading.

    Attributes:
        num_rows: of all tables.
        read_s: from the files to mapped columns.
        peak_rss_gib: of the reading process, its libraries included.
        map_s: a second load, from what the first kept.
    """

    num_rows: int
    read_s: float
    peak_rss_gib: float
    map_s: float


def write_log(folder: Path, *, num_impressions: int, tell: Callable[[str, int], None]) -> None:
    """Write the made-up log."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    num_users, num_items = max(100, num_impressions // 20), 200_000
    (folder / "schema.yaml").write_text(_SCHEMA)
    users = {"user_id": np.arange(num_users), "age": _words("age", rng, num_users, 8)}
    items = {"item_id": np.arange(num_items), "kind": _words("kind", rng, num_items, 500)}
    pq.write_table(pa.table(users), folder / "users.parquet")
    pq.write_table(pa.table(items), folder / "items.parquet")
    for name in ("impressions", *_SOURCES):
        (folder / name).mkdir()
        for first in range(0, num_impressions, _ROWS_PER_FILE):
            size = min(_ROWS_PER_FILE, num_impressions - first)
            columns: dict[str, Any] = {
                "user_id": _skewed(rng, size, num_users),
                "item_id": _skewed(rng, size, num_items),
                "ts": _START_MS + rng.integers(0, _SPAN_MS, size),
            }
            columns |= _more(name, rng, first, columns["ts"])
            pq.write_table(pa.table(columns), folder / name / f"{first:012d}.parquet")
            tell(f"writing {name}", first + size)


def measure(folder: Path) -> IngestFigures:
    """Read a log in a process of its own."""
    done = subprocess.run(  # noqa: S603 (our own module)
        [sys.executable, "-m", "services.cli.ingestbench", str(folder)],
        check=True,
        stdout=subprocess.PIPE,
    )
    return IngestFigures(**json.loads(done.stdout))


def to_rows(figures: IngestFigures) -> list[dict[str, Any]]:
    """Give the figures as rows of docs/results/data.csv."""
    return [
        {"metric": "rows_per_s", "value": figures.num_rows / figures.read_s, "unit": "rows/s"},
        {"metric": "peak_rss_gib", "value": figures.peak_rss_gib, "unit": "GiB"},
        {"metric": "read_s", "value": figures.read_s, "unit": "s"},
        {"metric": "map_s", "value": figures.map_s, "unit": "s"},
        {"metric": "rows", "value": figures.num_rows, "unit": "rows"},
    ]


def run(out: Path, *, num_impressions: int, tell: Callable[[str, int], None]) -> IngestFigures:
    """Write a log, read it, and remove it."""
    folder = out / "log"
    try:
        write_log(folder, num_impressions=num_impressions, tell=tell)
        return measure(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _main(folder: Path) -> None:
    start_s = time.perf_counter()
    dataset = load_dataset(folder)
    read_s = time.perf_counter() - start_s
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start_s = time.perf_counter()
    load_dataset(folder)
    figures = {
        "num_rows": sum(dataset.report.num_rows.values()),
        "read_s": read_s,
        "peak_rss_gib": peak_kib / 2**20,
        "map_s": time.perf_counter() - start_s,
    }
    sys.stdout.write(json.dumps(figures))


def _skewed(rng: np.random.Generator, size: int, num: int) -> _ANY:
    """Draw numbers of which few are very frequent: about Zipf with exponent 1."""
    found: _ANY = np.minimum(num ** rng.random(size), num - 1).astype(np.int64)
    return found


def _words(stem: str, rng: np.random.Generator, size: int, num: int) -> pa.Array:
    words = pa.array([f"{stem}{place}" for place in range(num)])
    return pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, num, size)), words).cast(
        pa.string()
    )


def _more(name: str, rng: np.random.Generator, first: int, ts: _ANY) -> dict[str, Any]:
    size = len(ts)
    match name:
        case "impressions":
            return {
                "example_id": np.arange(first, first + size),
                "request_id": np.arange(first, first + size) // 10,
                "surface": _words("surface", rng, size, 3),
                "slot": _words("slot", rng, size, 8),
                "click": (rng.random(size) < 0.1).astype(np.int8),
            }
        case "view":
            return {"seconds": rng.exponential(20, size), "device": _words("device", rng, size, 4)}
        case "search":
            return {"query": _words("query", rng, size, 20_000)}
        case "cart":
            return {"quantity": rng.integers(1, 9, size)}
        case "purchase":
            return {
                "price": rng.exponential(30, size),
                "arrived": ts + rng.integers(0, 10**7, size),
            }
        case _:
            return {"campaign": _words("campaign", rng, size, 300)}


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
