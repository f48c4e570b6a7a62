"""One ranking from a running ranker, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import grpc
from google.protobuf.json_format import MessageToJson
from rich.console import Console
from rich.table import Table

from features.errors import GemcutterError
from protos import ranking_pb2
from services.cli.live import RankClient
from services.cli.replay import TIER_NAMES


class RankError(GemcutterError):
    """The ranker refused the request, or nobody answers at its address."""


def print_ranking(
    user: str,
    items: Sequence[str],
    *,
    at_ms: int | None = None,
    vertical: str,
    address: str,
    context: Mapping[str, str],
    console: Console,
    as_json: bool,
) -> None:
    """Ask and print; ids that are whole numbers go as int64, others as text.

    Raises:
        RankError: there is no answer.
    """
    request = ranking_pb2.RankRequest(vertical=vertical, at_ms=at_ms or 0)
    if _is_int64(user):
        request.user_id_int = int(user)
    else:
        request.user_id_str = user
    if all(map(_is_int64, items)):
        request.candidates.item_ids_int.extend(int(item) for item in items)
    else:
        request.candidates.item_ids_str.extend(items)
    for name, value in context.items():
        request.context[name].text = value
    client = RankClient(address)
    try:
        answer = client.rank(request)
    except grpc.RpcError as error:
        raise _told(error, address) from error
    finally:
        client.close()
    if as_json:
        console.print_json(MessageToJson(answer, preserving_proto_field_name=True))
        return
    objectives = sorted(answer.ranked[0].p) if answer.ranked else []
    table = Table("rank", "item", *(f"p({name})" for name in objectives))
    table.add_column("eCPM micros", justify="right")
    table.add_column("vector from")
    for line in answer.ranked:
        cells = [f"{line.p[name]:.4f}" for name in objectives]
        item = line.item_id_str or str(line.item_id_int)
        cells.append(f"{line.ecpm_micros:,}")
        table.add_row(str(line.rank), item, *cells, TIER_NAMES[line.tier])
    console.print(table)
    names = (ranking_pb2.DegradedReason.Name(reason) for reason in answer.degraded)
    reasons = [name.removeprefix("DEGRADED_REASON_").lower() for name in names]
    console.print(
        f"bundle {answer.bundle_id}, engine {answer.engine}, "
        f"{answer.stage_times.total_us} us in the ranker"
    )
    if reasons:
        console.print(f"[yellow]degraded:[/yellow] {', '.join(reasons)}")


def _is_int64(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and -(2**63) <= int(text) < 2**63


def _told(error: grpc.RpcError, address: str) -> RankError:
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return RankError(
            f"no ranker answers at {address}: start one with `gemcutter up` or `gemcutter serve`"
        )
    return RankError(f"{error.code().name}: {error.details()}")
