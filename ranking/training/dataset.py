"""Training rows of one vertical: a log and its transfer log, as the ranker would have seen them.

Every request is assembled by `features.assembly` from the replayed state of the store. Arrays of
the user side are kept once a request and rows point to them, as the model computes them once.

Errors: DataError for a transfer log of another encoder, or without some of the impressions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray, IntArray
from features.assembly import BLOCKS, AssemblySpec, assemble
from features.dataset import LogDataset
from features.errors import DataError
from features.log import Impressions
from features.schema import SURFACE
from features.transferlog import RowKind, TransferLog
from ranking.training.replay import Replay, ReplayRule

Arrays = dict[str, npt.NDArray[np.generic]]

USER_SIDE = frozenset(
    {
        "user_codes",
        "memory_z",
        "memory_codes",
        "memory_match",
        "memory_age",
        "memory_mask",
    }
)
"""Inputs with one entry a request; all others have one a candidate."""

Progress = Callable[[float, str], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class VerticalExamples:
    """Rows of one vertical in the order of time.

    Shapes:
        user_side: input name to (B, ...). row_side: input name to (N, ...).
        request_index: (N,), int64; the request of each row, non-decreasing.
        labels, p_f: (N, A), float32, columns in the order of objectives.
        weights: (N,), float32. example_ids, user_keys, at_ms: (N,), int64.
        surface_index: (N,), int64; place in `surfaces`, which are the vertical's.
    """

    spec: AssemblySpec
    vertical: str
    objectives: tuple[str, ...]
    user_side: Arrays
    row_side: Arrays
    request_index: IntArray
    labels: FloatArray
    p_f: FloatArray
    weights: FloatArray
    example_ids: IntArray
    user_keys: IntArray
    at_ms: IntArray
    surfaces: tuple[str, ...]
    surface_index: IntArray

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.at_ms)

    def rows_between(self, window: tuple[int, int]) -> IntArray:
        """Give the rows of a half-open window of time, Unix ms UTC."""
        first, end = np.searchsorted(self.at_ms, window, side="left")
        return np.arange(first, end)

    def request_inputs(self, request: int) -> Arrays:
        """Give the inputs of one request as they are when serving."""
        first, end = np.searchsorted(self.request_index, [request, request + 1], side="left")
        row_side = {name: array[first:end] for name, array in self.row_side.items()}
        user_side = {n: array[request : request + 1] for n, array in self.user_side.items()}
        return {**user_side, **row_side}


def build_examples(
    dataset: LogDataset,
    log: TransferLog,
    vertical: str,
    *,
    rule: ReplayRule | None = None,
    progress: Progress | None = None,
) -> VerticalExamples:
    """Assemble every request of the verticals' windows with what was known before it.

    Raises:
        DataError: the transfer log was written with another encoder or lacks impressions.

    Cost: a fraction of a millisecond a request.
    """
    if log.meta.encoder_id != dataset.encoder.encoder_id:
        raise DataError(
            f"transfer log, encoder_id: expected {dataset.encoder.encoder_id}, "
            f"got {log.meta.encoder_id}"
        )
    spec = AssemblySpec.for_vertical(dataset.schema, vertical, dim=log.meta.dim, blocks=BLOCKS)
    objectives = dataset.schema.vertical(vertical).objectives
    shown = _impressions_of(dataset, vertical)
    replay = Replay(log, dataset.items, spec, rule or ReplayRule())
    parts, request_index = _assemble_all(dataset, shown, spec, replay, progress)
    names = parts[0]
    surfaces = dataset.schema.vertical(vertical).surfaces
    places = {code: i for i, code in enumerate(dataset.encoder.codes(SURFACE, surfaces).tolist())}
    return VerticalExamples(
        spec=spec,
        vertical=vertical,
        objectives=objectives,
        user_side={n: np.concatenate([p[n] for p in parts]) for n in names if n in USER_SIDE},
        row_side={n: np.concatenate([p[n] for p in parts]) for n in names if n not in USER_SIDE},
        request_index=request_index,
        labels=np.column_stack([shown.labels[name] for name in objectives]),
        p_f=_teacher(log, shown, objectives),
        weights=shown.weights,
        example_ids=shown.example_ids,
        user_keys=shown.user_keys,
        at_ms=shown.at_ms,
        surfaces=surfaces,
        surface_index=np.array([places[code] for code in shown.codes[SURFACE].tolist()], np.int64),
    )


def shuffle_memory_vectors(examples: VerticalExamples, *, seed: int) -> VerticalExamples:
    """Give the same examples with the vectors of all memories dealt out anew among all entries.

    Items, ages and matches stay; what an entry's vector says of that entry is lost.
    """
    is_entry = examples.user_side["memory_mask"].astype(bool)
    z = examples.user_side["memory_z"].copy()
    z[is_entry] = np.random.default_rng(seed).permutation(z[is_entry])
    return replace(examples, user_side={**examples.user_side, "memory_z": z})


def _impressions_of(dataset: LogDataset, vertical: str) -> Impressions:
    """Give the vertical's impressions, those of a request next to one another."""
    shown = dataset.impressions.between(dataset.splits.vm_train[0], dataset.splits.test[1])
    surfaces = dataset.schema.vertical(vertical).surfaces
    codes = dataset.encoder.codes(SURFACE, surfaces)
    shown = shown.take(np.flatnonzero(np.isin(shown.codes[SURFACE], codes)))
    if not len(shown):
        raise DataError(f"vertical {vertical!r}: no impressions on {surfaces} in its windows")
    return shown.take(
        np.lexsort((shown.example_ids, shown.user_keys, shown.request_ids, shown.at_ms))
    )


