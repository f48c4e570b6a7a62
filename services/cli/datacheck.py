"""What `gemcutter data check` prints."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from features.datacheck import check_dataset
from rich.console import Console


def print_check(folder: Path, console: Console, *, as_json: bool) -> int:
    """Check a log folder, print the report, and give the exit code."""
    if folder.suffix in {".yaml", ".yml"}:
        folder = folder.parent
    document: dict[str, Any] = dataclasses.asdict(check_dataset(folder))
    if as_json:
        console.print_json(data=document)
    else:
        for name, value in document.items():
            console.print(f"[bold]{name}[/bold]: {value}", highlight=False)
    return 1 if document["errors"] else 0
