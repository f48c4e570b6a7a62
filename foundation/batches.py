"""From examples to tensors: set features, one sequence per request, match bits per row.

Candidates of one request share a user and a moment, so their history is looked up and encoded
once per request; rows point at their request.

Legend: B rows, R requests, L events of the requests end to end, M events of the rows end to end
(each row repeats its request's), F set features, G set numbers, J match keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torchrec import KeyedJaggedTensor

from features.arrays import FloatArray, IntArray
from features.encoding import FIRST, NULL, Encoder
from features.entities import EntityTable
from features.errors import DataError
from features.histories import HistoryIndex, HistorySlice, one_seq
from features.schema import Schema, SourceSpec
from foundation.matches import match_features
from foundation.plan import request_starts


@dataclass(frozen=True, kw_only=True)
class Examples:
    """User-item pairs at a moment, with the context they are seen in.

    Shapes:
        every array: (N,). A context feature that is absent counts as null.
    """

    user_keys: IntArray
    item_keys: IntArray
    at_ms: IntArray
    codes: dict[str, IntArray]
    numeric: dict[str, FloatArray]

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.user_keys)

    def take(self, index: IntArray | slice) -> Examples:
        """The examples at these positions."""
        return Examples(
            user_keys=self.user_keys[index],
            item_keys=self.item_keys[index],
            at_ms=self.at_ms[index],
            codes={name: column[index] for name, column in self.codes.items()},
            numeric={name: column[index] for name, column in self.numeric.items()},
        )


@dataclass(frozen=True, kw_only=True)
class SourceBatch:
    """Events of one source for R requests: codes as a KeyedJaggedTensor, numbers (E, G)."""

    codes: KeyedJaggedTensor
    numeric_EG: Tensor


@dataclass(frozen=True, kw_only=True)
class FmBatch:
    """What the foundation model reads for B rows.

    Shapes:
        set_codes: keys are the set features, one code a row.
        set_numeric_BG: float32.
        place_L: int64; where each event of the merged sequence lies in the sources' events laid
            end to end in the order of `sources`.
        source_L: int64. age_ms_L: float32, event to request.
        event_M: int64; index into L. offsets_B: (B + 1,), over M.
        matches_MJ: bool; by raw item key first, then by each match feature.
        counts_BC: float32; match counts and recency over a longer history (`foundation.matches`).
    """

    set_codes: KeyedJaggedTensor
    set_numeric_BG: Tensor
    sources: dict[str, SourceBatch]
    place_L: Tensor
    source_L: Tensor
    age_ms_L: Tensor
    event_M: Tensor
    offsets_B: Tensor
    matches_MJ: Tensor
    counts_BC: Tensor

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.offsets_B) - 1


def keyed_jagged(
    keys: Sequence[str],
    values: Sequence[IntArray],
    lengths: Sequence[IntArray],
    *,
    where: str,
    tables: Mapping[str, tuple[str, int]] | None = None,
) -> KeyedJaggedTensor:
    """Build a KeyedJaggedTensor whose lengths are known to fit its values.

    Args:
        keys: feature names.
        values: the codes of each feature, all rows end to end.
        lengths: the number of codes in each row, for each feature.
        where: source and batch, for errors.
        tables: feature to its embedding table and the rows of that.

    Raises:
        DataError: numbers of features, rows or values that disagree, or a code that its table
            does not have; names the feature.
    """
    if not len(keys) == len(values) == len(lengths):
        raise DataError(
            f"{where}: {len(keys)} features, {len(values)} columns of values, {len(lengths)} of "
            "lengths"
        )
    num_rows = len(lengths[0]) if lengths else 0
    for key, codes, counts in zip(keys, values, lengths, strict=True):
        if len(counts) != num_rows:
            raise DataError(
                f"{where}: feature {key!r} has lengths for {len(counts)} rows, expected {num_rows}"
            )
        if (counts < 0).any() or int(counts.sum()) != len(codes):
            raise DataError(
                f"{where}: feature {key!r} has lengths that add up to {int(counts.sum())}, "
                f"expected {len(codes)}, its number of values"
            )
        if tables is not None and len(codes):
            _require_in_table(codes, key, tables[key], where)
    flat = np.concatenate(values) if values else np.zeros(0, dtype=np.int64)
    counted = np.concatenate(lengths) if lengths else np.zeros(0, dtype=np.int64)
    return KeyedJaggedTensor(
        keys=list(keys),
        values=torch.from_numpy(np.ascontiguousarray(flat)),
        lengths=torch.from_numpy(np.ascontiguousarray(counted)),
        stride=num_rows,
    )


def _require_in_table(codes: IntArray, key: str, table: tuple[str, int], where: str) -> None:
    """A code that a table lacks is an assertion somewhere on a GPU, or another row's vector."""
    (name, num_rows), least, largest = table, int(codes.min()), int(codes.max())
    if least < 0 or largest >= num_rows:
        raise DataError(
            f"{where}: feature {key!r}, table {name!r} of {num_rows} rows: expected codes from 0 "
            f"to {num_rows - 1}, got {least if least < 0 else largest}"
        )


