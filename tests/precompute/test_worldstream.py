"""The synthetic world in a broker: what is sent, in what order, and what a reader gets."""

import importlib.util
import itertools
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from features.errors import DataError
from foundation.datasets.world.config import WorldConfig
from foundation.datasets.world.oracle import columns_named
from foundation.datasets.world.stream import OUTCOMES, Calendar, known_ms, stream
from foundation.datasets.world.ticks import World
from precompute.worldstream import (
    ARROW_TYPE,
    ROWS_PER_MESSAGE,
    Address,
    KafkaBroker,
    Message,
    SinkError,
    partitions_of,
    send_world,
)
from protos import events_pb2

CONFIG = WorldConfig(num_users=120, users_per_block=40, num_days=6, num_ads=500, ticks_per_day=2)
NUM_PARTITIONS = 3


@dataclass
class MemoryBroker:
    """Keeps messages by topic and partition; may refuse one."""

    refused: int | None = None
    messages: dict[tuple[str, int], list[Message]] = field(default_factory=dict)
    num_flushed: int = 0
    _waiting: list[Message] = field(default_factory=list)

    def open_topics(self, topics: list[str]) -> int:
        return NUM_PARTITIONS

    def send(self, message: Message) -> None:
        self._waiting.append(message)

    def flush(self) -> None:
        for message in self._waiting:
            if self.num_flushed == self.refused:
                raise SinkError("refused")
            self.messages.setdefault((message.topic, message.partition), []).append(message)
            self.num_flushed += 1
        self._waiting.clear()


def silent(share: float, what: str) -> None:
    """Tell nobody."""


