"""One ranked basket that a person can read."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from features.dataset import LogDataset
from features.ids import to_keys
from features.reading.tables import column_names, id_type, read_columns
from services.cli.replay import Answers, find

MAX_LINES = 12
_LABEL = "product_label"


def choose_basket(dataset: LogDataset, answers: Answers) -> dict[str, Any]:
    """Give a replayed request worth reading, its candidates best first.

    The one with the most purchases among those where at most a third was bought: a list in which
    nearly everything was bought shows nothing. How well it is ranked plays no part.
    """
    objective = dataset.schema.objectives[0].name
    shown = dataset.impressions.take(find(dataset.impressions.example_ids, answers.ids))
    bought = shown.labels[objective]
    starts = np.cumsum([0, *(len(ids) for ids in answers.example_ids)])
    num_bought = np.add.reduceat(bought, starts[:-1])
    is_readable = num_bought <= np.diff(starts) / 3
    best = int(np.argmax(np.where(is_readable, num_bought, -1)))
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
    folder, schema = dataset.folder, dataset.schema
    if _LABEL not in column_names(folder, schema.items):
        return {}
    wanted = {
        "id": (schema.id_column("item"), id_type(schema.item)),
        "label": (_LABEL, pa.string()),
    }
    table = read_columns(folder, schema.items, wanted)
    keys = to_keys(table["id"], schema.item.dtype).tolist()
    return dict(zip(keys, table["label"].to_pylist(), strict=True))
