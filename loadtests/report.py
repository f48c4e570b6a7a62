"""What a load run says: every planned request once, percentiles by phase, a verdict on the client.

Latency runs from the *intended* send time. It covers every request that got an answer and every
one given up at its deadline (at the moment of giving up, so a lower bound); refused and failed
requests are counted and stay out, for a fast error would flatter the percentiles.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loadtests.arrivals import Seconds
from loadtests.latencies import Latencies

# A run that breaks one of these measured the generator, not the server.
MIN_ACHIEVED_FRAC = 0.98
MAX_CLIENT_CPU_FRAC = 0.80
MAX_SEND_DELAY_FRAC = 0.10


class Outcome(IntEnum):
    """How one planned request ended; exactly one of these."""

    OK = 0
    DEGRADED = 1  # answered in time, and the answer says it is less than it could be
    LATE = 2  # answered after the deadline, or given up at it
    REFUSED = 3  # shed by the server's admission
    FAILED = 4  # any other error
    UNSENT = 5  # a bug of the generator if it is ever seen in a report


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a transport got for one request.

    Attributes:
        outcome: OK, DEGRADED, LATE (given up at the deadline), REFUSED or FAILED.
        reasons: degraded reasons, or the error's status name.
    """

    outcome: Outcome
    reasons: tuple[str, ...] = ()


class Recording:
    """Raw times and outcomes of one run; the report is made from it after the run.

    Shapes:
        due_s, sent_s, done_s: (N,), float64, seconds from the start of the run.
        outcomes: (N,), int8.
    """

    def __init__(self, due_s: Seconds) -> None:
        self.due_s = due_s
        self.sent_s = np.full(len(due_s), np.nan)
        self.done_s = np.full(len(due_s), np.nan)
        self.outcomes: npt.NDArray[np.int8] = np.full(len(due_s), Outcome.UNSENT, dtype=np.int8)
        self.reasons: list[tuple[str, ...]] = [()] * len(due_s)
        self.client_cpu_frac = 0.0

    def put(self, index: int, *, sent_s: float, done_s: float, answer: Answer) -> None:
        """Record how one request ended."""
        self.sent_s[index] = sent_s
        self.done_s[index] = done_s
        self.outcomes[index] = answer.outcome
        self.reasons[index] = answer.reasons

    def mark_late(self, deadline_s: float) -> None:
        """Turn answers that came after the deadline into late ones."""
        answered = np.isin(self.outcomes, (Outcome.OK, Outcome.DEGRADED))
        # A nanosecond of room: sums of float seconds are not exact.
        late = answered & (self.done_s - self.due_s > deadline_s + 1e-9)
        self.outcomes[late] = Outcome.LATE


@dataclass(frozen=True, kw_only=True)
class PhaseReport:
    """One stretch of the run, by intended send time: [start_s, end_s) from the end of warm-up.

    Units:
        *_frac: share of the planned requests. goodput_frac: answered within the deadline, degraded
        or not. error_frac: refused or failed.
    """

    name: str
    start_s: float
    end_s: float
    planned: int
    ok: int
    degraded: int
    late: int
    refused: int
    failed: int
    ok_frac: float
    goodput_frac: float
    error_frac: float
    reasons: dict[str, int]
    latency: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """A finished run, ready for JSON.

    Attributes:
        overall: the measured window. phases: the same cut at the hooks; one phase without hooks.
        warmup: the excluded stretch.
        achieved_frac: requests that left within the measured window, of those planned for it.
        client_cpu_frac: CPU seconds of this process per second of the window; 1 is one core.
        is_valid: whether the generator kept up; invalid_reasons say where it did not.
    """

    target: str
    rate_qps: float
    duration_s: float
    warmup_s: float
    deadline_ms: float
    seed: int | None
    achieved_qps: float
    achieved_frac: float
    client_cpu_frac: float
    send_delay_p99_ms: float
    is_valid: bool
    invalid_reasons: tuple[str, ...]
    overall: PhaseReport
    phases: tuple[PhaseReport, ...]
    warmup: PhaseReport

    def to_dict(self) -> dict[str, Any]:
        """Give plain dicts, lists and numbers."""
        return asdict(self)

    def write(self, path: Path) -> None:
        """Write the report as JSON."""
        path.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Window:
    """What was asked of the run.

    Attributes:
        cuts: (seconds from the end of warm-up, name of the hook), in order of time.
    """

    target: str
    rate_qps: float
    duration_s: float
    warmup_s: float
    deadline_ms: float
    seed: int | None
    cuts: tuple[tuple[float, str], ...] = ()


