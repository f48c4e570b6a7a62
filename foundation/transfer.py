"""Writes the transfer log: every example once, scored by the frozen foundation model.

Impressions of every window after the foundation model's own get probabilities and a vector.
Engagements of the memory sources get a vector, as the pair of user and item without a placement;
those from some weeks before the first vertical trains are included, so that memories are full.
Those weeks lie inside the foundation model's training window: a backfill, as a refresh does it.
Each engagement is scored on what was known before it, and its outcome is known to all who see it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from features.arrays import IntArray
from features.dataset import LogDataset
from features.log import Events, Impressions
from features.packed import quantise
from features.transferlog import (
    RowKind,
    TransferLogWriter,
    TransferMeta,
    TransferRows,
)
from foundation.assembly import to_examples
from foundation.batches import Examples
from foundation.frozen import FmScores, FrozenFm

DAY_MS = 86_400_000
DEFAULT_BACKFILL_DAYS = 84

Progress = Callable[[float, str], None]


def write_transfer_log(
    dataset: LogDataset,
    fm: FrozenFm,
    out: Path,
    *,
    backfill_days: int = DEFAULT_BACKFILL_DAYS,
    progress: Progress | None = None,
) -> TransferMeta:
    """Score and write everything that verticals will read.

    Args:
        dataset: the log.
        fm: frozen.
        out: folder of the log.
        backfill_days: engagements from so long before the verticals' training window on.
        progress: called with (share done, what is being done).

    Raises:
        DataError: `out` holds a finished log of another model.
    """
    meta = TransferMeta(
        schema_id=dataset.schema.schema_id,
        encoder_id=dataset.encoder.encoder_id,
        space_id=fm.space_id,
        fm_version=fm.fm_version,
        dim=fm.dim,
        dtype=fm.dtype,
        objectives=fm.objectives,
    )
    start_ms, end_ms = dataset.splits.vm_train[0], dataset.splits.test[1]
    engagements = _engagements(dataset, start_ms - backfill_days * DAY_MS, end_ms)
    impressions = dataset.impressions.between(start_ms, end_ms)
    total = len(engagements) + len(impressions)
    done = len(engagements)

    def tell(first: int, size: int, what: str) -> Callable[[float], None] | None:
        if progress is None:
            return None
        return lambda share: progress((first + share * size) / total, what)

    with TransferLogWriter(out, meta) as writer:
        scores = fm.score(engagements, progress=tell(0, done, "engagements"))
        writer.write(_engagement_rows(engagements, scores, meta))
        examples = to_examples(impressions)
        scores = fm.score(examples, progress=tell(done, len(impressions), "impressions"))
        writer.write(_impression_rows(impressions, scores, meta))
    return meta


def _engagements(dataset: LogDataset, start_ms: int, end_ms: int) -> Examples:
    """Events of every memory source as examples with a null context, in time order."""
    names = dict.fromkeys(vertical.memory_source for vertical in dataset.schema.verticals)
    parts = [dataset.events[name] for name in names]
    items = [_items(part) for part in parts]
    users = np.concatenate([part.user_keys for part in parts])
    at_ms = np.concatenate([part.at_ms for part in parts])
    keys = np.concatenate(items)
    inside = np.flatnonzero((at_ms >= start_ms) & (at_ms < end_ms))
    order = inside[np.lexsort((keys[inside], users[inside], at_ms[inside]))]
    return Examples(
        user_keys=users[order], item_keys=keys[order], at_ms=at_ms[order], codes={}, numeric={}
    )


def _items(events: Events) -> IntArray:
    assert events.item_keys is not None  # the schema only lets sources with items be memories
    return events.item_keys


def _engagement_rows(examples: Examples, scores: FmScores, meta: TransferMeta) -> TransferRows:
    """Engagements have no probability: that the user did it is not for the model to say."""
    nothing = np.full(len(examples), np.nan, dtype=np.float32)
    ids = -1 - np.arange(len(examples), dtype=np.int64)
    return TransferRows(
        example_ids=ids,
        kinds=np.full(len(examples), RowKind.ENGAGEMENT, dtype=np.int8),
        request_ids=np.zeros_like(ids),
        user_keys=examples.user_keys,
        item_keys=examples.item_keys,
        at_ms=examples.at_ms,
        p=dict.fromkeys(meta.objectives, nothing),
        packed=quantise(scores.z, meta.dtype),
        dim=meta.dim,
        dtype=meta.dtype,
    )


def _impression_rows(shown: Impressions, scores: FmScores, meta: TransferMeta) -> TransferRows:
    return TransferRows(
        example_ids=shown.example_ids,
        kinds=np.full(len(shown), RowKind.IMPRESSION, dtype=np.int8),
        request_ids=shown.request_ids,
        user_keys=shown.user_keys,
        item_keys=shown.item_keys,
        at_ms=shown.at_ms,
        p=scores.p,
        packed=quantise(scores.z, meta.dtype),
        dim=meta.dim,
        dtype=meta.dtype,
    )
