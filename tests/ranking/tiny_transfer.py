"""A transfer log for the tiny log, from a random projection in place of a foundation model."""

from __future__ import annotations

import numpy as np

from features.dataset import LogDataset
from features.packed import quantise
from features.transferlog import RowKind, TransferLog, TransferMeta, TransferRows
from tests.features.tiny_log import DAY_MS

DIM = 6
SPACE_ID = "0123456789abcdef"


def make_transfer_log(
    dataset: LogDataset, *, seed: int = 0, backfill_days: int = 10
) -> TransferLog:
    """Vectors that know whether a user likes an item's kind; probabilities that know it too."""
    start_ms, end_ms = dataset.splits.vm_train[0], dataset.splits.test[1]
    shown = dataset.impressions.between(start_ms, end_ms)
    bought = dataset.events["purchase"]
    inside = (bought.at_ms >= start_ms - backfill_days * DAY_MS) & (bought.at_ms < end_ms)
    bought = bought.take(np.flatnonzero(inside))
    assert bought.item_keys is not None
    users = np.concatenate([shown.user_keys, bought.user_keys])
    items = np.concatenate([shown.item_keys, bought.item_keys])
    n, m = len(shown), len(bought)
    nothing = np.full(m, np.nan, dtype=np.float32)
    taste = _taste(dataset, users, items, seed)
    p = 1 / (1 + np.exp(-taste[:n, 0] * 2))
    return TransferLog(
        meta=TransferMeta(
            schema_id=dataset.schema.schema_id,
            encoder_id=dataset.encoder.encoder_id,
            space_id=SPACE_ID,
            fm_version="tiny",
            dim=DIM,
            dtype="int4",
            objectives=("click", "order"),
        ),
        rows=TransferRows(
            example_ids=np.concatenate([shown.example_ids, -1 - np.arange(m)]),
            kinds=np.repeat([RowKind.IMPRESSION, RowKind.ENGAGEMENT], [n, m]).astype(np.int8),
            request_ids=np.concatenate([shown.request_ids, np.zeros(m, dtype=np.int64)]),
            user_keys=users,
            item_keys=items,
            at_ms=np.concatenate([shown.at_ms, bought.at_ms]),
            p={
                "click": np.concatenate([p.astype(np.float32), nothing]),
                "order": np.concatenate([(p * 0.3).astype(np.float32), nothing]),
            },
            packed=quantise(np.tanh(taste).astype(np.float32), "int4"),
            dim=DIM,
            dtype="int4",
        ),
    )


def _taste(dataset: LogDataset, users: np.ndarray, items: np.ndarray, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    kinds = dataset.items.column("kind")[dataset.items.rows(items)]
    noise = rng.normal(size=(len(users), DIM))
    table = rng.normal(size=(int(users.max()) + 1, int(kinds.max()) + 1))
    noise[:, 0] = table[users, kinds]
    return noise