@dataclass(frozen=True, kw_only=True)
class HistoryLimits:
    """How far a model looks back.

    Attributes:
        max_length: events kept per request over all sources, newest.
        count_length: events per request and source that match counts look at, newest.
        half_lives_days: of the decayed counts.
    """

    max_length: int
    count_length: int
    half_lives_days: tuple[float, ...]


class BatchBuilder:
    """Builds batches of examples over an index of histories.

    Args:
        schema: names the features and sources.
        items, users: encoded entities.
        histories: every event source of the schema.
        match_features: item features compared between candidate and event.
        limits: how far to look back.
        tables: from :func:`vocabulary_by_feature`.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        items: EntityTable,
        users: EntityTable,
        histories: HistoryIndex,
        match_features: Sequence[str],
        limits: HistoryLimits,
        tables: Mapping[str, tuple[str, int]],
    ) -> None:
        self._schema, self._tables = schema, tables
        self._items, self._users, self._histories = items, users, histories
        self._match_features = tuple(match_features)
        self._limits = limits
        self._context = schema.features_of("context")

    def build(self, examples: Examples, *, where: str = "batch") -> FmBatch:
        """Give the batch of these examples.

        Rows next to one another with the same user and moment share a request.

        Raises:
            DataError: columns that do not fit, with `where`.
        """
        starts_R, request_B = _requests(examples)
        users_R, at_R = examples.user_keys[starts_R], examples.at_ms[starts_R]
        slices = {
            source.name: self._histories.visible(
                source.name,
                users_R,
                at_R,
                max_length=min(source.max_length, self._limits.max_length),
            )
            for source in self._schema.sources
        }
        merged = one_seq(slices, max_length=self._limits.max_length)
        first = np.cumsum([0, *(len(part.at_ms) for part in slices.values())])[:-1]
        lengths_R = np.diff(merged.offsets)
        age_ms = np.repeat(at_R, lengths_R) - merged.at_ms
        event_M, offsets_B = _repeat_ranges(merged.offsets, request_B)
        place_L = first[merged.source_index] + merged.position
        return FmBatch(
            set_codes=self._set_codes(examples, where),
            set_numeric_BG=self._set_numeric(examples),
            sources={
                source.name: self._source(source, slices[source.name], where)
                for source in self._schema.sources
            },
            place_L=torch.from_numpy(place_L),
            source_L=torch.from_numpy(merged.source_index),
            age_ms_L=torch.from_numpy(age_ms.astype(np.float32)),
            event_M=torch.from_numpy(event_M),
            offsets_B=torch.from_numpy(offsets_B),
            matches_MJ=self._matches(examples, slices, place_L[event_M], np.diff(offsets_B)),
            counts_BC=self._counts(examples, starts_R, request_B),
        )

    def _counts(self, examples: Examples, starts_R: IntArray, request_B: IntArray) -> Tensor:
        """Match counts over a longer history, for every source whose events name an item."""
        users_R, at_R = examples.user_keys[starts_R], examples.at_ms[starts_R]
        parts = []
        for source in self._schema.sources:
            if source.item_column is None:
                continue
            part = self._histories.visible(
                source.name, users_R, at_R, max_length=self._limits.count_length
            )
            assert part.item_keys is not None
            parts.append(
                match_features(
                    self._match_keys(examples.item_keys, unmatched=-2),
                    request_B,
                    self._match_keys(part.item_keys, unmatched=-1),
                    np.repeat(at_R, part.lengths) - part.at_ms,
                    part.offsets,
                    half_lives_days=self._limits.half_lives_days,
                )
            )
        return torch.from_numpy(np.concatenate(parts, axis=1))

    def _set_codes(self, examples: Examples, where: str) -> KeyedJaggedTensor:
        items = self._items.codes[self._items.rows(examples.item_keys)]
        users = self._users.codes[self._users.rows(examples.user_keys)]
        columns = dict(zip(self._items.feature_names, items.T, strict=True))
        columns |= dict(zip(self._users.feature_names, users.T, strict=True))
        for feature in self._context:
            if feature.kind == "categorical":
                missing = np.full(len(examples), NULL, dtype=np.int64)
                columns[feature.name] = examples.codes.get(feature.name, missing)
        ones = np.ones(len(examples), dtype=np.int64)
        return keyed_jagged(
            list(columns),
            list(columns.values()),
            [ones] * len(columns),
            where=where,
            tables=self._tables,
        )

    def _set_numeric(self, examples: Examples) -> Tensor:
        parts = [
            self._items.numeric[self._items.rows(examples.item_keys)],
            self._users.numeric[self._users.rows(examples.user_keys)],
        ]
        for feature in self._context:
            if feature.kind == "numeric":
                missing = np.zeros(len(examples), dtype=np.float32)
                parts.append(examples.numeric.get(feature.name, missing)[:, None])
        return torch.from_numpy(np.concatenate(parts, axis=1))

    def _source(self, source: SourceSpec, part: HistorySlice, where: str) -> SourceBatch:
        columns = dict(part.codes)
        if part.item_keys is not None:
            codes = self._items.codes[self._items.rows(part.item_keys)]
            columns |= dict(zip(self._items.feature_names, codes.T, strict=True))
        lengths = [part.lengths] * len(columns)
        numeric = list(part.numeric.values())
        return SourceBatch(
            codes=keyed_jagged(
                [f"{source.name}.{name}" for name in columns],
                list(columns.values()),
                lengths,
                where=f"{where}, source {source.name!r}",
                tables=self._tables,
            ),
            numeric_EG=torch.from_numpy(
                np.stack(numeric, axis=1)
                if numeric
                else np.zeros((len(part.at_ms), 0), dtype=np.float32)
            ),
        )

    def _matches(
        self,
        examples: Examples,
        slices: Mapping[str, HistorySlice],
        place_M: IntArray,
        lengths_B: IntArray,
    ) -> Tensor:
        """Compare every event with its row's candidate; events without an item match nothing."""
        num_keys = 1 + len(self._match_features)
        total = sum(len(part.at_ms) for part in slices.values())
        events = np.full((total, num_keys), -1, dtype=np.int64)
        has_item = np.zeros(total, dtype=bool)
        start = 0
        for part in slices.values():
            if part.item_keys is not None:
                stop = start + len(part.at_ms)
                events[start:stop] = self._match_keys(part.item_keys, unmatched=-1)
                has_item[start:stop] = True
            start += len(part.at_ms)
        candidates = self._match_keys(examples.item_keys, unmatched=-2)
        same = np.empty((len(place_M), num_keys), dtype=bool)
        for key in range(num_keys):
            wanted = np.repeat(candidates[:, key], lengths_B)
            np.equal(events[place_M, key], wanted, out=same[:, key])
        same[:, 0] &= has_item[place_M]
        return torch.from_numpy(same)

    def _match_keys(self, item_keys: IntArray, *, unmatched: int) -> IntArray:
        rows = self._items.rows(item_keys)
        columns = [item_keys]
        for name in self._match_features:
            codes = self._items.column(name)[rows]
            columns.append(np.where(codes < FIRST, unmatched, codes))
        return np.stack(columns, axis=1)