def batch_of(value: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(value) as reader:
        batches = list(reader)
    assert len(batches) == 1
    return batches[0]


def test_the_stream_has_each_row_of_the_log_that_was_known_in_time_once_and_in_order() -> None:
    world = World(CONFIG)
    sent: dict[str, list[dict[str, np.ndarray]]] = {}
    last_ms = 0
    for tick, tables in enumerate(stream(world, range(CONFIG.num_blocks))):
        end_ms = CONFIG.start_ms + (tick + 1) * CONFIG.tick_ms
        for table, columns in tables.items():
            moments = known_ms(columns)
            assert (np.diff(moments) >= 0).all()
            assert moments[-1] < end_ms
            # Only a clock that is off puts a row before its tick.
            assert moments[0] > last_ms - 200_000
            sent.setdefault(table, []).append(columns)
        last_ms = end_ms
    pieces = list(world.pieces())
    for table, parts in sent.items():
        rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        whole = {
            name: np.concatenate([piece.tables[table][name] for piece in pieces])
            for name in parts[0]
        }
        in_time = known_ms(whole) < CONFIG.end_ms
        for name, column in whole.items():
            np.testing.assert_array_equal(np.sort(column[in_time]), np.sort(rows[name]))


def test_rows_of_ticks_after_the_log_never_come() -> None:
    calendar = Calendar(3)
    calendar.add("t", {"user_id": np.arange(4)}, np.array([2, 0, 3, 2]))
    assert calendar.take(0)["t"]["user_id"].tolist() == [1]
    assert calendar.take(1) == {}
    assert calendar.take(2)["t"]["user_id"].tolist() == [0, 3]
    assert calendar.take(3) == {}


def test_arrow_messages_hold_every_row_by_user_and_in_order() -> None:
    world, broker = World(CONFIG), MemoryBroker()
    sent = send_world(world, range(CONFIG.num_blocks), broker, message_format="arrow", tell=silent)
    num_rows: Counter[str] = Counter()
    for (topic, partition), messages in broker.messages.items():
        rows = pa.Table.from_batches([batch_of(m.value) for m in messages]).to_pydict()
        assert all(m.num_rows <= ROWS_PER_MESSAGE for m in messages)
        assert {m.content_type for m in messages} == {ARROW_TYPE}
        users = np.array(rows["user_id"])
        assert (partitions_of(users, NUM_PARTITIONS) == partition).all()
        known = known_ms({name: np.array(column) for name, column in rows.items()})
        starts = np.cumsum([0, *(m.num_rows for m in messages)])
        for first, last in itertools.pairwise(starts):
            assert (np.diff(known[first:last]) >= 0).all()
        assert not set(OUTCOMES) & rows.keys()
        assert not columns_named(list(rows))
        num_rows[topic.rpartition(".")[2] if "engagements" in topic else "impressions"] += len(
            users
        )
    assert num_rows == sent.num_rows
    assert set(num_rows) == {"impressions", *world.source_names}


def test_protobuf_messages_say_the_same_as_the_batches() -> None:
    world = World(CONFIG)
    arrow, protobuf = MemoryBroker(), MemoryBroker()
    blocks = range(CONFIG.num_blocks)
    first = send_world(world, blocks, arrow, message_format="arrow", tell=silent)
    second = send_world(world, blocks, protobuf, message_format="protobuf", tell=silent)
    assert first.num_rows == second.num_rows
    for partition in range(NUM_PARTITIONS):
        expected = [
            row
            for message in arrow.messages["engagements.v1.view", partition]
            for row in batch_of(message.value).to_pylist()
        ]
        messages = protobuf.messages["engagements.v1.view", partition]
        for row, message in zip(expected, messages, strict=True):
            event = events_pb2.Engagement.FromString(message.value)
            assert message.key == str(row["user_id"]).encode()
            assert (event.source, event.user.integer) == ("view", row["user_id"])
            times = (event.event_at_ms, event.arrival_at_ms)
            assert times == (row["at_ms"], row["arrived_ms"])
            assert event.columns["item_id"].integer == row["item_id"]
            assert event.columns["dwell_s"].number == pytest.approx(row["dwell_s"])


def test_a_request_is_one_message_with_its_candidates_in_order() -> None:
    world, broker = World(CONFIG), MemoryBroker()
    send_world(world, range(1), broker, message_format="protobuf", tell=silent)
    shown: dict[str, list[int]] = {}
    for piece in world.pieces(range(1)):
        seen = piece.tables["impressions"]
        for request, item in zip(seen["request_id"], seen["item_id"], strict=True):
            shown.setdefault(str(request), []).append(int(item))
    asked = {}
    for partition in range(NUM_PARTITIONS):
        for message in broker.messages["ranker.requests.v1", partition]:
            request = events_pb2.ServedRequest.FromString(message.value).request
            assert request.request_id not in asked
            assert request.context["surface"].text in {"feed", "story", "search", "partner"}
            assert list(request.candidates.columns[0].integers) == [0, 1, 2, 3]
            asked[request.request_id] = list(request.candidates.item_ids_int)
    assert asked.keys() <= shown.keys()
    assert len(asked) > 0.95 * len(shown)  # those after the end of the log are missing
    assert all(shown[name] == items for name, items in asked.items())


def test_a_message_that_is_not_taken_ends_the_sending() -> None:
    broker = MemoryBroker(refused=25)
    with pytest.raises(SinkError):
        send_world(World(CONFIG), range(1), broker, message_format="arrow", tell=silent)
    assert broker.num_flushed == 25


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("http://host:9092", "kafka://"),
        ("kafka://", "kafka://"),
        ("kafka://host:9092/topic", "kafka://"),
        ("kafka://host:9092?acks=0", "kafka://"),
        ("kafka://host:9092?format=avro", "format"),
        ("kafka://host:9092?partitions=0", "partitions"),
        ("kafka://host:9092?partitions=many", "partitions"),
    ],
)
def test_an_address_of_no_known_form_is_refused(text: str, word: str) -> None:
    with pytest.raises(DataError, match=word):
        Address.parse(text)


