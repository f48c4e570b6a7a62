"""Sends the synthetic world to Kafka, in the order in which it became known.

Topics are `impressions.v1` and `engagements.v1.<source>`. A user's rows are all in one partition
of each topic, the same one, and in order there. Two formats:

- `arrow`: one message is an Arrow IPC stream of one batch, at most 4,096 rows of one partition.
  Header `content-type: application/vnd.apache.arrow.stream`; no key, as it is of many users.
- `protobuf`: one message an event, keyed by user, as `protos/events.proto` says: `Engagement`, and
  `ServedRequest` on `ranker.requests.v1` for the impressions of a request. For readers that take
  nothing else: many times slower.

Messages carry the broker's time, and the world's in a header `known-at-ms`: with that of a world
of two years ago as its timestamp, a broker's retention would delete each message as it comes.

A tick is sent, then waited for; a message that the broker did not take ends the sending.

Errors: SinkError (a GemcutterError), when the broker cannot be used; DataError for an address of
no known form.
"""

from __future__ import annotations

import socket
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from features.errors import DataError, GemcutterError
from foundation.datasets.world.latent import surface_names
from foundation.datasets.world.organic import Columns
from foundation.datasets.world.randomness import user_keys
from foundation.datasets.world.stream import known_ms, stream
from foundation.datasets.world.ticks import IMPRESSIONS, World
from protos import events_pb2, ranking_pb2

Format = Literal["arrow", "protobuf"]
Progress = Callable[[float, str], None]

IMPRESSIONS_TOPIC, REQUESTS_TOPIC = "impressions.v1", "ranker.requests.v1"
ENGAGEMENTS_TOPIC = "engagements.v1."
ARROW_TYPE = b"application/vnd.apache.arrow.stream"
PROTOBUF_TYPE = b"application/x-protobuf"
ROWS_PER_MESSAGE = 4096
_TIMEOUT_S, _CONNECT_S = 30.0, 5.0
_EVENT_OWN = frozenset({"user_id", "at_ms", "arrived_ms"})
_REQUEST_OWN = frozenset({"user_id", "at_ms", "item_id", "request_id", "example_id"})
_DIFFERS_BY_ITEM = frozenset({"position"})
_NOT_ASKED = frozenset({"price_micros"})


class SinkError(GemcutterError):
    """The broker cannot be reached, or did not take what was sent."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where and how to send: `kafka://host:port,host:port?format=arrow&partitions=4`.

    Attributes:
        servers: host:port of some brokers.
        num_partitions: of topics that are made; those that exist keep theirs.
    """

    servers: tuple[str, ...]
    message_format: Format = "arrow"
    num_partitions: int = 4

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address.

        Raises:
            DataError: it is of another form.
        """
        parts = urllib.parse.urlsplit(text)
        given = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        message_format = given.pop("format", "arrow")
        partitions = given.pop("partitions", "4")
        if parts.scheme != "kafka" or not parts.netloc or parts.path not in ("", "/") or given:
            raise DataError(
                "address: expected kafka://host:port?format=arrow&partitions=4 or a part of it, "
                f"got {text!r}"
            )
        if message_format not in ("arrow", "protobuf"):
            raise DataError(f"format: expected arrow or protobuf, got {message_format!r}")
        if not partitions.isdecimal() or not 1 <= int(partitions) <= 1024:
            raise DataError(f"partitions: expected 1 to 1024, got {partitions!r}")
        return cls(
            servers=tuple(parts.netloc.split(",")),
            message_format="arrow" if message_format == "arrow" else "protobuf",
            num_partitions=int(partitions),
        )


@dataclass(frozen=True, kw_only=True)
class Message:
    """One record for a broker.

    Attributes:
        at_ms: when its last row became known.
        num_rows: events in it.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes
    content_type: bytes
    at_ms: int
    num_rows: int


