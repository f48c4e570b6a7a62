"""What a worker has done, as plain numbers that only grow; the process shows them to Prometheus."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(kw_only=True)
class Counters:
    """Totals since the start of the worker.

    Attributes:
        num_polled: records taken in, of any kind.
        num_engagements, num_requests: events applied.
        num_late: applied events older than the newest already applied of the same user.
        num_duplicates: records at a position that was dealt with before; skipped.
        num_dead_letters: records set aside with their reason.
        num_fm_samples: vectors computed by the foundation model.
        num_memory_vectors, num_pair_vectors: vectors handed to the store.
        num_store_retries: store calls that failed and were made again.
        num_commits: positions made durable.
        newest_known_at_ms: moment of the newest record applied; 0 before the first.
    """

    num_polled: int = 0
    num_engagements: int = 0
    num_requests: int = 0
    num_late: int = 0
    num_duplicates: int = 0
    num_dead_letters: int = 0
    num_fm_samples: int = 0
    num_memory_vectors: int = 0
    num_pair_vectors: int = 0
    num_store_retries: int = 0
    num_commits: int = 0
    newest_known_at_ms: int = 0
    scoring_s: float = 0.0
    storing_s: float = 0.0

    def to_dict(self) -> dict[str, int | float]:
        """Give name to value."""
        return asdict(self)