def _requests(examples: Examples) -> tuple[IntArray, IntArray]:
    """Give where each request starts and the request of each row."""
    starts_R = request_starts(examples.user_keys, examples.at_ms)
    sizes_R = np.diff(starts_R, append=len(examples))
    return starts_R, np.repeat(np.arange(len(starts_R)), sizes_R)


def _repeat_ranges(offsets_R: IntArray, request_B: IntArray) -> tuple[IntArray, IntArray]:
    """Give every row the range of its request: indices end to end, and the rows' offsets."""
    lengths_B = np.diff(offsets_R)[request_B]
    offsets_B = np.concatenate([[0], np.cumsum(lengths_B)]).astype(np.int64)
    shift = np.repeat(offsets_R[:-1][request_B] - offsets_B[:-1], lengths_B)
    return np.arange(offsets_B[-1], dtype=np.int64) + shift, offsets_B


def vocabulary_by_feature(schema: Schema, encoder: Encoder) -> dict[str, tuple[str, int]]:
    """Give the vocabulary and its size for every key of every KeyedJaggedTensor of a batch."""
    tables: dict[str, tuple[str, int]] = {}
    for feature in schema.features:
        if feature.vocabulary is not None:
            tables[feature.name] = (feature.vocabulary, encoder.size(feature.vocabulary))
    for source in schema.sources:
        columns = [*source.columns]
        if source.item_column is not None:
            columns += schema.features_of("item")
        for column in columns:
            if column.vocabulary is not None:
                size = encoder.size(column.vocabulary)
                tables[f"{source.name}.{column.name}"] = (column.vocabulary, size)
    return tables
