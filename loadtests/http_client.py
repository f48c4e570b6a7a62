"""The ranking call over HTTP/1.1: a keep-alive pool on plain sockets.

General-purpose HTTP clients cost more CPU per call than the service they would measure, on a
machine that both share. This one speaks only what the ranker answers: a status, a length, a body.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from google.protobuf import json_format  # ships no types

from loadtests.report import Answer, Outcome
from protos import ranking_pb2

_OUTCOMES = {429: Outcome.REFUSED, 504: Outcome.LATE}
_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class HttpTransport:
    """Rank calls as JSON, one request at a time per connection, as many connections as needed."""

    def __init__(self, address: str, requests: Sequence[ranking_pb2.RankRequest]) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host, int(port)
        self._messages = [_message(address, request) for request in requests]
        self._idle: list[_Connection] = []

    @property
    def num_requests(self) -> int:
        """Number of prepared requests."""
        return len(self._messages)

    async def send(self, index: int, *, timeout_s: float) -> Answer:
        """Send one prepared request; the service sees timeout_s in the deadline header."""
        head, body = self._messages[index]
        deadline = f"x-deadline-ms: {max(int(timeout_s * 1e3), 1)}\r\n\r\n".encode("ascii")
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connection()
                connection[1].write(head + deadline + body)
                status, answer = await _read_answer(connection[0])
        except TimeoutError:
            _drop(connection)
            return Answer(outcome=Outcome.LATE, reasons=("deadline_exceeded",))
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            _drop(connection)
            return Answer(outcome=Outcome.FAILED, reasons=(type(error).__name__,))
        self._idle.append(connection)
        return _to_answer(status, answer)

    async def close(self) -> None:
        """Close every idle connection."""
        for connection in self._idle:
            _drop(connection)
        self._idle.clear()

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection[0].at_eof():
                return connection
            _drop(connection)
        return await asyncio.open_connection(self._host, self._port)


def _message(address: str, request: ranking_pb2.RankRequest) -> tuple[bytes, bytes]:
    fields = json_format.MessageToDict(request, preserving_proto_field_name=True)
    body = json.dumps(fields, separators=(",", ":")).encode("utf-8")
    head = (
        f"POST /v1/rank/{request.vertical} HTTP/1.1\r\nhost: {address}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
    )
    return head.encode("ascii"), body


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return int(first.split(" ", 2)[1]), await reader.readexactly(
        int(headers.get("content-length", ""))
    )


def _to_answer(status: int, body: bytes) -> Answer:
    if status != 200:
        return Answer(outcome=_OUTCOMES.get(status, Outcome.FAILED), reasons=(f"http_{status}",))
    degraded = json.loads(body).get("degraded", [])
    if not degraded:
        return Answer(outcome=Outcome.OK)
    reasons = tuple(str(name).removeprefix("DEGRADED_REASON_").lower() for name in degraded)
    return Answer(outcome=Outcome.DEGRADED, reasons=reasons)


def _drop(connection: _Connection | None) -> None:
    if connection is not None:
        connection[1].close()
