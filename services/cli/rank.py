"""One ranking from a running ranker, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.protobuf.json_format import MessageToJson
from rich.console import Console
from rich.table import Table

from protos import ranking_pb2
from services.cli.live import RankClient
from services.cli.replay import TIER_NAMES


def print_ranking(
    user: str,
    items: Sequence[str],
    *,
    vertical: str,
    address: str,
    context: Mapping[str, str],
    console: Console,
    as_json: bool,
) -> None:
    """Ask and print; ids that are whole numbers go as int64, others as text."""
    request = ranking_pb2.RankRequest(vertical=vertical)
    if user.lstrip("-").isdecimal():
        request.user_id_int = int(user)
    else:
        request.user_id_str = user
    if all(item.lstrip("-").isdecimal() for item in items):
        request.candidates.item_ids_int.extend(int(item) for item in items)
    else:
        request.candidates.item_ids_str.extend(items)
    for name, value in context.items():
        request.context[name].text = value
    client = RankClient(address)
    try:
        answer = client.rank(request)
    finally:
        client.close()
    if as_json:
        console.print_json(MessageToJson(answer, preserving_proto_field_name=True))
        return
    table = Table("rank", "item", "score", *sorted(answer.ranked[0].p) if answer.ranked else ())
    table.add_column("vector from")
    for line in answer.ranked:
        cells = [f"{line.p[name]:.4f}" for name in sorted(line.p)]
        item = line.item_id_str or str(line.item_id_int)
        table.add_row(str(line.rank), item, f"{line.score:,.0f}", *cells, TIER_NAMES[line.tier])
    console.print(table)
    reasons = [ranking_pb2.DegradedReason.Name(reason) for reason in answer.degraded]
    console.print(
        f"bundle {answer.bundle_id}, engine {answer.engine}, "
        f"{answer.stage_times.total_us} us in the ranker"
    )
    if reasons:
        console.print(f"[yellow]degraded:[/yellow] {', '.join(reasons)}")
