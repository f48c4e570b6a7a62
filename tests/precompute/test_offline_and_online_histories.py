"""One log through both paths: files read in batches, and records decoded one by one.

Whatever the order in which records arrive, every moment sees the same events, byte for byte.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.dataset import LogDataset, load_dataset
from features.histories import HistoryIndex, HistorySlice, one_seq
from features.log import Events
from features.segments import named_columns
from precompute.decoding import EventDecoder
from precompute.events import EngagementEvent
from tests.features.tiny_log import DAY_MS, START_MS, write_tiny_log

SOURCES = ("purchase", "contact")
USERS = 4

purchases = st.lists(
    st.tuples(
        st.integers(0, USERS - 1),
        st.integers(0, 40),
        st.sampled_from([0, 0, 1, 7]),
        st.integers(100, 104),
        st.sampled_from([1.0, 2.0, None]),
    ),
    max_size=20,
)
contacts = st.lists(
    st.tuples(
        st.integers(0, USERS - 1), st.integers(0, 40), st.sampled_from(["mail", "fax", None])
    ),
    max_size=12,
)
queries = st.lists(st.tuples(st.integers(0, USERS), st.integers(0, 50)), min_size=1, max_size=8)


def moment(tick: int) -> int:
    return START_MS + tick * 1000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose encoder is fitted; the tables of its events are replaced by every example."""
    folder = write_tiny_log(tmp_path_factory.mktemp("log"), num_days=20)
    load_dataset(folder)
    return folder


def write_events(folder: Path, bought: list[Any], met: list[Any]) -> LogDataset:
    def column(rows: list[Any], place: int, kind: pa.DataType) -> pa.Array:
        return pa.array([row[place] for row in rows], kind)

    at_ms = [moment(row[1]) for row in bought]
    purchase = {
        "user_id": column(bought, 0, pa.int64()),
        "item_id": column(bought, 3, pa.int64()),
        "ts": pa.array(at_ms, pa.int64()),
        "arrived": pa.array([moment(row[1] + row[2]) for row in bought], pa.int64()),
        "quantity": column(bought, 4, pa.float64()),
    }
    contact = {
        "user_id": column(met, 0, pa.int64()),
        "ts": pa.array([moment(row[1]) for row in met], pa.int64()),
        "channel": column(met, 2, pa.string()),
    }
    pq.write_table(pa.table(purchase), folder / "purchase.parquet")
    pq.write_table(pa.table(contact), folder / "contact.parquet")
    return load_dataset(folder)


def payloads(bought: list[Any], met: list[Any]) -> Iterator[bytes]:
    for user, tick, delay, item, quantity in bought:
        yield record("purchase", user, tick, delay, item_id=item, quantity=quantity)
    for user, tick, channel in met:
        yield record("contact", user, tick, 0, channel=channel)


def record(source: str, user: int, tick: int, delay: int, **columns: Any) -> bytes:
    content = {
        "kind": "engagement",
        "source": source,
        "user": user,
        "event_at_ms": moment(tick),
        "arrival_at_ms": moment(tick + delay),
        "columns": columns,
    }
    return json.dumps(content).encode()


def to_events(event: EngagementEvent) -> Events:
    def one(value: Any, dtype: type = np.int64) -> np.ndarray:
        return np.array([value], dtype=dtype)

    return Events(
        user_keys=one(event.user_key),
        at_ms=one(event.at_ms),
        arrival_ms=one(event.arrival_ms),
        item_keys=None if event.item_key is None else one(event.item_key),
        codes={name: one(code) for name, code in event.codes.items()},
        numeric={name: one(number, np.float32) for name, number in event.numeric.items()},
    )


def ask(index: HistoryIndex, asked: list[tuple[int, int]], length: int) -> dict[str, HistorySlice]:
    users = np.array([user for user, _ in asked])
    at_ms = np.array([moment(tick) for _, tick in asked])
    return {name: index.visible(name, users, at_ms, max_length=length) for name in SOURCES}


def content(slices: dict[str, HistorySlice]) -> list[bytes]:
    found = []
    for part in slices.values():
        found.append(part.offsets.tobytes())
        found += [np.asarray(column).tobytes() for column in named_columns(part).values()]
    merged = one_seq(slices, max_length=10)
    return [*found, merged.position.tobytes(), merged.source_index.tobytes()]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), bought=purchases, met=contacts, asked=queries)
def test_files_and_records_in_any_order_give_the_same_histories(
    data: st.DataObject, folder: Path, bought: list[Any], met: list[Any], asked: Any
) -> None:
    offline = write_events(folder, bought, met)
    decoder = EventDecoder(offline.schema, offline.encoder)
    empty = {name: events.take(np.zeros(0, np.int64)) for name, events in offline.events.items()}
    online = HistoryIndex.build(empty)

    for payload in data.draw(st.permutations(list(payloads(bought, met)))):
        event = decoder.decode(payload)
        assert isinstance(event, EngagementEvent), event
        online.append(event.source, to_events(event))

    assert len(offline.events["purchase"]) == online.num_events("purchase") == len(bought)
    for length in (1, 3, 99):
        assert content(ask(offline.histories(), asked, length)) == content(
            ask(online, asked, length)
        )


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bought=purchases, met=contacts, asked=queries, cut=st.integers(0, 50))
def test_no_moment_sees_what_was_not_known_and_none_loses_what_was(
    folder: Path, bought: list[Any], met: list[Any], asked: Any, cut: int
) -> None:
    whole = write_events(folder, bought, met).histories()
    asked = [(user, min(tick, cut)) for user, tick in asked]
    before = content(ask(whole, asked, 99))
    lengths = ask(whole, asked, 99)["purchase"].lengths.tolist()
    for (user, tick), length in zip(asked, lengths, strict=True):
        known = [r for r in bought if r[0] == user and r[1] < tick and r[1] + r[2] <= tick]
        assert length == len(known)

    past = write_events(folder, [r for r in bought if r[1] < cut], [r for r in met if r[1] < cut])

    assert content(ask(past.histories(), asked, 99)) == before


def test_a_history_of_a_hundred_thousand_events_is_whole_and_one_of_none_is_empty(
    tmp_path: Path,
) -> None:
    folder = write_tiny_log(tmp_path / "log", num_days=20)
    num = 100_000
    at_ms = START_MS + np.arange(num) * 10
    order = np.random.default_rng(0).permutation(num)
    table = {
        "user_id": np.full(num, 2),
        "item_id": 100 + order % 20,
        "ts": at_ms[order],
        "arrived": at_ms[order],
        "quantity": np.ones(num),
    }
    pq.write_table(pa.table(table), folder / "purchase.parquet", row_group_size=7_001)

    index = load_dataset(folder).histories()
    asked_ms = np.array([START_MS + 20 * DAY_MS, START_MS, START_MS + 20 * DAY_MS])
    part = index.visible("purchase", np.array([2, 2, 3]), asked_ms, max_length=num)

    assert part.lengths.tolist() == [num, 0, 0]
    np.testing.assert_array_equal(part.at_ms, at_ms)
    assert part.item_keys is not None
    np.testing.assert_array_equal(np.sort(part.item_keys), np.sort(table["item_id"]))
    newest = index.visible("purchase", np.array([2]), asked_ms[:1], max_length=5)
    np.testing.assert_array_equal(newest.at_ms, at_ms[-5:])