def _assemble_all(
    dataset: LogDataset,
    shown: Impressions,
    spec: AssemblySpec,
    replay: Replay,
    progress: Progress | None,
) -> tuple[list[Arrays], IntArray]:
    names = np.stack([shown.at_ms, shown.request_ids, shown.user_keys])
    is_first = np.ones(len(shown), dtype=bool)
    is_first[1:] = (names[:, 1:] != names[:, :-1]).any(axis=0)
    bounds = np.append(np.flatnonzero(is_first), len(shown)).tolist()
    user_rows = dataset.users.rows(shown.user_keys)
    user_codes = _columns([dataset.users.column(n)[user_rows] for n in spec.user_features], shown)
    context = _columns([shown.codes[name] for name in spec.context_features], shown)
    numeric = _numeric(dataset, shown, spec, user_rows)
    parts = []
    for first, end in itertools.pairwise(bounds):
        item_keys, at_ms = shown.item_keys[first:end], int(shown.at_ms[first])
        assembled = assemble(
            spec,
            dataset.items,
            user_codes=user_codes[first],
            item_keys=item_keys,
            context_codes=context[first:end],
            numeric=numeric[first:end],
            at_ms=at_ms,
            state=replay.state(int(shown.user_keys[first]), item_keys, at_ms=at_ms),
        )
        parts.append(assembled.inputs)
        if progress is not None and len(parts) % 500 == 0:
            progress(end / len(shown), "requests assembled")
    return parts, np.cumsum(is_first).astype(np.int64) - 1


def _columns(columns: list[IntArray], shown: Impressions) -> IntArray:
    return np.column_stack(columns) if columns else np.zeros((len(shown), 0), dtype=np.int64)


def _numeric(
    dataset: LogDataset, shown: Impressions, spec: AssemblySpec, user_rows: IntArray
) -> FloatArray:
    users = dataset.users
    numeric = np.zeros((len(shown), len(spec.numeric_features)), dtype=np.float32)
    for place, name in enumerate(spec.numeric_features):
        if name in users.numeric_names:
            numeric[:, place] = users.numeric[user_rows, users.numeric_names.index(name)]
        else:
            numeric[:, place] = shown.numeric[name]
    return numeric


def _teacher(log: TransferLog, shown: Impressions, objectives: tuple[str, ...]) -> FloatArray:
    """Give the foundation model's probabilities of impressions, (N, A)."""
    rows = log.rows.take(log.rows.kinds == RowKind.IMPRESSION)
    order = np.argsort(rows.example_ids, kind="stable")
    known = rows.example_ids[order]
    if not len(known):
        raise DataError("transfer log: expected impressions, found none")
    places = np.minimum(np.searchsorted(known, shown.example_ids), len(known) - 1)
    lacking = np.flatnonzero(known[places] != shown.example_ids)
    if len(lacking):
        raise DataError(
            f"transfer log: expected all {len(shown)} impressions of the vertical's windows, "
            f"{len(lacking)} are missing, such as example {shown.example_ids[lacking[0]]}"
        )
    missing = sorted(set(objectives) - set(rows.p))
    if missing:
        raise DataError(f"transfer log: expected p of {objectives}, found none of {missing}")
    return np.column_stack([rows.p[name][order][places] for name in objectives])
