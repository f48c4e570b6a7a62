"""One ranked basket that a person can read."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from features.dataset import LogDataset
from services.cli.replay import Answers, find

MAX_LINES = 12
_LABEL = "product_label"


def choose_basket(dataset: LogDataset, answers: Answers) -> dict[str, Any]:
    """Give the replayed request with the most purchases, its candidates best first.

    Not the one that the model ranks best: many purchases make a list worth reading, and how well
    they are ranked is left to chance.
    """
    objective = dataset.schema.objectives[0].name
    shown = dataset.impressions.take(find(dataset.impressions.example_ids, answers.ids))
    bought = shown.labels[objective]
    starts = np.cumsum([0, *(len(ids) for ids in answers.example_ids)])
    best = int(np.argmax(np.add.reduceat(bought, starts[:-1])))
    rows = np.arange(starts[best], starts[best + 1])
    p = np.array(answers.p[objective])[rows]
    names = product_labels(dataset)
    order = np.lexsort((rows, -p))
    at_ms = int(shown.at_ms[rows[0]])
    when = datetime.datetime.fromtimestamp(at_ms / 1e3, datetime.UTC)
    return {
        "user": int(shown.user_keys[rows[0]]),
        "when": when.strftime("%A %d %B %Y, %H:%M UTC"),
        "num_candidates": len(rows),
        "num_bought": int(bought[rows].sum()),
        "lines": [
            {
                "rank": place + 1,
                "label": names.get(int(shown.item_keys[rows[row]]), "unlisted product"),
                "p": float(p[row]),
                "tier": answers.tier_names[rows[row]],
                "bought": bool(bought[rows[row]]),
            }
            for place, row in enumerate(order[:MAX_LINES].tolist())
        ],
    }


def product_labels(dataset: LogDataset) -> dict[int, str]:
    """Give readable names of items, where the items table has them."""
    path = dataset.folder / dataset.schema.items.path
    if _LABEL not in pq.read_schema(path).names:
        return {}
    table = pq.read_table(path, columns=[dataset.schema.item.column, _LABEL])
    keys, labels = (column.to_pylist() for column in table.columns)
    return dict(zip(keys, labels, strict=True))