class Broker(Protocol):
    """What a broker must be able to do."""

    def open_topics(self, topics: list[str]) -> int:
        """Make the topics that do not exist, and give the partitions that all of them have."""

    def send(self, message: Message) -> None:
        """Take a message, and perhaps send it later."""

    def flush(self) -> None:
        """Wait until everything is acknowledged.

        Raises:
            SinkError: a message was not.
        """


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What was sent.

    Attributes:
        num_rows: by table.
        num_bytes: of the messages' values.
    """

    num_rows: dict[str, int]
    num_messages: int
    num_bytes: int


def send_world(
    world: World, blocks: range, broker: Broker, *, message_format: Format, tell: Progress
) -> Sent:
    """Send some blocks of a world.

    Raises:
        SinkError: the broker did not take it; what was sent before stays sent.
    """
    topics = [ENGAGEMENTS_TOPIC + name for name in world.source_names]
    topics.append(IMPRESSIONS_TOPIC if message_format == "arrow" else REQUESTS_TOPIC)
    num_partitions = broker.open_topics(topics)
    surfaces = surface_names(world.config)
    make = arrow_messages if message_format == "arrow" else protobuf_messages
    num_rows = dict.fromkeys((IMPRESSIONS, *world.source_names), 0)
    num_messages = num_bytes = 0
    for tick, tables in enumerate(stream(world, blocks)):
        for table, columns in tables.items():
            num_rows[table] += len(columns["user_id"])
            for message in make(table, columns, num_partitions, surfaces):
                broker.send(message)
                num_messages += 1
                num_bytes += len(message.value)
        broker.flush()
        tell((tick + 1) / world.config.num_ticks, f"{sum(num_rows.values()):,} events")
    return Sent(num_rows=num_rows, num_messages=num_messages, num_bytes=num_bytes)


def partitions_of(user_ids: npt.NDArray[np.int64], num_partitions: int) -> npt.NDArray[np.int64]:
    """Give the partition of each user, the same in every topic."""
    found: npt.NDArray[np.int64] = (user_keys(0, user_ids) % np.uint64(num_partitions)).astype(
        np.int64
    )
    return found


def arrow_messages(
    table: str, columns: Columns, num_partitions: int, surfaces: tuple[str, ...]
) -> Iterator[Message]:
    """Give batches of at most 4,096 rows of one partition, each in order."""
    topic = IMPRESSIONS_TOPIC if table == IMPRESSIONS else ENGAGEMENTS_TOPIC + table
    moments = known_ms(columns)
    partitions = partitions_of(columns["user_id"], num_partitions)
    batch = _record_batch(columns, surfaces)
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    for partition in range(num_partitions):
        rows = np.flatnonzero(partitions == partition)
        own = batch.take(pa.array(rows))
        for first in range(0, len(rows), ROWS_PER_MESSAGE):
            part = own.slice(first, ROWS_PER_MESSAGE)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema, options=options) as writer:
                writer.write_batch(part)
            yield Message(
                topic=topic,
                partition=partition,
                key=None,
                value=sink.getvalue().to_pybytes(),
                content_type=ARROW_TYPE,
                at_ms=int(moments[rows[first + part.num_rows - 1]]),
                num_rows=part.num_rows,
            )


def protobuf_messages(
    table: str, columns: Columns, num_partitions: int, surfaces: tuple[str, ...]
) -> Iterator[Message]:
    """Give one message an event, one a request for impressions, in order."""
    if table == IMPRESSIONS:
        yield from _request_messages(columns, num_partitions, surfaces)
        return
    moments = known_ms(columns).tolist()
    partitions = partitions_of(columns["user_id"], num_partitions).tolist()
    own = {name: column.tolist() for name, column in columns.items()}
    for row, user_id in enumerate(own["user_id"]):
        event = events_pb2.Engagement(
            source=table,
            user=events_pb2.Id(integer=user_id),
            event_at_ms=own["at_ms"][row],
            arrival_at_ms=own["arrived_ms"][row],
        )
        for name in own.keys() - _EVENT_OWN:
            _set(event.columns[name], name, own[name][row], surfaces)
        yield Message(
            topic=ENGAGEMENTS_TOPIC + table,
            partition=partitions[row],
            key=str(user_id).encode(),
            value=event.SerializeToString(deterministic=True),
            content_type=PROTOBUF_TYPE,
            at_ms=moments[row],
            num_rows=1,
        )


def _request_messages(
    columns: Columns, num_partitions: int, surfaces: tuple[str, ...]
) -> Iterator[Message]:
    partitions = partitions_of(columns["user_id"], num_partitions)
    # Rows of a request came together and have one moment, so the order keeps them side by side
    # unless another request is of the same moment.
    order = np.lexsort((columns["position"], columns["request_id"], columns["at_ms"]))
    sorted_ids = columns["request_id"][order]
    starts = np.flatnonzero(np.append(True, sorted_ids[1:] != sorted_ids[:-1]))
    for rows in np.split(order, starts[1:]) if len(order) else ():
        first = int(rows[0])
        user_id, at_ms = int(columns["user_id"][first]), int(columns["at_ms"][first])
        request = ranking_pb2.RankRequest(
            request_id=str(columns["request_id"][first]), user_id_int=user_id, at_ms=at_ms
        )
        for name in columns.keys() - _REQUEST_OWN - _DIFFERS_BY_ITEM - _NOT_ASKED:
            _set(request.context[name], name, columns[name][first].item(), surfaces)
        request.candidates.item_ids_int.extend(columns["item_id"][rows].tolist())
        for name in sorted(_DIFFERS_BY_ITEM):
            column = request.candidates.columns.add(name=name)
            column.integers.extend(columns[name][rows].tolist())
        served = events_pb2.ServedRequest(request=request)
        yield Message(
            topic=REQUESTS_TOPIC,
            partition=int(partitions[first]),
            key=str(user_id).encode(),
            value=served.SerializeToString(deterministic=True),
            content_type=PROTOBUF_TYPE,
            at_ms=at_ms,
            num_rows=len(rows),
        )


def _record_batch(columns: Columns, surfaces: tuple[str, ...]) -> pa.RecordBatch:
    arrays: dict[str, Any] = {name: pa.array(column) for name, column in columns.items()}
    if "surface" in columns:
        # Text, not a dictionary: every message stands alone.
        arrays["surface"] = pa.array(surfaces).take(pa.array(columns["surface"]))
    return pa.RecordBatch.from_pydict(arrays)


def _set(value: Any, name: str, given: Any, surfaces: tuple[str, ...]) -> None:
    if name == "surface":
        value.text = surfaces[given]
    elif isinstance(given, float):
        value.number = given
    else:
        value.integer = given


def _require_listener(servers: list[str]) -> None:
    """Find out in seconds that nobody is there: the client itself tries for half a minute."""
    reasons = []
    for server in servers:
        host, _, port = server.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
        except (OSError, ValueError) as error:
            reasons.append(f"{server}: {error}")
        else:
            return
    raise SinkError(f"no broker answers: {'; '.join(reasons)}; expected host:port of one")


class KafkaBroker:
    """Sends through kafka-python, with acknowledgement by all replicas. A context manager.

    Raises:
        SinkError: no broker answers, or kafka-python is not installed.
    """

    def __init__(self, address: Address) -> None:
        servers = list(address.servers)
        _require_listener(servers)
        try:
            import kafka
            import kafka.errors
        except ImportError as error:
            raise SinkError(
                "kafka:// needs kafka-python: pip install 'gemcutter[stream]'"
            ) from error
        self._errors = kafka.errors.KafkaError
        self._address = address
        self._waiting: list[Any] = []
        try:
            self._admin = kafka.KafkaAdminClient(bootstrap_servers=servers)
            self._producer = kafka.KafkaProducer(
                bootstrap_servers=servers,
                acks="all",
                linger_ms=20,
                batch_size=1 << 18,
                max_request_size=1 << 22,
            )
        except self._errors as error:
            raise SinkError(f"{','.join(servers)}: {error!r}") from error

    def __enter__(self) -> KafkaBroker:
        """Give itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections; after an error without waiting for what is not sent."""
        self._producer.close(timeout=0 if error else _TIMEOUT_S)
        self._admin.close()

    def open_topics(self, topics: list[str]) -> int:
        """Make the topics that do not exist, and give the partitions that all of them have."""
        from kafka.admin import NewTopic

        try:
            known = set(self._admin.list_topics())
            num = self._address.num_partitions
            made = [NewTopic(name, num, 1) for name in topics if name not in known]
            if made:
                self._admin.create_topics(made)
            counts = {name: len(self._producer.partitions_for(name)) for name in topics}
        except self._errors as error:
            raise SinkError(f"topics {topics}: {error!r}") from error
        if len(set(counts.values())) != 1:
            raise SinkError(f"topics: expected as many partitions in each, got {counts}")
        return counts[topics[0]]

    def send(self, message: Message) -> None:
        """Take a message; it is sent with others."""
        try:
            future = self._producer.send(
                message.topic,
                value=message.value,
                key=message.key,
                headers=[
                    ("content-type", message.content_type),
                    ("known-at-ms", str(message.at_ms).encode()),
                ],
                partition=message.partition,
            )
        except self._errors as error:
            raise SinkError(f"topic {message.topic}: {error!r}") from error
        self._waiting.append(future)

    def flush(self) -> None:
        """Wait until everything is acknowledged."""
        try:
            self._producer.flush(timeout=_TIMEOUT_S)
            for future in self._waiting:
                future.get(timeout=_TIMEOUT_S)
        except self._errors as error:
            raise SinkError(f"{','.join(self._address.servers)}: {error!r}") from error
        self._waiting.clear()
