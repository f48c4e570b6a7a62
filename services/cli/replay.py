"""Real requests of the test weeks against the running ranker: do online and offline agree?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from features.arrays import FloatArray, IntArray
from features.dataset import LogDataset
from features.metrics import evaluate
from loadtests.traffic import LoggedRequest
from precompute.worker import Worker
from protos import ranking_pb2
from services.cli.live import Filler, RankClient
from services.cli.offline import estimate_json
from services.cli.progress import Step

TIER_NAMES = {
    ranking_pb2.LOOKUP_TIER_EXACT_PAIR: "exact pair",
    ranking_pb2.LOOKUP_TIER_SAME_USER_SIMILAR_ITEM: "same user, similar item",
    ranking_pb2.LOOKUP_TIER_SIMILAR_USER_SAME_ITEM: "similar user, same item",
    ranking_pb2.LOOKUP_TIER_USER_AGGREGATE: "user aggregate",
    ranking_pb2.LOOKUP_TIER_ITEM_AGGREGATE: "item aggregate",
    ranking_pb2.LOOKUP_TIER_DEFAULT: "default",
    ranking_pb2.LOOKUP_TIER_UNSPECIFIED: "not used",
}


@dataclass
class Answers:
    """What the ranker said of many candidates.

    Attributes:
        example_ids: the impression of each.
        p: objective to calibrated probabilities, in the same order.
        tier_names: where each one's vector came from, in the same order.
        degraded: answers by reason.
        num_requests: answered.
    """

    example_ids: list[IntArray] = field(default_factory=list)
    p: dict[str, list[float]] = field(default_factory=dict)
    tier_names: list[str] = field(default_factory=list)
    degraded: Counter[str] = field(default_factory=Counter)
    num_requests: int = 0

    def add(self, logged: LoggedRequest, answer: ranking_pb2.RankResponse) -> None:
        """Add one answer, asked for in request order."""
        self.num_requests += 1
        self.example_ids.append(logged.example_ids)
        for candidate in answer.ranked:
            self.tier_names.append(TIER_NAMES[candidate.tier])
            for objective, p in candidate.p.items():
                self.p.setdefault(objective, []).append(p)
        for reason in answer.degraded:
            name = ranking_pb2.DegradedReason.Name(reason)
            self.degraded[name.removeprefix("DEGRADED_REASON_").lower()] += 1

    @property
    def ids(self) -> IntArray:
        """The impressions, (N,)."""
        return np.concatenate(self.example_ids)


def _ask(client: RankClient, logged: LoggedRequest) -> ranking_pb2.RankResponse:
    request = ranking_pb2.RankRequest()
    request.CopyFrom(logged.request)
    request.by_request_order = True
    return client.rank(request)


def check_parity(
    client: RankClient,
    filler: Filler,
    requests: Sequence[LoggedRequest],
    *,
    offline_p: Mapping[str, FloatArray],
    offline_ids: IntArray,
    num_rows: int,
    step: Step,
) -> dict[str, Any]:
    """Compare the endpoint with the offline scores of the same rows.

    Before each request the store is brought to its moment from the transfer log, so that both
    sides see the same vectors; what may differ is everything in between.
    """
    answers, until_ms = Answers(), requests[0].at_ms
    filler.refill(until_ms)
    asked = 0
    for logged in requests:
        if asked >= num_rows:
            break
        if logged.at_ms > until_ms:
            filler.advance(until_ms, logged.at_ms)
            until_ms = logged.at_ms
        answers.add(logged, _ask(client, logged))
        asked += len(logged.example_ids)
        step.advance(min(1.0, asked / num_rows))
    places = find(offline_ids, answers.ids)
    gaps = {
        name: float(np.abs(np.array(online) - offline_p[name][places]).max())
        for name, online in answers.p.items()
    }
    return {
        "rows": asked,
        "requests": answers.num_requests,
        "max_abs_difference": max(gaps.values()),
        "by_objective": gaps,
    }


def replay_with_worker(
    client: RankClient,
    worker: Worker,
    requests: Sequence[LoggedRequest],
    *,
    dataset: LogDataset,
    step: Step,
) -> tuple[dict[str, Any], Answers]:
    """Replay requests in time order, the live worker always having seen what came before."""
    answers = Answers()
    for place, logged in enumerate(requests):
        worker.run_until(logged.at_ms)
        answers.add(logged, _ask(client, logged))
        step.advance((place + 1) / len(requests), f"{place + 1} of {len(requests)} requests")
    test = dataset.impressions
    rows = test.take(find(test.example_ids, answers.ids))
    num_candidates = len(answers.ids)
    result: dict[str, Any] = {
        "requests": answers.num_requests,
        "rows": num_candidates,
        "tier_share": {
            name: n / num_candidates for name, n in Counter(answers.tier_names).most_common()
        },
        "degraded_share": {
            name: n / answers.num_requests for name, n in answers.degraded.most_common()
        },
        "worker": worker.counters.to_dict(),
        "metrics": {},
    }
    for name, p in answers.p.items():
        metrics = evaluate(np.array(p), rows.labels[name], rows.user_keys)
        result["metrics"][name] = {k: estimate_json(e) for k, e in metrics.items()}
    return result, answers


def find(ids: IntArray, wanted: IntArray) -> IntArray:
    """Give the place of each wanted id; all must be there."""
    order = np.argsort(ids, kind="stable")
    places = order[np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)]
    missing = wanted[ids[places] != wanted]
    if len(missing):
        raise ValueError(f"{len(missing)} impressions are unknown, such as {missing[:3].tolist()}")
    return places
