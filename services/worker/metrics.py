"""The worker's counters for Prometheus, read from the worker at each scrape."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from precompute.counters import Counters

_PREFIX = "gemcutter_worker"
_GAUGES = frozenset({"newest_known_at_ms"})


class CountersCollector(Collector):
    """Shows counters as gemcutter_worker_<name>_total and the newest record's moment as a gauge."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        """Give every counter as it is now."""
        for name, value in self._counters.to_dict().items():
            if name in _GAUGES:
                yield GaugeMetricFamily(f"{_PREFIX}_{name}", name, value=value)
            else:
                label = re.sub("_s$", "_seconds", name.removeprefix("num_"))
                yield CounterMetricFamily(f"{_PREFIX}_{label}", name, value=value)


def serve_metrics(counters: Counters, port: int) -> tuple[int, Callable[[], None]]:
    """Serve the counters over HTTP; gives the port bound and what stops the server."""
    registry = CollectorRegistry()
    registry.register(CountersCollector(counters))
    server, thread = start_http_server(port, registry=registry)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return int(server.server_port), stop