def make_report(recording: Recording, window: Window) -> LoadReport:
    """Give the report of a finished run; answers past the deadline become late ones."""
    recording.mark_late(window.deadline_ms / 1e3)
    end_s = window.warmup_s + window.duration_s
    measured = recording.due_s >= window.warmup_s
    num_planned = int(measured.sum())
    num_sent = int((measured & (recording.sent_s < end_s)).sum())
    delay_s = (recording.sent_s - recording.due_s)[measured]
    report = LoadReport(
        target=window.target,
        rate_qps=window.rate_qps,
        duration_s=window.duration_s,
        warmup_s=window.warmup_s,
        deadline_ms=window.deadline_ms,
        seed=window.seed,
        achieved_qps=num_sent / window.duration_s,
        achieved_frac=num_sent / num_planned if num_planned else 0.0,
        client_cpu_frac=recording.client_cpu_frac,
        send_delay_p99_ms=float(np.percentile(delay_s, 99)) * 1e3 if num_planned else 0.0,
        is_valid=True,
        invalid_reasons=(),
        overall=_phase(recording, window, "measured", (0.0, window.duration_s)),
        phases=_phases(recording, window),
        warmup=_phase(recording, window, "warmup", (-window.warmup_s, 0.0)),
    )
    reasons = generator_faults(report)
    return replace(report, is_valid=not reasons, invalid_reasons=reasons)


def generator_faults(report: LoadReport) -> tuple[str, ...]:
    """Give the reasons why the run measured its own client; empty when it did not."""
    faults = []
    if not report.overall.planned:
        faults.append("no request was planned in the measured window")
    if report.achieved_frac < MIN_ACHIEVED_FRAC:
        faults.append(
            f"sent {report.achieved_frac:.1%} of the planned requests inside the window, "
            f"expected {MIN_ACHIEVED_FRAC:.0%} or more"
        )
    if report.client_cpu_frac > MAX_CLIENT_CPU_FRAC:
        faults.append(
            f"generator used {report.client_cpu_frac:.0%} of a core, "
            f"expected {MAX_CLIENT_CPU_FRAC:.0%} or less"
        )
    p99_ms = report.overall.latency["p99_ms"]
    if p99_ms is not None and report.send_delay_p99_ms > MAX_SEND_DELAY_FRAC * p99_ms:
        faults.append(
            f"send delay p99 {report.send_delay_p99_ms:.2f} ms is over "
            f"{MAX_SEND_DELAY_FRAC:.0%} of the reported p99 {p99_ms:.2f} ms"
        )
    return tuple(faults)


def _phases(recording: Recording, window: Window) -> tuple[PhaseReport, ...]:
    if not window.cuts:
        return (_phase(recording, window, "steady", (0.0, window.duration_s)),)
    names = [f"before {window.cuts[0][1]}", *(f"after {name}" for _, name in window.cuts)]
    edges = [0.0, *(at_s for at_s, _ in window.cuts), window.duration_s]
    return tuple(
        _phase(recording, window, name, span_s)
        for name, span_s in zip(names, pairwise(edges), strict=True)
    )


def _phase(
    recording: Recording, window: Window, name: str, span_s: tuple[float, float]
) -> PhaseReport:
    start_s, end_s = span_s
    due_s = recording.due_s - window.warmup_s
    chosen = np.flatnonzero((due_s >= start_s) & (due_s < end_s))
    outcomes = recording.outcomes[chosen]
    counts = {kind: int((outcomes == kind).sum()) for kind in Outcome}
    assert not counts[Outcome.UNSENT], f"{counts[Outcome.UNSENT]} requests never sent"
    latencies = Latencies()
    timed = chosen[np.isin(outcomes, (Outcome.OK, Outcome.DEGRADED, Outcome.LATE))]
    for latency_s in recording.done_s[timed] - recording.due_s[timed]:
        latencies.record_us(round(latency_s * 1e6))
    num_planned = len(chosen)
    num_good = counts[Outcome.OK] + counts[Outcome.DEGRADED]
    num_errors = counts[Outcome.REFUSED] + counts[Outcome.FAILED]
    return PhaseReport(
        name=name,
        start_s=start_s,
        end_s=end_s,
        planned=num_planned,
        ok=counts[Outcome.OK],
        degraded=counts[Outcome.DEGRADED],
        late=counts[Outcome.LATE],
        refused=counts[Outcome.REFUSED],
        failed=counts[Outcome.FAILED],
        ok_frac=counts[Outcome.OK] / max(num_planned, 1),
        goodput_frac=num_good / max(num_planned, 1),
        error_frac=num_errors / max(num_planned, 1),
        reasons=_reason_counts([recording.reasons[index] for index in chosen]),
        latency=latencies.to_dict(),
    )


def _reason_counts(reasons: Sequence[tuple[str, ...]]) -> dict[str, int]:
    return dict(sorted(Counter(reason for several in reasons for reason in several).items()))
