"""A log small enough to read: two shops' worth of shelves, four users, every rule of the schema."""

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from features.dataset import LogDataset, load_dataset

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000

SCHEMA = """
name: tiny
version: 1
user: {column: user, dtype: int64}
item: {column: item, dtype: int64}
time: {column: ts, unit: ms}
impressions:
  path: impressions.parquet
  request_column: request
  example_column: example
  surface_column: surface
  surfaces: [shelf, mailer]
users: {path: users.parquet}
items: {path: items.parquet}
vocabularies:
  - {name: item_id, policy: fitted}
  - {name: category, policy: fitted}
  - {name: age, policy: fitted}
  - {name: spot, policy: fitted}
  - {name: shop, policy: fitted}
features:
  - {name: item_id, of: item, kind: categorical, column: item, vocabulary: item_id}
  - {name: category, of: item, kind: categorical, column: category, vocabulary: category}
  - {name: age, of: user, kind: categorical, column: age, vocabulary: age}
  - {name: income, of: user, kind: numeric, column: income, default: 0}
  - {name: spot, of: context, kind: categorical, column: spot, vocabulary: spot}
  - {name: shop, of: context, kind: categorical, column: shop, vocabulary: shop}
  - {name: price, of: context, kind: numeric, column: price, minimum: 0, default: 1}
sources:
  - name: purchase
    path: purchase.parquet
    user_column: user
    item_column: item
    time: {column: ts, unit: ms}
    arrival: {column: arrived, unit: ms}
    max_length: 16
    columns:
      - {name: amount, kind: numeric, column: amount, transform: log1p, minimum: 0, default: 0}
      - {name: spot, kind: categorical, column: spot, vocabulary: spot}
  - name: letter
    path: letter.parquet
    user_column: user
    time: {column: ts, unit: ms}
    max_length: 4
    columns:
      - {name: shop, kind: categorical, column: shop, vocabulary: shop}
objectives:
  - {name: bought, kind: binary, label_column: bought, attribution_window_ms: 0}
verticals:
  - name: shelf
    surfaces: [shelf]
    objectives: [bought]
    features: [item_id, category, spot, shop, surface, price, age]
    match_features: [category]
    similarity_feature: category
    memory_source: purchase
    memory_length: 6
    max_candidates: 50
    latency_budget_ms: 20
    soft_ttl_ms: 604800000
    hard_ttl_ms: 5184000000
"""

NUM_DAYS = 20
TEST_START_MS = START_MS + 16 * DAY_MS


def write_tiny_log(folder: Path) -> Path:
    """Every user asks once a day for 3 items and buys one of them; one purchase arrives late."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schema.yaml").write_text(SCHEMA)
    edges = [START_MS + days * DAY_MS for days in (2, 8, 12, 16, NUM_DAYS)]
    windows = zip(("fm_train", "vm_train", "tune", "test"), pairwise(edges), strict=True)
    splits = [f"{name}: [{start}, {end}]" for name, (start, end) in windows]
    (folder / "splits.yaml").write_text("\n".join([f"history_start_ms: {START_MS}", *splits]))
    impressions, purchases = [], []
    for day in range(NUM_DAYS):
        for user in (1, 2, 3, 4):
            at_ms = START_MS + day * DAY_MS + user * 3_600_000
            for place in range(3):
                item = 100 + (7 * day + 3 * user + place) % 20
                impressions.append(
                    {
                        "example": len(impressions),
                        "request": 1000 + 4 * day + user,
                        "user": user,
                        "item": item,
                        "ts": at_ms,
                        "surface": "mailer" if user == 4 else "shelf",
                        "spot": [None, "front", "rear"][(item + place) % 3],
                        "shop": f"shop {user % 2}",
                        "price": 1.0 + item % 7,
                        "bought": int(place == 1),
                    }
                )
            purchases.append(
                {
                    "user": user,
                    "item": item - 1,
                    "ts": at_ms,
                    "arrived": at_ms + (2 * DAY_MS if (day, user) == (17, 2) else 0),
                    "amount": float(day),
                    "spot": "front",
                }
            )
    tables = {
        "impressions": impressions,
        "purchase": purchases,
        "letter": [{"user": u, "ts": START_MS + 15 * DAY_MS, "shop": "shop 1"} for u in (1, 3)],
        "users": [
            {"user": u, "age": a, "income": i} for u, a, i in ((1, "30s", 5.5), (2, None, None))
        ],
        "items": [{"item": 100 + i, "category": f"c{i % 4}"} for i in range(20)],
    }
    for name, rows in tables.items():
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
    return folder


def tiny_log(folder: Path) -> LogDataset:
    return load_dataset(write_tiny_log(folder))
