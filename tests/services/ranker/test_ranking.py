"""Ranked answers over both doors: the same scores, and each caller its own."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from features.store import LocalServer, RedisStore
from features.vectorstore import VectorStore
from protos import ranking_pb2 as pb
from ranking.bundle import Bundle
from tests.ranking.tiny_bundle import AT_MS, DIM, PRIOR, SPACE_ID
from tests.services.ranker.running import Client, body, message, running

ITEMS = (101, 105, 110, 999)


def test_grpc_and_http_give_the_same_scores(client: Client) -> None:
    over_grpc = client.rank(message(*ITEMS))
    status, over_http, _ = client.post(body(*ITEMS))
    assert status == 200
    assert len({c.score for c in over_grpc.ranked}) > 1
    assert [(c.item_id_int, c.score, c.rank, dict(c.p)) for c in over_grpc.ranked] == [
        (c["item_id"], c["score"], c["rank"], c["p"]) for c in over_http["ranked"]
    ]
    names = [pb.DegradedReason.Name(reason) for reason in over_grpc.degraded]
    assert [n.removeprefix("DEGRADED_REASON_").lower() for n in names] == over_http["degraded"]


def test_http_also_takes_the_message_in_its_json_mapping(client: Client) -> None:
    ids = base64.b64encode(np.array(ITEMS, dtype="<i8").tobytes()).decode()
    mapping = {
        "vertical": "home",
        "user_id_int": "1",
        "at_ms": str(AT_MS),
        "context": {"surface": {"text": "feed"}},
        "candidates": {"item_ids_le": ids},
    }
    status, answer, _ = client.post(mapping)
    assert status == 200
    assert answer["ranked"] == client.post(body(*ITEMS))[1]["ranked"]


def test_both_forms_of_ids_bids_and_columns_say_the_same(client: Client) -> None:
    packed = message(*ITEMS)
    packed.candidates.bid_micros_le = np.array([4, 3, 2, 1], dtype="<i8").tobytes()
    packed.candidates.columns.add(name="slot", texts=["slot0", "slot1", "slot2", ""])
    plain = message()
    plain.candidates.item_ids_int.extend(ITEMS)
    plain.candidates.bid_micros.extend([4, 3, 2, 1])
    plain.candidates.columns.add(name="slot", texts=["slot0", "slot1", "slot2", ""])
    rows = [
        {"item_id": str(item), "bid_micros": 4 - place, "slot": [*"012", None][place]}
        for place, item in enumerate(ITEMS)
    ]
    for row in rows[:3]:
        row["slot"] = f"slot{row['slot']}"
    scores = [[c.score for c in client.rank(request).ranked] for request in (packed, plain)]
    answer = client.post({**body(), "candidates": rows})[1]
    assert scores[0] == scores[1] == [c["score"] for c in answer["ranked"]]


def test_empty_candidates_are_an_empty_answer(client: Client) -> None:
    assert len(client.rank(message()).ranked) == 0
    status, answer, _ = client.post(body())
    assert (status, answer["ranked"]) == (200, [])


def test_a_score_that_is_no_number_never_reaches_json(client: Client) -> None:
    status, answer, _ = client.post(body(101, 119))
    assert status == 200
    assert "NaN" not in json.dumps(answer)
    row = next(c for c in answer["ranked"] if c["item_id"] == 119)
    assert row["is_fallback"] is True
    assert row["p"] == pytest.approx(PRIOR)
    assert "score_fallback" in answer["degraded"]
    assert answer["num_fallback"] == 1
    assert client.metric("gemcutter_ranker_score_fallbacks_total") >= 1


def test_values_that_are_null_or_unknown_are_counted_by_feature(client: Client) -> None:
    metric = 'gemcutter_ranker_uncoded_values_total{feature="slot",why="%s"}'
    before = {why: client.metric(metric % why) for why in ("null", "unknown")}

    request = {**body(101, 102, 103, 104), "context": {"surface": "feed"}}
    slots = ["zzz", "yyy", None, "slot1"]
    rows = [{"item_id": 101 + i, "slot": slot} for i, slot in enumerate(slots)]
    assert client.post({**request, "candidates": rows})[0] == 200

    assert client.metric(metric % "unknown") - before["unknown"] == 2
    assert client.metric(metric % "null") - before["null"] == 1


def test_top_k_and_the_order_asked(client: Client) -> None:
    every = client.rank(message(*ITEMS)).ranked
    best = client.rank(message(*ITEMS, top_k=2)).ranked
    asked = client.rank(message(*ITEMS, by_request_order=True)).ranked
    assert [c.item_id_int for c in best] == [c.item_id_int for c in every[:2]]
    assert [c.item_id_int for c in asked] == list(ITEMS)
    assert [c.index for c in asked] == [0, 1, 2, 3]


def test_concurrent_callers_get_exactly_their_rows(client: Client) -> None:
    rng = np.random.default_rng(0)
    baskets = [rng.integers(90, 119, rng.integers(1, 40)).tolist() for _ in range(60)]
    alone = [client.rank(message(*basket)) for basket in baskets]

    def call(place: int) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
        over_grpc = client.rank(message(*baskets[place])).ranked
        over_http = client.post(body(*baskets[place]))[1]["ranked"]
        return (
            [(c.item_id_int, c.score) for c in over_grpc],
            [(c["item_id"], c["score"]) for c in over_http],
        )

    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(call, range(len(baskets))))
    for expected, (over_grpc, over_http) in zip(alone, together, strict=True):
        rows = [(c.item_id_int, c.score) for c in expected.ranked]
        assert over_grpc == rows == over_http


def test_answers_stay_ok_and_flagged_when_the_store_is_emptied_and_then_dies(
    bundle: Bundle,
) -> None:
    server = LocalServer.start()
    store = RedisStore(server.url)
    vectors = VectorStore(
        store, space_id=SPACE_ID, dim=DIM, dtype="int8", memory_length=4, hard_ttl_ms=10**10
    )
    z = np.full((1, DIM), 0.5, dtype=np.float32)
    vectors.add_memory(1, np.array([AT_MS - 1000]), item_keys=np.array([101]), z=z)
    vectors.add_pairs(1, np.array([101]), at_ms=AT_MS - 1000, z=z)
    with running(bundle.folder, store=server.url) as client, ThreadPoolExecutor(4) as threads:
        full = client.rank(message(*ITEMS))
        assert full.ranked[0].tier != pb.LOOKUP_TIER_DEFAULT
        first = threads.map(client.rank, [message(*ITEMS)] * 40)
        store.flush()
        assert all(len(answer.ranked) == 4 for answer in first)
        emptied = client.rank(message(*ITEMS))
        assert pb.DEGRADED_REASON_USER_MEMORY_MISSING in emptied.degraded
        second = threads.map(client.rank, [message(*ITEMS)] * 40)
        store.close()
        server.stop()
        assert all(len(answer.ranked) == 4 and answer.degraded for answer in second)
        dead = client.rank(message(*ITEMS))
        assert pb.DEGRADED_REASON_STORE_UNAVAILABLE in dead.degraded
        assert {c.tier for c in dead.ranked} == {pb.LOOKUP_TIER_DEFAULT}
        assert client.serving()
        assert client.metric('gemcutter_ranker_degraded_total{reason="store_unavailable"}') >= 1
