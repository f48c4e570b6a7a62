"""From a call to ranked candidates: check, one store round trip, assemble, compute, order.

Nothing that the store lacks or says wrongly is an error, and neither is a store that says nothing
at all: the model is asked with defaults and the answer says so. A score that is no number is
replaced by the objective's prior before anything is sorted. Equal candidates get equal scores.

Errors: InvalidRequest, DeadlineExceeded, CallerGone; EngineError when the engine itself fails.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray, IntArray
from features.assembly import Assembled, MemoryStatus, RequestState, assemble
from features.errors import StoreError, StoreTimeout, StoreUnavailable
from features.lookup import PairLookup, Tier
from features.packed import Missing, MissingReason
from features.profiles import unpack_profile
from features.store.protocol import Store
from features.vectorstore import StoredRequest, VectorStore
from ranking.bundle import Bundle
from ranking.calibration import calibrate
from ranking.runtime.answer import Degraded, RankAnswer, StageTimes
from ranking.runtime.breaker import Breaker
from ranking.runtime.codecounts import CodeCounts, count_codes
from ranking.runtime.deadline import Clock, Deadline
from ranking.runtime.engines import Arrays, Choice
from ranking.runtime.errors import InvalidRequest
from ranking.runtime.request import EncodedContext, RankCall, RawValue, RequestEncoder
from ranking.runtime.value import DEFAULT_BID_MICROS, best_first, ecpm_micros

_log = logging.getLogger(__name__)


@dataclass
class _Stopwatch:
    """Times of the stages of one call."""

    clock: Clock
    started_s: float = field(init=False)
    lap_s: float = field(init=False)
    times_us: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.started_s = self.lap_s = self.clock()

    def lap(self, stage: str) -> None:
        now_s = self.clock()
        self.times_us[f"{stage}_us"] = round((now_s - self.lap_s) * 1e6)
        self.lap_s = now_s

    def times(self) -> StageTimes:
        return StageTimes(**self.times_us, total_us=round((self.clock() - self.started_s) * 1e6))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Scores:
    """Shapes: p (N, A), float32; score (N,), float64; is_fallback (N,), bool."""

    p: FloatArray
    score: npt.NDArray[np.float64]
    is_fallback: npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Inputs:
    """What the answer says about the inputs."""

    lookup: PairLookup
    is_cold_item: npt.NDArray[np.bool_]
    num_refused: dict[str, int]
    code_counts: CodeCounts


class Ranker:
    """One bundle, ready to rank. Safe to use from many threads.

    Attributes:
        probe_inputs: a request that the model must always be able to compute.

    Args:
        bundle: verified.
        choice: the engine that was opened for it.
        store: where vectors and profiles are.
        breaker: of that store, shared by all who use it.
        store_timeout_ms: most that one call waits for the store.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        bundle: Bundle,
        choice: Choice,
        *,
        store: Store,
        breaker: Breaker,
        store_timeout_ms: float,
        clock: Clock,
    ) -> None:
        manifest = bundle.manifest
        self.bundle = bundle
        self.choice = choice
        self._manifest = manifest
        self._encoder = RequestEncoder(bundle)
        self._vectors = VectorStore(
            store,
            space_id=manifest.space_id,
            dim=manifest.dim,
            dtype=manifest.vector_dtype,
            memory_length=manifest.memory_length,
            hard_ttl_ms=manifest.hard_ttl_ms,
            blocks=manifest.assembly.blocks,
        )
        self._breaker = breaker
        self._store_timeout_ms = store_timeout_ms
        self._clock = clock
        self.probe_inputs = bundle.golden()[0].inputs
        self._prior = np.array([manifest.prior[name] for name in manifest.objectives])

    def rank(self, call: RankCall, deadline: Deadline) -> RankAnswer:
        """Rank the candidates of a call.

        Raises:
            InvalidRequest: what is wrong with the call, and where.
            DeadlineExceeded, CallerGone: before the store was asked or the engine was run.
            EngineError: the engine failed.
        """
        watch = _Stopwatch(self._clock)
        deadline.require_time("admission")
        self._encoder.check(call)
        context = self._encoder.context(call)
        watch.lap("validate")
        degraded = [Degraded.ENGINE_FALLBACK] if self.choice.fallback_reason else []
        if not len(call.item_keys):
            nothing = self._score(call, np.zeros((0, len(self._prior)), dtype=np.float32))
            no_inputs = _Inputs(
                lookup=_no_lookup(0),
                is_cold_item=np.zeros(0, dtype=np.bool_),
                num_refused={},
                code_counts=CodeCounts(),
            )
            return self._answer(call, nothing, no_inputs, degraded=degraded, watch=watch)
        deadline.require_time("the store lookup")
        stored, is_read = self._read(call, deadline)
        watch.lap("lookup")
        if not is_read:
            degraded.append(Degraded.STORE_UNAVAILABLE)
        refused = Counter({reason.value: n for reason, n in stored.num_refused.items()})
        profile = self._profile(call, stored, degraded, refused)
        assembled = self._assemble(call, context, profile, stored)
        if is_read:
            degraded += _memory_reasons(assembled, stored)
        watch.lap("assemble")
        deadline.require_time("the engine")
        logits = self.choice.engine.run(assembled.inputs)
        watch.lap("engine")
        scores = self._score(call, _same_for_equal(logits, assembled.inputs, call.item_keys))
        if scores.is_fallback.any():
            degraded.append(Degraded.SCORE_FALLBACK)
        inputs = _Inputs(
            lookup=assembled.lookup or _no_lookup(len(call.item_keys)),
            is_cold_item=assembled.is_cold_item,
            num_refused=dict(+refused),
            code_counts=count_codes(self._manifest.assembly, assembled.inputs),
        )
        return self._answer(call, scores, inputs, degraded=degraded, watch=watch)

    def warm_up(self) -> None:
        """Do once what is slow the first time, on an item that may be cold, without the store."""
        keys = self.bundle.items.keys[:1].astype(np.int64)
        call = RankCall(request_id="", user_key=0, at_ms=0, item_ids=keys.tolist(), item_keys=keys)
        try:
            context = self._encoder.context(call)
        except InvalidRequest:  # a context feature without a default: this call has none to send
            return
        assembled = self._assemble(call, context, {}, self._vectors.unread(len(keys)))
        self._score(call, self.choice.engine.run(assembled.inputs))

    def _read(self, call: RankCall, deadline: Deadline) -> tuple[StoredRequest, bool]:
        """Give what the store holds, and whether it was read."""
        nothing = self._vectors.unread(len(call.item_keys))
        if not self._manifest.assembly.blocks and not self._encoder.needs_profile(call):
            return nothing, True
        if not self._breaker.admit():
            return nothing, False
        left_ms = deadline.left_ms()
        timeout_ms = min(self._store_timeout_ms, left_ms)
        try:
            stored = self._vectors.read_request(
                call.user_key, call.item_keys, timeout_ms=timeout_ms
            )
        except StoreError as error:
            _log.debug("store not read", extra={"reason": str(error)})
            # A caller in a hurry proves nothing about the store; a key of the wrong type proves
            # that it answers.
            is_hurried = isinstance(error, StoreTimeout) and left_ms < self._store_timeout_ms
            if not is_hurried:
                is_down = isinstance(error, StoreTimeout | StoreUnavailable)
                self._breaker.record(is_success=not is_down)
            return nothing, False
        self._breaker.record(is_success=True)
        return stored, True

    def _profile(
        self,
        call: RankCall,
        stored: StoredRequest,
        degraded: list[Degraded],
        refused: Counter[str],
    ) -> Mapping[str, RawValue]:
        found = unpack_profile(stored.profile)
        if found is None:
            refused["profile"] += stored.profile is not None
            if self._encoder.needs_profile(call):
                degraded.append(Degraded.USER_FEATURES_MISSING)
            return {}
        refused["profile_value"] += found.num_refused
        return found.features

    def _assemble(
        self,
        call: RankCall,
        context: EncodedContext,
        profile: Mapping[str, RawValue],
        stored: StoredRequest,
    ) -> Assembled:
        spec, items = self._manifest.assembly, self.bundle.items
        user_codes, user_numeric = self._encoder.user(call, profile)
        numeric = np.zeros((len(call.item_keys), len(spec.numeric_features)), dtype=np.float32)
        for place, name in enumerate(spec.numeric_features):
            numeric[:, place] = (
                user_numeric[name] if name in user_numeric else context.numeric[name]
            )
        return assemble(
            spec,
            items,
            user_codes=user_codes,
            item_keys=call.item_keys,
            context_codes=context.codes,
            numeric=numeric,
            at_ms=call.at_ms,
            state=RequestState.from_store(
                stored, items, similarity_feature=spec.similarity_feature
            ),
        )

    def _score(self, call: RankCall, logits: FloatArray) -> _Scores:
        manifest = self._manifest
        is_fallback = np.asarray(~np.isfinite(logits).all(axis=1), dtype=np.bool_)
        p = calibrate(
            np.where(is_fallback[:, None], np.float32(0), logits),
            manifest.objectives,
            manifest.calibration,
            negative_keep_frac=manifest.negative_keep_frac,
        )
        p[is_fallback] = self._prior
        bids = call.bid_micros
        if bids is None:
            bids = np.full(len(p), DEFAULT_BID_MICROS, dtype=np.int64)
        score = ecpm_micros(p, bids, manifest.objectives, manifest.value_weights)
        return _Scores(p=p, score=score, is_fallback=is_fallback)

    def _answer(
        self,
        call: RankCall,
        scores: _Scores,
        inputs: _Inputs,
        *,
        degraded: list[Degraded],
        watch: _Stopwatch,
    ) -> RankAnswer:
        n = len(scores.p)
        order = best_first(scores.score)
        rank = np.empty(n, dtype=np.int64)
        rank[order] = np.arange(1, n + 1)
        chosen = order[: call.top_k or n]
        lookup = inputs.lookup
        watch.lap("rank")
        manifest = self._manifest
        return RankAnswer(
            request_id=call.request_id,
            item_ids=call.item_ids,
            objectives=manifest.objectives,
            places=np.sort(chosen) if call.is_in_request_order else chosen,
            rank=rank,
            score=scores.score,
            p=scores.p,
            tier=lookup.tier,
            pair_age_ms=lookup.age_ms,
            similarity=lookup.similarity,
            is_stale=lookup.is_stale,
            is_cold_item=inputs.is_cold_item,
            is_fallback=scores.is_fallback,
            degraded=tuple(degraded),
            vertical=manifest.vertical,
            bundle_id=manifest.bundle_id,
            space_id=manifest.space_id,
            schema_id=manifest.schema_id,
            engine=self.choice.engine.name,
            stage_times=watch.times(),
            num_refused=inputs.num_refused,
            code_counts=inputs.code_counts,
        )


