"""What is in a log, or why it cannot be trained on.

Reads a data set folder exactly as training would. Must not know: models, services.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from features.arrays import IntArray
from features.dataset import LogDataset, load_dataset
from features.encoding import NULL, UNKNOWN
from features.errors import DataError, SchemaError
from features.histories import HistoryIndex
from features.log import Impressions

WINDOWS = ("fm_train", "vm_train", "tune", "test")
_PERCENTILES = (0, 10, 50, 90, 100)
_ROWS_PER_LOOKUP = 4096


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """What a check found; ready for JSON.

    Attributes:
        errors: why the log cannot be trained on; empty where it can.
        warnings: what training would accept and a person should know.
        span: first and last impression, UTC.
        windows: rows, users and the positive share of each objective, by window.
        shares: null and unknown shares of each categorical context feature in the test window.
        history_lengths: percentiles of visible events at test impressions, by source.
        events: rows, span and late arrivals, by source.
    """

    folder: str
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    schema_id: str = ""
    num_impressions: int = 0
    num_users: int = 0
    num_items: int = 0
    span: tuple[str, str] | None = None
    windows: dict[str, dict[str, float]] = field(default_factory=dict)
    shares: dict[str, dict[str, float]] = field(default_factory=dict)
    history_lengths: dict[str, dict[str, float]] = field(default_factory=dict)
    events: dict[str, dict[str, object]] = field(default_factory=dict)

    @property
    def is_trainable(self) -> bool:
        """Whether training would start."""
        return not self.errors


def check_dataset(folder: Path) -> DataReport:
    """Read a data set folder and report; what stops training is in `errors`, never raised."""
    try:
        dataset = load_dataset(folder)
    except (SchemaError, DataError) as error:
        return DataReport(folder=str(folder), errors=(str(error),))
    shown = dataset.impressions
    errors, warnings = _problems(dataset)
    return DataReport(
        folder=str(folder),
        errors=errors,
        warnings=warnings,
        schema_id=dataset.schema.schema_id,
        num_impressions=len(shown),
        num_users=len(np.unique(shown.user_keys)),
        num_items=len(dataset.items),
        span=_span(shown.at_ms),
        windows={name: _window(dataset, name) for name in WINDOWS},
        shares=_shares(dataset),
        history_lengths=_history_lengths(dataset),
        events={
            name: {
                "rows": len(events),
                "span": _span(events.at_ms),
                "late": int((events.arrival_ms > events.at_ms).sum()),
            }
            for name, events in dataset.events.items()
        },
    )


def _problems(dataset: LogDataset) -> tuple[tuple[str, ...], tuple[str, ...]]:
    shown = dataset.impressions
    errors: list[str] = []
    warnings: list[str] = []
    repeated = len(shown) - len(np.unique(shown.example_ids))
    if repeated:
        errors.append(f"{repeated} example ids are repeated; each impression needs its own")
    for name in WINDOWS:
        part = _part(dataset, name)
        if not len(part):
            errors.append(f"window {name} holds no impression")
        for objective, labels in part.labels.items():
            if len(part) and len(np.unique(labels)) < 2:
                first = objective == dataset.schema.objectives[0].name
                said = f"window {name}: every {objective} label is {labels[0]:g}"
                (errors if first and name == "fm_train" else warnings).append(said)
    for name, events in dataset.events.items():
        if not len(events):
            warnings.append(f"source {name} holds no event")
    cold = int((dataset.items.rows(shown.item_keys) == 0).sum())
    if cold:
        warnings.append(f"{cold} impressions are of items without a row in the items table")
    return tuple(errors), tuple(warnings)


def _part(dataset: LogDataset, window: str) -> Impressions:
    return dataset.impressions.between(*getattr(dataset.splits, window))


def _window(dataset: LogDataset, window: str) -> dict[str, float]:
    part = _part(dataset, window)
    rates = {
        f"{name}_frac": float(labels.mean()) if len(part) else 0.0
        for name, labels in part.labels.items()
    }
    return {"rows": len(part), "users": len(np.unique(part.user_keys)), **rates}


def _shares(dataset: LogDataset) -> dict[str, dict[str, float]]:
    part = _part(dataset, "test")
    if not len(part):
        return {}
    columns = dict(part.codes)
    rows = dataset.items.rows(part.item_keys)
    columns |= {name: dataset.items.column(name)[rows] for name in dataset.items.feature_names}
    return {
        name: {"null": float((c == NULL).mean()), "unknown": float((c == UNKNOWN).mean())}
        for name, c in columns.items()
    }


def _history_lengths(dataset: LogDataset) -> dict[str, dict[str, float]]:
    part, index = _part(dataset, "test"), HistoryIndex.build(dataset.events)
    found = {}
    for source in dataset.schema.sources:
        lengths = [
            index.visible(
                source.name,
                part.user_keys[start : start + _ROWS_PER_LOOKUP],
                part.at_ms[start : start + _ROWS_PER_LOOKUP],
                max_length=source.max_length,
            ).lengths
            for start in range(0, len(part), _ROWS_PER_LOOKUP)
        ]
        if lengths:
            values = np.percentile(np.concatenate(lengths), _PERCENTILES)
            found[source.name] = {
                f"p{percent}": float(value)
                for percent, value in zip(_PERCENTILES, values, strict=True)
            }
    return found


def _span(at_ms: IntArray) -> tuple[str, str] | None:
    if not len(at_ms):
        return None
    first, last = (
        datetime.datetime.fromtimestamp(int(ms) / 1e3, datetime.UTC).isoformat(timespec="seconds")
        for ms in (at_ms.min(), at_ms.max())
    )
    return first, last
