"""The process's counters and histograms; every label comes from a closed set."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from features.lookup import Tier
from ranking.runtime.answer import RankAnswer
from ranking.runtime.breaker import Breaker
from ranking.runtime.loader import RankerSlot
from services.ranker.admission import Permits

OTHER_VERTICAL = "other"
_BUCKETS_S = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25, 1.0)
_STAGES = ("validate", "lookup", "assemble", "engine", "rank", "total")


# What is counted: name, what it is, labels.
_COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "calls": ("Rank calls by outcome.", ("vertical", "transport", "code")),
    "degraded": ("Answers by degraded reason.", ("reason",)),
    "candidates": ("Ranked candidates by where their pair vector came from.", ("tier",)),
    "score_fallbacks": ("Candidates whose score was no number and became the prior.", ()),
    "refused_values": ("Stored values that could not be used, by reason.", ("reason",)),
    "uncoded_values": (
        "Values of ranked requests that are null, or unknown to their vocabulary.",
        ("feature", "why"),
    ),
    "faults": ("Unexpected exceptions behind INTERNAL.", ()),
}


class RankerMetrics:
    """What a ranker counts. Safe to use from many threads."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        registry = self._registry
        self._counters = {
            name: Counter(f"gemcutter_ranker_{name}", text, labels, registry=registry)
            for name, (text, labels) in _COUNTERS.items()
        }
        self._stages = Histogram(
            "gemcutter_ranker_stage_seconds",
            "Time of each stage of answered calls.",
            ("stage",),
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._ready = Gauge(
            "gemcutter_ranker_ready", "1 while the process serves.", registry=registry
        )

    def watch(self, slots: tuple[RankerSlot, ...], breaker: Breaker, permits: Permits) -> None:
        """Show the state of bundles, of the store's breaker and of admission at every scrape."""
        self._registry.register(_StateCollector(slots, breaker, permits))

    def count_call(self, vertical: str, transport: str, code: str) -> None:
        """Count one call; `vertical` is a served one or OTHER_VERTICAL."""
        self._counters["calls"].labels(vertical, transport, code).inc()

    def count_fault(self) -> None:
        """Count an exception that nobody expected."""
        self._counters["faults"].inc()

    def set_ready(self, is_ready: bool) -> None:
        """Show whether the process serves."""
        self._ready.set(is_ready)

    def observe(self, answer: RankAnswer) -> None:
        """Count what an answer says of itself."""
        for stage in _STAGES:
            elapsed_us = getattr(answer.stage_times, f"{stage}_us")
            self._stages.labels(stage).observe(elapsed_us / 1e6)
        for reason in answer.degraded:
            self._counters["degraded"].labels(reason.name.lower()).inc()
        counts = np.bincount(answer.tier, minlength=max(Tier) + 1)
        for tier in Tier:
            if counts[tier]:
                self._counters["candidates"].labels(tier.name.lower()).inc(int(counts[tier]))
        for name, count in answer.num_refused.items():
            self._counters["refused_values"].labels(name).inc(count)
        for name, count in answer.code_counts.num_null.items():
            self._counters["uncoded_values"].labels(name, "null").inc(count)
        for name, count in answer.code_counts.num_unknown.items():
            self._counters["uncoded_values"].labels(name, "unknown").inc(count)
        if answer.num_fallback:
            self._counters["score_fallbacks"].inc(answer.num_fallback)

    def text(self) -> bytes:
        """Give everything in Prometheus' text format."""
        return generate_latest(self._registry)


class _StateCollector(Collector):
    """Reads slots, breaker and permits when asked."""

    def __init__(self, slots: tuple[RankerSlot, ...], breaker: Breaker, permits: Permits) -> None:
        self._slots, self._breaker, self._permits = slots, breaker, permits

    def collect(self) -> Iterator[Metric]:
        """Give the state as it is now."""
        yield GaugeMetricFamily(
            "gemcutter_ranker_store_left_alone",
            "1 while the store keeps failing and is not asked.",
            value=int(self._breaker.is_open),
        )
        yield GaugeMetricFamily(
            "gemcutter_ranker_running", "Calls that hold a permit.", value=self._permits.num_running
        )
        yield GaugeMetricFamily(
            "gemcutter_ranker_waiting", "Calls that wait for one.", value=self._permits.num_waiting
        )
        loads = CounterMetricFamily(
            "gemcutter_ranker_bundle_loads", "Bundle loads by outcome.", labels=("outcome",)
        )
        loads.add_metric(("loaded",), sum(slot.num_loads for slot in self._slots))
        loads.add_metric(("refused",), sum(slot.num_failures for slot in self._slots))
        yield loads
        rankers = [slot.ranker for slot in self._slots if slot.ranker is not None]
        yield GaugeMetricFamily(
            "gemcutter_ranker_engine_fallbacks",
            "Bundles served by another engine than the one wanted.",
            value=sum(ranker.choice.fallback_reason is not None for ranker in rankers),
        )
