"""How a long reading tells of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int], None]
"""Told now and then: what is being done, and how many rows of it are done."""


def silent(what: str, num_rows: int) -> None:
    """Tell nobody."""
