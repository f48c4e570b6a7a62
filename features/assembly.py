"""From one request and what the store holds for it to the inputs of a vertical model.

The only code that makes those inputs, used by training and by the ranker. The user side has a
leading 1 and is computed once a request; N stands for the request's candidates.

    user_codes i64 (1, Fu)           item_codes i64 (N, Fi)      context_codes i64 (N, Fc)
    numeric f32 (N, G)               absent when G is 0

    with "memory", entries newest first, L slots:
    memory_z f32 (1, L, d)           memory_codes i64 (1, L, Fi) memory_match i64 (1, L, M)
    memory_age f32 (1, L)            memory_mask f32 (1, L)      item_match i64 (N, M)

    with "pairs":
    pair_z f32 (N, d)                pair_tier i64 (N,)          pair_age f32 (N,)
    pair_similarity f32 (N,)

Ages are log1p of hours, 0 where there is no entry. The first match column is the item's key itself,
so that items without a row match too; the others are codes. Two match columns are equal only where
both values are known.

Must not know: models, stores' bytes, labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray, IntArray
from features.encoding import FIRST, PAD
from features.entities import EntityTable
from features.errors import DataError
from features.lookup import LookupRule, PairLookup, PairState, resolve_pairs
from features.packed import Missing, MissingReason, VectorBlob
from features.schema import Schema
from features.vectorstore import StoredRequest

MS_PER_HOUR = 3_600_000
BLOCKS = frozenset({"memory", "pairs"})

_MEMORY_UNKNOWN, _ITEM_UNKNOWN = -1, -2
"""Stand for codes below FIRST in match columns; different, so that unknown never matches."""


class MemoryStatus(Enum):
    """What the memory gave to a request."""

    USED = "used"
    STALE = "stale"
    """Used, though its newest entry is older than the soft time to live."""
    EMPTY = "empty"
    """Read, but nothing in it is before the request."""
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True)
class AssemblySpec:
    """Which inputs a model takes, and the rules for what it may see.

    Attributes:
        user_features, item_features, context_features: categorical, in input order.
        numeric_features: of users and of the context; the caller brings their values.
        item_numeric_features: read from the item table, after `numeric_features` in the input.
        match_features: item features compared between candidates and memory, after the item key.
        similarity_feature: items that share it may lend each other a pair vector.
        memory_length, dim: slots of the memory and width of every vector.
        blocks: of "memory" and "pairs".
    """

    user_features: tuple[str, ...]
    item_features: tuple[str, ...]
    context_features: tuple[str, ...]
    numeric_features: tuple[str, ...]
    item_numeric_features: tuple[str, ...]
    match_features: tuple[str, ...]
    similarity_feature: str
    memory_length: int
    dim: int
    blocks: frozenset[str]
    soft_ttl_ms: int
    hard_ttl_ms: int

    def __post_init__(self) -> None:
        """Refuse blocks that do not exist."""
        if not self.blocks <= BLOCKS:
            raise DataError(
                f"assembly blocks: expected some of {sorted(BLOCKS)}, got {sorted(self.blocks)}"
            )

    @classmethod
    def for_vertical(
        cls, schema: Schema, vertical: str, *, dim: int, blocks: frozenset[str]
    ) -> AssemblySpec:
        """Give the inputs that a vertical of a schema declares.

        Raises:
            SchemaError: there is no such vertical.
        """
        spec = schema.vertical(vertical)
        names: dict[tuple[str, str], list[str]] = {}
        for name in spec.features:
            feature = schema.feature(name)
            names.setdefault((feature.of, feature.kind), []).append(name)
        numeric = [*names.get(("user", "numeric"), ()), *names.get(("context", "numeric"), ())]
        return cls(
            user_features=tuple(names.get(("user", "categorical"), ())),
            item_features=tuple(names.get(("item", "categorical"), ())),
            context_features=tuple(names.get(("context", "categorical"), ())),
            numeric_features=tuple(numeric),
            item_numeric_features=tuple(names.get(("item", "numeric"), ())),
            match_features=spec.match_features,
            similarity_feature=spec.similarity_feature,
            memory_length=spec.memory_length,
            dim=dim,
            blocks=blocks,
            soft_ttl_ms=spec.soft_ttl_ms,
            hard_ttl_ms=spec.hard_ttl_ms,
        )

    @property
    def num_numeric(self) -> int:
        """Width of the `numeric` input."""
        return len(self.numeric_features) + len(self.item_numeric_features)

    @property
    def rule(self) -> LookupRule:
        """The rule for pair vectors."""
        return LookupRule(soft_ttl_ms=self.soft_ttl_ms, hard_ttl_ms=self.hard_ttl_ms)


@dataclass(frozen=True, kw_only=True, eq=False)
class RequestState:
    """What is known of a request's user and candidates besides their features.

    Shapes:
        user_aggregate: vector (d,), float32, and its newest time.
        item_aggregates: vectors (N, d), float32, and newest times (N,), int64, -1 where none.
    """

    memory: VectorBlob | Missing
    pairs: PairState
    user_aggregate: tuple[FloatArray, int] | None
    item_aggregates: tuple[FloatArray, IntArray]

    @classmethod
    def empty(cls, num_items: int, dim: int) -> RequestState:
        """Give the state of a request for which nothing is held."""
        z = np.zeros((num_items, dim), dtype=np.float32)
        return cls(
            memory=Missing(MissingReason.ABSENT),
            pairs=PairState.empty(dim),
            user_aggregate=None,
            item_aggregates=(z, np.full(num_items, -1, dtype=np.int64)),
        )

    @classmethod
    def from_store(
        cls, stored: StoredRequest, items: EntityTable, *, similarity_feature: str
    ) -> RequestState:
        """Give the state that a store's answer amounts to."""
        pairs = stored.pairs
        codes = items.column(similarity_feature)[items.rows(pairs.item_keys)]
        return cls(
            memory=stored.memory,
            pairs=PairState(
                item_keys=pairs.item_keys, similarity_codes=codes, at_ms=pairs.at_ms, z=pairs.z
            ),
            user_aggregate=stored.user_aggregate,
            item_aggregates=stored.item_aggregates,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Assembled:
    """A request's inputs and what to tell about them.

    Attributes:
        inputs: by the names at the top of this module.
        lookup: where each pair vector came from; None without the block "pairs".
        is_cold_item: (N,), bool; the item has no row in the item table.
        memory_status: None without the block "memory".
    """

    inputs: dict[str, npt.NDArray[np.generic]]
    lookup: PairLookup | None
    is_cold_item: npt.NDArray[np.bool_]
    memory_status: MemoryStatus | None


def assemble(
    spec: AssemblySpec,
    items: EntityTable,
    *,
    user_codes: IntArray,
    item_keys: IntArray,
    context_codes: IntArray,
    numeric: FloatArray,
    at_ms: int,
    state: RequestState,
) -> Assembled:
    """Give the inputs of one request.

    Shapes:
        user_codes: (Fu,), int64.
        item_keys: (N,), int64, at least one.
        context_codes: (N, Fc), int64.
        numeric: (N, G), float32, columns of `spec.numeric_features`.

    Raises:
        DataError: an array is not of the width that the spec says.

    Cost: O(N + L), plus O((N + P) log P) for P pairs.
    """
    n = len(item_keys)
    _require_shape("user_codes", user_codes, (len(spec.user_features),))
    _require_shape("context_codes", context_codes, (n, len(spec.context_features)))
    _require_shape("numeric", numeric, (n, len(spec.numeric_features)))
    rows = items.rows(item_keys)
    inputs: dict[str, npt.NDArray[np.generic]] = {
        "user_codes": user_codes[None],
        "item_codes": _codes(items, spec.item_features, rows),
        "context_codes": context_codes,
    }
    if spec.num_numeric:
        places = [items.numeric_names.index(name) for name in spec.item_numeric_features]
        of_items = items.numeric[rows[:, None], places] if places else numeric[:, :0]
        inputs["numeric"] = np.concatenate([numeric, of_items], axis=1, dtype=np.float32)
    status = None
    if "memory" in spec.blocks:
        status = _add_memory(inputs, spec, items, at_ms=at_ms, memory=state.memory)
        inputs["item_match"] = _match(items, spec, item_keys, unknown=_ITEM_UNKNOWN)
    lookup = None
    if "pairs" in spec.blocks:
        lookup = resolve_pairs(
            item_keys,
            items.column(spec.similarity_feature)[rows],
            at_ms=at_ms,
            pairs=state.pairs,
            user_aggregate=state.user_aggregate,
            item_aggregates=state.item_aggregates,
            rule=spec.rule,
        )
        inputs["pair_z"] = lookup.z
        inputs["pair_tier"] = lookup.tier
        inputs["pair_age"] = _log_hours(np.maximum(lookup.age_ms, 0))
        inputs["pair_similarity"] = lookup.similarity
    return Assembled(inputs=inputs, lookup=lookup, is_cold_item=rows == 0, memory_status=status)


def _add_memory(
    inputs: dict[str, npt.NDArray[np.generic]],
    spec: AssemblySpec,
    items: EntityTable,
    *,
    at_ms: int,
    memory: VectorBlob | Missing,
) -> MemoryStatus:
    """Add the memory's inputs, empty slots last and 0."""
    slots = spec.memory_length
    z = np.zeros((1, slots, spec.dim), dtype=np.float32)
    codes = np.full((1, slots, len(spec.item_features)), PAD, dtype=np.int64)
    match = np.full((1, slots, 1 + len(spec.match_features)), _MEMORY_UNKNOWN, dtype=np.int64)
    age, mask = np.zeros((2, 1, slots), dtype=np.float32)
    inputs["memory_z"], inputs["memory_codes"], inputs["memory_match"] = z, codes, match
    inputs["memory_age"], inputs["memory_mask"] = age, mask
    if isinstance(memory, Missing):
        return MemoryStatus.MISSING
    first = int(np.count_nonzero(memory.at_ms >= at_ms))
    keys, entry_ms = memory.keys[first : first + slots], memory.at_ms[first : first + slots]
    used = len(keys)
    if not used:
        return MemoryStatus.EMPTY
    z[0, :used] = memory.z[first : first + used]
    codes[0, :used] = _codes(items, spec.item_features, items.rows(keys))
    match[0, :used] = _match(items, spec, keys, unknown=_MEMORY_UNKNOWN)
    age[0, :used] = _log_hours(at_ms - entry_ms)
    mask[0, :used] = 1
    is_stale = at_ms - int(entry_ms[0]) > spec.soft_ttl_ms
    return MemoryStatus.STALE if is_stale else MemoryStatus.USED


def _codes(items: EntityTable, names: tuple[str, ...], rows: IntArray) -> IntArray:
    places = [items.feature_names.index(name) for name in names]
    if not places:
        return np.zeros((len(rows), 0), dtype=np.int64)
    return items.codes[rows[:, None], places]


def _match(items: EntityTable, spec: AssemblySpec, keys: IntArray, *, unknown: int) -> IntArray:
    codes = _codes(items, spec.match_features, items.rows(keys))
    return np.column_stack([keys, np.where(codes < FIRST, unknown, codes)])


def _log_hours(age_ms: IntArray) -> FloatArray:
    return np.log1p(age_ms / MS_PER_HOUR).astype(np.float32)


def _require_shape(name: str, array: npt.NDArray[np.generic], expected: tuple[int, ...]) -> None:
    if array.shape != expected:
        raise DataError(f"assembly of {name}: expected shape {expected}, got {array.shape}")
