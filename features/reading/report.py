"""What became of the rows of a log when it was read."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path

from features.errors import DataError
from features.files import write_whole


@dataclass(frozen=True, kw_only=True)
class IngestReport:
    """Counts of one reading.

    Attributes:
        num_rows: table to rows that were kept ("impressions", "items", "users", sources by name).
        num_dropped: objective to impressions left out because its label is missing or not 0 or 1,
            as the schema asked.
        num_null, num_unknown: table and feature ("impressions/slot") to values that are missing,
            or not in the vocabulary.
        num_clipped: table and feature to numbers moved to a bound, as the schema asked.
        collision_frac: hashed vocabulary to the estimated share of its values that share a code.
    """

    num_rows: dict[str, int] = field(default_factory=dict)
    num_dropped: dict[str, int] = field(default_factory=dict)
    num_null: dict[str, int] = field(default_factory=dict)
    num_unknown: dict[str, int] = field(default_factory=dict)
    num_clipped: dict[str, int] = field(default_factory=dict)
    collision_frac: dict[str, float] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        write_whole(path, json.dumps(dataclasses.asdict(self), indent=1).encode())

    @classmethod
    def load(cls, path: Path) -> IngestReport:
        """Read what was saved.

        Raises:
            DataError: the file is missing or damaged.
        """
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise DataError(f"{path}: not a report of a reading: {error}") from error
