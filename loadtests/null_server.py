"""A ranking service that answers at once with nothing: what the load generator itself can do.

Store its numbers beside every result; where they are no better than the ranker's, the run measured
the client. ``python -m loadtests.null_server`` writes one JSON line with its address and serves
until it is told to stop.
"""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence

import grpc

from protos import ranking_pb2, ranking_pb2_grpc


class NullRanker(ranking_pb2_grpc.RankServiceServicer):
    """Answers every request without candidates."""

    async def Rank(  # noqa: N802  the name is the interface's
        self, request: ranking_pb2.RankRequest, context: grpc.aio.ServicerContext
    ) -> ranking_pb2.RankResponse:
        """Echo the request id."""
        return ranking_pb2.RankResponse(request_id=request.request_id)


async def serve(port: int) -> None:
    """Serve on the loopback interface until SIGTERM or SIGINT; port 0 takes a free one."""
    server = grpc.aio.server()
    add_servicer = ranking_pb2_grpc.add_RankServiceServicer_to_server
    add_servicer(NullRanker(), server)  # type: ignore[no-untyped-call]  # generated without types
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    sys.stdout.write(json.dumps({"event": "listening", "grpc": f"127.0.0.1:{bound}"}) + "\n")
    sys.stdout.flush()
    await stop.wait()
    await server.stop(grace=1.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port (default)")
    asyncio.run(serve(parser.parse_args(arguments).port))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
