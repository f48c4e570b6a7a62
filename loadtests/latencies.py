"""Latencies in an HDR histogram, so that percentiles of several workers can be merged exactly.

Percentiles are never averaged: merge the histograms, then ask.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hdrh.histogram import HdrHistogram

MAX_TRACKED_US = 60_000_000
# Three digits: an error of at most 0.1 % everywhere, where the field asks for 2 %.
_SIGNIFICANT_DIGITS = 3
PERCENTILES = {"p50_ms": 50.0, "p95_ms": 95.0, "p99_ms": 99.0, "p999_ms": 99.9}


class Latencies:
    """A mergeable record of latencies up to 60 s.

    Longer ones are counted in ``num_overflow`` and enter the percentiles as 60 s: a percentile
    that reads 60 s means "at least".
    """

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, MAX_TRACKED_US, _SIGNIFICANT_DIGITS)
        self.num_overflow = 0
        self.max_us = 0

    def __len__(self) -> int:
        return int(self._histogram.get_total_count())

    def record_us(self, latency_us: int) -> None:
        """Add one latency in microseconds; below 1 counts as 1.

        Cost: about a microsecond.
        """
        self.max_us = max(self.max_us, latency_us)
        if latency_us > MAX_TRACKED_US:
            self.num_overflow += 1
        self._histogram.record_value(min(max(latency_us, 1), MAX_TRACKED_US))

    def percentile_ms(self, percent: float) -> float | None:
        """Give the latency that this percentage does not exceed; None without any."""
        if not len(self):
            return None
        # The histogram answers with the top of a bucket, which may lie above the true maximum.
        value_us = int(self._histogram.get_value_at_percentile(percent))
        return min(value_us, self.max_us) / 1e3

    @classmethod
    def merged(cls, parts: Iterable[Latencies]) -> Latencies:
        """Give the latencies of all parts in one record."""
        total = cls()
        for part in parts:
            total._histogram.add(part._histogram)
            total.num_overflow += part.num_overflow
            total.max_us = max(total.max_us, part.max_us)
        return total

    def to_dict(self) -> dict[str, Any]:
        """Give percentiles in milliseconds and the histogram itself, ready for JSON."""
        summary: dict[str, Any] = {"count": len(self), "num_overflow": self.num_overflow}
        summary |= {name: self.percentile_ms(percent) for name, percent in PERCENTILES.items()}
        summary["max_ms"] = self.max_us / 1e3 if len(self) else None
        summary["hdr_histogram_us"] = self._histogram.encode().decode("ascii")
        return summary

    @classmethod
    def from_dict(cls, summary: dict[str, Any]) -> Latencies:
        """Read back what to_dict wrote, to merge reports of several workers."""
        latencies = cls()
        latencies._histogram = HdrHistogram.decode(summary["hdr_histogram_us"])
        latencies.num_overflow = int(summary["num_overflow"])
        latencies.max_us = round((summary["max_ms"] or 0) * 1e3)
        return latencies
