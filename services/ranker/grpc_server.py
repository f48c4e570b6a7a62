"""The gRPC door: RankService, health and reflection on one port."""

from __future__ import annotations

from concurrent import futures
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from protos import ranking_pb2, ranking_pb2_grpc
from services.ranker.calls import RankCalls
from services.ranker.config import RankerConfig
from services.ranker.faults import RETRY_AFTER_S, Fault
from services.ranker.readiness import Readiness, State
from services.ranker.translate import read_request, write_answer

SERVICE = ranking_pb2.DESCRIPTOR.services_by_name["RankService"].full_name

# Threads beyond those of admitted calls, so that health and refusals never wait behind them.
_SPARE_THREADS = 8


class _Servicer(ranking_pb2_grpc.RankServiceServicer):
    """Translates; decides nothing."""

    def __init__(self, calls: RankCalls) -> None:
        self._calls = calls

    def Rank(  # noqa: N802 (the generated name)
        self, request: ranking_pb2.RankRequest, context: grpc.ServicerContext
    ) -> ranking_pb2.RankResponse:
        """Answer one call."""
        left_s = context.time_remaining()
        deadline = self._calls.deadline(
            None if left_s is None else left_s * 1000, lambda: not context.is_active()
        )
        outcome = self._calls.rank(
            request.vertical,
            lambda bundle, now_ms: read_request(request, bundle, now_ms),
            write_answer,
            deadline=deadline,
            transport="grpc",
        )
        if isinstance(outcome, Fault):
            _abort(context, outcome)
        return outcome


def _abort(context: grpc.ServicerContext, fault: Fault) -> NoReturn:
    trailers = [("x-error-field", fault.field)] if fault.field else []
    if fault.code == "RESOURCE_EXHAUSTED":
        trailers.append(("retry-after", str(RETRY_AFTER_S)))
    context.set_trailing_metadata(trailers)
    context.abort(grpc.StatusCode[fault.code], fault.message)
    raise AssertionError("abort raises")


@dataclass(frozen=True)
class GrpcServer:
    """A listening server.

    Attributes:
        port: that it listens on.
    """

    port: int
    _server: Any
    _health: health.HealthServicer

    @classmethod
    def start(cls, config: RankerConfig, calls: RankCalls, readiness: Readiness) -> GrpcServer:
        """Listen.

        Raises:
            RuntimeError: the port is taken.
        """
        num_threads = config.max_running + config.max_waiting + _SPARE_THREADS
        server = grpc.server(
            futures.ThreadPoolExecutor(num_threads, thread_name_prefix="grpc"),
            options=[
                ("grpc.max_receive_message_length", config.max_message_bytes),
                ("grpc.max_send_message_length", config.max_message_bytes),
                ("grpc.so_reuseport", 0),  # a taken port is an error, not a shared one
            ],
        )
        ranking_pb2_grpc.add_RankServiceServicer_to_server(  # type: ignore[no-untyped-call]
            _Servicer(calls), server
        )
        servicer = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        if config.has_reflection:
            names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, server)
        port = server.add_insecure_port(f"{config.host}:{config.grpc_port}")
        readiness.subscribe(lambda state: _show(servicer, state))
        server.start()
        return cls(port, server, servicer)

    def stop(self, grace_s: float) -> None:
        """Refuse new calls, let those in flight finish within the grace, and end."""
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_s).wait()


def _show(servicer: health.HealthServicer, state: State) -> None:
    words = {
        True: health_pb2.HealthCheckResponse.SERVING,
        False: health_pb2.HealthCheckResponse.NOT_SERVING,
    }
    for name in ("", SERVICE):
        servicer.set(name, words[state.is_ready])
    for vertical, is_ready in state.verticals.items():
        servicer.set(vertical, words[is_ready])
