"""Counters over HTTP, and log lines."""

import json
import logging
from urllib.request import urlopen

from precompute.counters import Counters
from services.logs import JsonFormatter
from services.worker.metrics import serve_metrics


def test_a_scrape_shows_the_counters_as_they_are_now() -> None:
    counters = Counters(num_late=3)
    port, stop = serve_metrics(counters, 0)
    try:
        counters.num_fm_samples = 17
        counters.scoring_s = 1.5
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
    finally:
        stop()
    assert "gemcutter_worker_late_total 3.0" in lines
    assert "gemcutter_worker_fm_samples_total 17.0" in lines
    assert "gemcutter_worker_scoring_seconds_total 1.5" in lines
    assert "gemcutter_worker_newest_known_at_ms 0.0" in lines


def test_a_log_line_is_one_json_object_with_what_was_passed_along() -> None:
    record = logging.makeLogRecord(
        {"msg": "stopped", "levelname": "WARNING", "created": 12.5, "num_late": 3}
    )
    line = JsonFormatter().format(record)
    assert json.loads(line) == {
        "at_ms": 12_500,
        "level": "warning",
        "event": "stopped",
        "num_late": 3,
    }