def _no_lookup(n: int) -> PairLookup:
    """Give the lookup of a model that takes no pair vectors."""
    return PairLookup(
        z=np.zeros((n, 0), dtype=np.float32),
        tier=np.full(n, Tier.DEFAULT, dtype=np.int64),
        age_ms=np.full(n, -1, dtype=np.int64),
        similarity=np.zeros(n, dtype=np.float32),
        is_stale=np.zeros(n, dtype=np.bool_),
    )


def _memory_reasons(assembled: Assembled, stored: StoredRequest) -> list[Degraded]:
    """Say what was wrong with the user's memory, if this model takes one."""
    status, memory = assembled.memory_status, stored.memory
    if status is None or status is MemoryStatus.USED:
        return []
    if status is MemoryStatus.STALE:
        return [Degraded.USER_MEMORY_STALE]
    if isinstance(memory, Missing) and memory.reason is not MissingReason.ABSENT:
        return [Degraded.USER_MEMORY_REFUSED]
    return [Degraded.USER_MEMORY_MISSING]


def _same_for_equal(logits: FloatArray, inputs: Arrays, item_keys: IntArray) -> FloatArray:
    """Give candidates with equal inputs the logits of the first of them.

    Engines compute rows in blocks, and the last bit may depend on a row's place in its block.
    """
    _, first, same = np.unique(item_keys, return_index=True, return_inverse=True)
    if len(first) == len(item_keys):
        return logits
    rows = [array for name, array in inputs.items() if _is_context(name)]
    described = np.column_stack([same, *rows]) if rows else same[:, None]
    _, first, same = np.unique(described, axis=0, return_index=True, return_inverse=True)
    equal: FloatArray = logits[first[same.ravel()]]
    return equal


def _is_context(name: str) -> bool:
    return name in {"context_codes", "numeric"}
