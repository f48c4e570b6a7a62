"""A complete data set folder of a few users, for tests: every kind of feature, two sources."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
SCHEMA = """\
name: tiny
version: 1
user: {column: user_id, dtype: int64}
item: {column: item_id, dtype: int64}
time: {column: ts, unit: ms}
impressions:
  path: impressions.parquet
  request_column: request_id
  example_column: example_id
  surface_column: surface
  surfaces: [feed, story]
users: {path: users.parquet}
items: {path: items.parquet}
vocabularies:
  - {name: item_id, policy: fitted}
  - {name: kind, policy: fitted}
  - {name: brand, policy: hashed, num_buckets: 16}
  - {name: slot, policy: fitted}
  - {name: age, policy: fitted}
  - {name: channel, policy: fitted}
features:
  - {name: item_id, of: item, kind: categorical, column: item_id, vocabulary: item_id}
  - {name: kind, of: item, kind: categorical, column: kind, vocabulary: kind}
  - {name: brand, of: item, kind: categorical, column: brand, vocabulary: brand}
  - {name: price, of: item, kind: numeric, column: price, transform: log1p, minimum: 0,
     maximum: 100, default: 3}
  - {name: age, of: user, kind: categorical, column: age, vocabulary: age}
  - {name: slot, of: context, kind: categorical, column: slot, vocabulary: slot}
sources:
  - name: purchase
    path: purchase.parquet
    user_column: user_id
    item_column: item_id
    time: {column: ts, unit: ms}
    arrival: {column: arrived, unit: ms}
    max_length: 16
    columns:
      - {name: quantity, kind: numeric, column: quantity, transform: log1p, minimum: 0,
         maximum: 50, default: 0}
  - name: contact
    path: contact.parquet
    user_column: user_id
    time: {column: ts, unit: ms}
    max_length: 8
    columns:
      - {name: channel, kind: categorical, column: channel, vocabulary: channel}
objectives:
  - {name: click, kind: binary, label_column: click, attribution_window_ms: 0}
  - {name: order, kind: binary, label_column: ordered, attribution_window_ms: 0}
verticals:
  - name: home
    surfaces: [feed, story]
    objectives: [click, order]
    features: [item_id, kind, brand, price, slot, surface, age]
    match_features: [kind, brand]
    similarity_feature: kind
    memory_source: purchase
    memory_length: 4
    max_candidates: 50
    latency_budget_ms: 20
    soft_ttl_ms: 604800000
    hard_ttl_ms: 2592000000
"""


def write_tiny_log(
    folder: Path, *, num_users: int = 6, num_items: int = 20, num_days: int = 40, seed: int = 0
) -> Path:
    """Write schema, splits and tables of a log in which users like items of their own kind."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    (folder / "schema.yaml").write_text(SCHEMA)
    edges = [START_MS + DAY_MS * (num_days * tenths // 10) for tenths in (2, 5, 7, 8, 10)]
    names = ("fm_train", "vm_train", "tune", "test")
    windows = {name: [edges[i], edges[i + 1]] for i, name in enumerate(names)}
    (folder / "splits.yaml").write_text(yaml.safe_dump({"history_start_ms": START_MS, **windows}))
    kinds = rng.integers(0, 4, num_items)
    _write(folder / "users.parquet", user_id=np.arange(num_users), age=_ages(num_users))
    _write(
        folder / "items.parquet",
        item_id=np.arange(100, 100 + num_items),
        kind=[f"kind{kind}" for kind in kinds],
        brand=[f"brand{item % 5}" for item in range(num_items)],
        price=pa.array([None if item == 0 else float(item) for item in range(num_items)]),
        product_label=[f"Thing {item}" for item in range(num_items)],
    )
    _write_impressions(folder, rng, kinds, num_users, num_days)
    _write_events(folder, rng, kinds, num_users, num_days)
    return folder


def _ages(num_users: int) -> list[str | None]:
    return [None if user == 0 else f"{20 + 10 * (user % 4)}s" for user in range(num_users)]


def _write_impressions(
    folder: Path, rng: np.random.Generator, kinds: np.ndarray, num_users: int, num_days: int
) -> None:
    shape = (num_days - num_days * 2 // 10, num_users, 5)
    day, user, _ = (axis.ravel() for axis in np.indices(shape))
    day = day + num_days * 2 // 10
    item = rng.integers(0, len(kinds), len(day))
    p_click = np.where(kinds[item] == user % 4, 0.8, 0.15)
    click = (rng.random(len(day)) < p_click).astype(np.int64)
    request = day * num_users + user
    _write(
        folder / "impressions.parquet",
        example_id=np.arange(len(day)),
        request_id=request,
        ts=START_MS + day * DAY_MS + user * 60_000 + 3_600_000,
        user_id=user,
        item_id=100 + item,
        surface=np.where(request % 2 == 0, "feed", "story").tolist(),
        slot=[f"slot{slot}" for slot in rng.integers(0, 3, len(day))],
        click=click,
        ordered=click * (rng.random(len(day)) < 0.3).astype(np.int64),
    )


def _write_events(
    folder: Path, rng: np.random.Generator, kinds: np.ndarray, num_users: int, num_days: int
) -> None:
    day, user, _ = (axis.ravel() for axis in np.indices((num_days, num_users, 2)))
    liked = [np.flatnonzero(kinds == u % 4) for u in range(num_users)]
    item = [rng.choice(liked[u]) if len(liked[u]) else 0 for u in user]
    at_ms = START_MS + day * DAY_MS + rng.integers(7_200_000, DAY_MS, len(day))
    _write(
        folder / "purchase.parquet",
        user_id=user,
        item_id=100 + np.array(item),
        ts=at_ms,
        arrived=at_ms + rng.integers(0, 2, len(day)) * 3_600_000,
        quantity=rng.integers(1, 5, len(day)).astype(float),
    )
    weekly = day % 7 == 0
    _write(
        folder / "contact.parquet",
        user_id=user[weekly],
        ts=START_MS + day[weekly] * DAY_MS,
        channel=["mail" if u % 2 else "app" for u in user[weekly]],
    )


def _write(path: Path, **columns: object) -> None:
    pq.write_table(pa.table(columns), path)
