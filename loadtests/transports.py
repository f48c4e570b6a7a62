"""How a request reaches the service, and which outcome each kind of answer is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import grpc

from loadtests.http_client import HttpTransport
from loadtests.report import Answer, Outcome
from protos import ranking_pb2

# What an answer that came back without error looks like; made once, for it is most of them.
_OK = Answer(outcome=Outcome.OK)


class Transport(Protocol):
    """Holds the prepared requests and sends one at a time.

    ``send`` gives an answer for whatever the service or the network did; it raises only for bugs.
    """

    @property
    def num_requests(self) -> int:
        """Number of prepared requests."""

    async def send(self, index: int, *, timeout_s: float) -> Answer:
        """Send one prepared request and wait for its answer, at most timeout_s."""

    async def close(self) -> None:
        """Give connections back."""


def open_transport(target: str, requests: Sequence[ranking_pb2.RankRequest]) -> Transport:
    """Give the transport for a target; needs a running event loop.

    Raises:
        ValueError: the target is not "grpc://host:port", "http://host:port" or "host:port".
    """
    scheme, _, address = target.rpartition("://")
    if scheme in {"", "grpc"} and ":" in address:
        return GrpcTransport(address, requests)
    if scheme == "http" and ":" in address:
        return HttpTransport(address, requests)
    raise ValueError(
        f"target: expected grpc://host:port, http://host:port or host:port, got {target!r}"
    )


class GrpcTransport:
    """Rank calls over one HTTP/2 connection, serialised beforehand, without retries."""

    def __init__(self, address: str, requests: Sequence[ranking_pb2.RankRequest]) -> None:
        self._messages = [request.SerializeToString() for request in requests]
        self._channel = grpc.aio.insecure_channel(
            address,
            options=[("grpc.enable_retries", 0), ("grpc.max_receive_message_length", -1)],
        )
        self._rank = self._channel.unary_unary(
            "/gemcutter.ranking.v1.RankService/Rank",
            response_deserializer=ranking_pb2.RankResponse.FromString,
        )

    @property
    def num_requests(self) -> int:
        """Number of prepared requests."""
        return len(self._messages)

    async def send(self, index: int, *, timeout_s: float) -> Answer:
        """Send one prepared request; the service sees timeout_s as the call's deadline."""
        try:
            response = await self._rank(self._messages[index], timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            return _of_status(error.code())
        if not response.degraded:
            return _OK
        names = ranking_pb2.DegradedReason.Name
        reasons = tuple(
            names(reason).removeprefix("DEGRADED_REASON_").lower() for reason in response.degraded
        )
        return Answer(outcome=Outcome.DEGRADED, reasons=reasons)

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()


def _of_status(code: grpc.StatusCode) -> Answer:
    outcome = {
        grpc.StatusCode.DEADLINE_EXCEEDED: Outcome.LATE,
        grpc.StatusCode.RESOURCE_EXHAUSTED: Outcome.REFUSED,
    }.get(code, Outcome.FAILED)
    return Answer(outcome=outcome, reasons=(code.name.lower(),))
