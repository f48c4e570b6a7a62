"""Rows of `docs/results/*.csv`: one writer, one reader.

A figure in a document has a row here. Case and metric names are stable, so that a later run can be
compared; the newest row of a (case, metric) is the current one.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from features.errors import DataError


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One measured figure.

    Attributes:
        date: ISO 8601.
        commit: of the code that was run.
        command: what was run.
        machine: what it ran on.
        config: what sets this case apart, in short.
        case, metric: stable names.
        unit: of value, low and high.
        low, high: 95 % interval where there is one.
        seeds: how many, or which.
        note: anything a reader must know.
    """

    date: str
    commit: str
    command: str
    machine: str
    config: str
    case: str
    metric: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    seeds: str = ""
    note: str = ""


HEADER = tuple(field.name for field in fields(ResultRow))


def append_results(path: Path, rows: Iterable[ResultRow]) -> None:
    """Add rows to a results file, with its header if it is new.

    Raises:
        DataError: the file has another header or a broken row, or a figure is not finite; the
            file is then as it was.
    """
    added = list(rows)
    for row in added:
        _require_finite(row, f"{path}: ({row.case}, {row.metric})")
    is_new = not path.exists()
    if not is_new:
        read_results(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEADER, lineterminator="\n")
        if is_new:
            writer.writeheader()
        elif not _ends_a_line(path):
            file.write("\n")
        for row in added:
            writer.writerow({k: "" if v is None else v for k, v in asdict(row).items()})


def read_results(path: Path) -> list[ResultRow]:
    """Give every row of a results file, oldest first.

    Raises:
        DataError: another header, or a number that is none.
    """
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != HEADER:
            raise DataError(f"{path}: expected the header {HEADER}, got {reader.fieldnames}")
        rows = []
        for cells in reader:
            place = f"{path}, line {reader.line_num}"
            if None in cells or None in cells.values():
                raise DataError(f"{place}: expected {len(HEADER)} cells")
            try:
                row = _parse(cells)
            except ValueError as error:
                raise DataError(f"{place}: {error}") from error
            _require_finite(row, place)
            rows.append(row)
        return rows


def current_results(path: Path) -> dict[tuple[str, str], ResultRow]:
    """Give the newest row of every (case, metric)."""
    return {(row.case, row.metric): row for row in read_results(path)}


def _parse(cells: dict[str, str]) -> ResultRow:
    text = {name: cells[name] for name in HEADER if name not in {"value", "low", "high"}}
    ends = {name: float(cells[name]) if cells[name] else None for name in ("low", "high")}
    return ResultRow(**text, **ends, value=float(cells["value"]))  # type: ignore[arg-type]


def _require_finite(row: ResultRow, place: str) -> None:
    for name in ("value", "low", "high"):
        number = getattr(row, name)
        if number is not None and not math.isfinite(number):
            raise DataError(f"{place}, {name}: expected a finite number, got {number}")


def _ends_a_line(path: Path) -> bool:
    return path.read_bytes().endswith(b"\n")
