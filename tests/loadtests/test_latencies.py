"""Percentiles: merged, never averaged, and fine enough (case G5)."""

import json

import pytest

from loadtests.latencies import MAX_TRACKED_US, Latencies


def latencies(*groups: tuple[int, int]) -> Latencies:
    made = Latencies()
    for count, latency_us in groups:
        for _ in range(count):
            made.record_us(latency_us)
    return made


def test_percentiles_of_two_workers_are_those_of_their_merged_samples() -> None:
    worker_a, worker_b = latencies((5_000, 8_000)), latencies((50, 900_000))
    merged = Latencies.merged([worker_a, worker_b])
    assert merged.percentile_ms(99.0) == pytest.approx(8.0, rel=0.002)
    assert merged.percentile_ms(99.5) == pytest.approx(900.0, rel=0.002)
    assert len(merged) == 5_050


def test_samples_that_are_all_equal_read_as_that_value_at_every_percentile() -> None:
    made = latencies((1_000, 12_000))
    assert [made.percentile_ms(p) for p in (50, 95, 99.9)] == [12.0, 12.0, 12.0]


def test_a_latency_above_the_tracked_range_shows_as_overflow_and_in_the_maximum() -> None:
    made = latencies((9, 1_000), (1, MAX_TRACKED_US + 5_000_000))
    summary = made.to_dict()
    assert summary["num_overflow"] == 1
    assert summary["max_ms"] == 65_000.0
    assert summary["count"] == 10
    assert summary["p999_ms"] == pytest.approx(60_000.0, rel=0.002)


def test_latencies_read_back_from_json_merge_like_the_originals() -> None:
    worker_a, worker_b = latencies((700, 40_000)), latencies((300, 90_000))
    read = [Latencies.from_dict(json.loads(json.dumps(w.to_dict()))) for w in (worker_a, worker_b)]
    assert Latencies.merged(read).to_dict() == Latencies.merged([worker_a, worker_b]).to_dict()


def test_no_samples_have_no_percentile_rather_than_zero() -> None:
    assert Latencies().to_dict()["p99_ms"] is None
    assert Latencies().to_dict()["max_ms"] is None
