"""`gemcutter world`: write the synthetic world, or send it to a broker.

The options are the dials of `foundation.datasets.world.config`, with the texts that stand there.
"""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.console import Console

from features.errors import DataError
from foundation.datasets.world.config import GROUPS, WorldConfig

if TYPE_CHECKING:
    from foundation.datasets.world.sinks import Written
    from foundation.datasets.world.ticks import World
    from precompute.worldstream import Sent
    from services.cli.progress import Step

# Options that are known by a shorter name than their dial.
_SHORT = {"num_users": "users", "num_days": "days", "num_surfaces": "surfaces", "num_ads": "ads"}
_CASE = "world"


def add_world(app: typer.Typer) -> None:
    """Add the command to the others."""
    app.command("world")(_command())


def _command() -> Callable[..., None]:
    """Give the command's function: its parameters are where to write, and every dial."""

    def world(**given: Any) -> None:
        own = {name: given.pop(name) for name in _OWN}
        # Dials come last, and so are those that are left.
        run_world(WorldConfig(**given), Console(), **own)

    world.__doc__ = (
        "Make a synthetic ads world whose every probability is known.\n\n"
        "Writes OUT/log, which trains like any other log, and beside it OUT/oracle with the exact "
        "probabilities, propensities, delays and planted memory of every impression. The same "
        "dials give the same rows, however they are sharded."
    )
    hints = get_type_hints(WorldConfig)
    parameters = [_own(name, kind, default) for name, (kind, default) in _OWN.items()]
    panel = ""
    for field in dataclasses.fields(WorldConfig):
        panel = GROUPS.get(field.name, panel)
        parameters.append(_option(field, hints[field.name], panel))
    world.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    world.__annotations__ = {p.name: p.annotation for p in parameters}
    return world


_OWN: dict[str, tuple[Any, Any]] = {
    "out": (
        Annotated[Path, typer.Option(help="Folder to write log/ and oracle/ to.")],
        Path("runs/world"),
    ),
    "to": (
        Annotated[
            str | None,
            typer.Option(
                help="kafka://host:port sends the log to a broker instead, in the order in which "
                "it became known; ?format=protobuf sends one message an event, for readers that "
                "cannot take Arrow batches."
            ),
        ],
        None,
    ),
    "shard": (
        Annotated[str, typer.Option(help="i/n: only the i-th of n ranges of users, from 0.")],
        "0/1",
    ),
    "is_recorded": (
        Annotated[
            bool, typer.Option("--record", help="Append the speed to docs/results/data.csv.")
        ],
        False,
    ),
}


def _own(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _option(field: dataclasses.Field[Any], kind: Any, panel: str) -> inspect.Parameter:
    meta = field.metadata
    flag = "--" + _SHORT.get(field.name, field.name).replace("_", "-")
    text = meta["text"]
    if kind is bool:
        name = flag.removeprefix("--is-")
        option = typer.Option(f"--{name}/--no-{name}", help=text, rich_help_panel=panel)
    else:
        low, high = (_digits(meta[end]) for end in ("low", "high"))
        text += f" {low} to {high} {meta['unit']}".rstrip() + "."
        option = typer.Option(flag, help=text, rich_help_panel=panel)
    return _own(field.name, Annotated[kind, option], field.default)


def _digits(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


def run_world(
    config: WorldConfig,
    console: Console,
    *,
    out: Path,
    to: str | None,
    shard: str,
    is_recorded: bool,
) -> None:
    """Make a shard of a world and say how much there is of it and how fast it came.

    Raises:
        DataError: a shard that does not exist, or an address of no known kind.
    """
    from foundation.datasets.world.ticks import World, shard_blocks
    from services.cli.progress import Steps

    index, count = _shard(shard)
    with Steps(console).step("world", f"world {config.seed} to {to or out}") as step:
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        world = World(config)
        done: Written | Sent
        if to is None:
            from foundation.datasets.world.sinks import write_parquet

            done = write_parquet(world, out, shard=index, num_shards=count, tell=step.advance)
        else:
            done = _send(world, to, shard_blocks(config, index, count), step)
        seconds, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    _print(console, done.num_rows, seconds)
    _warn_short(config, console)
    if is_recorded:
        speed = {"s": seconds, "cpu_s": cpu_s}
        _record(config, done, speed, to=to)


def _send(world: World, to: str, blocks: range, step: Step) -> Sent:
    from precompute.worldstream import Address, KafkaBroker, send_world

    address = Address.parse(to)
    with KafkaBroker(address) as broker:
        return send_world(
            world, blocks, broker, message_format=address.message_format, tell=step.advance
        )


def _prefix(to: str) -> str:
    from precompute.worldstream import Address

    return f"kafka/{Address.parse(to).message_format}/"


def _shard(text: str) -> tuple[int, int]:
    index, sign, count = text.partition("/")
    if not (sign and index.isdecimal() and count.isdecimal()):
        raise DataError(f"--shard: expected i/n, got {text!r}")
    return int(index), int(count)


def _print(console: Console, num_rows: dict[str, int], seconds: float) -> None:
    total = sum(num_rows.values())
    each = ", ".join(f"{name} {rows:,}" for name, rows in num_rows.items())
    console.print(f"{total:,} events, {total / seconds:,.0f} a second: {each}", highlight=False)


def _warn_short(config: WorldConfig, console: Console) -> None:
    mean_events = config.num_days * config.events_per_day
    if config.memory_logit_sd and mean_events < config.horizon:
        console.print(
            f"[yellow]note[/yellow] a mean user has {mean_events:g} events in this log, fewer than "
            f"the horizon of {config.horizon}: what lies before the log cannot be learned",
            highlight=False,
        )


def _record(
    config: WorldConfig, done: Written | Sent, speed: Mapping[str, float], *, to: str | None
) -> None:
    """Append events per second, by the clock and by processor time, to the results."""
    from services.cli.report.results import record_rows

    total = sum(done.num_rows.values())
    changed = [
        f"--{_SHORT.get(field.name, field.name).replace('_', '-')} {getattr(config, field.name)}"
        for field in dataclasses.fields(config)
        if getattr(config, field.name) != field.default
    ]
    if to is not None:
        changed.append(f"--to {to}")
    prefix = "" if to is None else _prefix(to)
    note = f"{total} events, one process"
    rows = [
        {"metric": f"{prefix}events_per_{unit}", "value": total / seconds, "unit": f"events/{unit}"}
        for unit, seconds in speed.items()
    ]
    rows.append({"metric": f"{prefix}event_bytes", "value": done.num_bytes / total, "unit": "B"})
    command = " ".join(["gemcutter world", *changed])
    record_rows("data", [{**row, "note": note} for row in rows], case=_CASE, command=command)