def test_an_address_may_name_several_brokers() -> None:
    address = Address.parse("kafka://a:1,b:2?format=protobuf&partitions=7")
    assert address.servers == ("a:1", "b:2")
    assert (address.message_format, address.num_partitions) == ("protobuf", 7)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def kafka_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker on the wire, from a wheel; none is started where it is not installed."""
    pytest.importorskip("kafka", reason="kafka-python is not installed")
    wheel = importlib.util.find_spec("noida_db")
    if wheel is None or wheel.origin is None:
        pytest.skip("the noida-db broker is not installed")
    # The binary itself: the wheel's command is its parent, and would die without it.
    binary = Path(wheel.origin).with_name("noida-db")
    binary.chmod(0o755)
    port, folder = free_port(), tmp_path_factory.mktemp("broker")
    command = [str(binary), "start", "--data-dir", str(folder), "--only", "kafka"]
    with (folder / "log").open("w") as log:
        child = subprocess.Popen(
            [*command, "--kafka-port", str(port)], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        _wait_for(port)
        yield f"127.0.0.1:{port}"
    finally:
        child.terminate()
        child.wait(20)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline, "the broker never came up"
            time.sleep(0.05)
        else:
            return


def read_back(address: str, topics: list[str]) -> list[Any]:
    import kafka

    reader = kafka.KafkaConsumer(bootstrap_servers=[address], auto_offset_reset="earliest")
    try:
        places = [kafka.TopicPartition(t, p) for t in topics for p in range(NUM_PARTITIONS)]
        reader.assign(places)
        ends = reader.end_offsets(places)
        found: list[Any] = []
        deadline = time.monotonic() + 30
        while any(reader.position(place) < ends[place] for place in places):
            assert time.monotonic() < deadline, "not everything came back"
            for records in reader.poll(timeout_ms=500).values():
                found += records
        return found
    finally:
        reader.close()


@pytest.mark.integration
@pytest.mark.parametrize("message_format", ["arrow", "protobuf"])
def test_a_real_broker_gives_back_what_was_sent(kafka_address: str, message_format: Any) -> None:
    address = Address.parse(f"kafka://{kafka_address}?partitions={NUM_PARTITIONS}")
    world, memory = World(CONFIG), MemoryBroker()
    send_world(world, range(1), memory, message_format=message_format, tell=silent)
    topics = sorted({topic for topic, _ in memory.messages})
    before = Counter((r.topic, r.partition) for r in _read_known(kafka_address, topics))
    with KafkaBroker(address) as broker:
        send_world(world, range(1), broker, message_format=message_format, tell=silent)
    found: dict[tuple[str, int], list[Any]] = {}
    for record in read_back(kafka_address, topics):
        found.setdefault((record.topic, record.partition), []).append(record)
    for place, messages in memory.messages.items():
        records = sorted(found[place], key=lambda record: record.offset)[before[place] :]
        assert [r.value for r in records] == [m.value for m in messages]
        assert [r.key for r in records] == [m.key for m in messages]
        for record, message in zip(records, messages, strict=True):
            assert dict(record.headers) == {
                "content-type": message.content_type,
                "known-at-ms": str(message.at_ms).encode(),
            }
            # Retention counts from here: in the world's time the message would be long gone.
            assert record.timestamp > CONFIG.end_ms


def _read_known(address: str, topics: list[str]) -> list[Any]:
    import kafka

    admin = kafka.KafkaAdminClient(bootstrap_servers=[address])
    try:
        known = set(admin.list_topics())
    finally:
        admin.close()
    return read_back(address, [topic for topic in topics if topic in known])


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "127.0.0.1", "127.0.0.1:many"])
def test_where_no_broker_answers_the_error_names_the_address(address: str) -> None:
    pytest.importorskip("kafka", reason="kafka-python is not installed")
    address = address.format(port=free_port())
    with pytest.raises(SinkError, match=address):
        KafkaBroker(Address.parse(f"kafka://{address}"))
