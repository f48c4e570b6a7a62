"""One encoded row per item or user, found by key; row 0 stands for those who have none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from features.arrays import FloatArray, IntArray
from features.errors import DataError


@dataclass(frozen=True, kw_only=True)
class EntityTable:
    """Codes and numbers of items or users.

    Shapes:
        keys: (V,), int64, strictly increasing.
        codes: (V + 1, F), int64; row 0 is the cold row, all UNKNOWN (NULL for users).
        numeric: (V + 1, G), float32; row 0 holds the defaults.
    """

    keys: IntArray
    codes: IntArray
    feature_names: tuple[str, ...]
    numeric: FloatArray
    numeric_names: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse parts that do not fit one another."""
        rows = len(self.keys) + 1
        if self.codes.shape != (rows, len(self.feature_names)):
            raise DataError(f"entity codes: expected {rows} rows, got shape {self.codes.shape}")
        if self.numeric.shape != (rows, len(self.numeric_names)):
            raise DataError(f"entity numbers: expected {rows} rows, got {self.numeric.shape}")
        if (np.diff(self.keys) <= 0).any():
            raise DataError("entity keys: expected strictly increasing, got repeats or disorder")

    def __len__(self) -> int:
        """Number of entities, the cold row not counted."""
        return len(self.keys)

    def rows(self, keys: IntArray) -> IntArray:
        """Give the row of each key, 0 where there is none.

        Cost: O(N log V).
        """
        if not len(self.keys):
            return np.zeros(len(keys), dtype=np.int64)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, places + 1, 0).astype(np.int64)

    def column(self, name: str) -> IntArray:
        """Give one feature's codes, (V + 1,)."""
        if name not in self.feature_names:
            raise DataError(f"entity feature {name!r}: expected one of {self.feature_names}")
        return self.codes[:, self.feature_names.index(name)]

    def save(self, folder: Path) -> None:
        """Write the table into a folder as NumPy files, so that it can be mapped into memory."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("keys", "codes", "numeric"):
            np.save(folder / f"{name}.npy", getattr(self, name))
        names = {"feature_names": self.feature_names, "numeric_names": self.numeric_names}
        (folder / "names.json").write_text(json.dumps(names), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, *, mmap: bool = True) -> EntityTable:
        """Read a table that was saved.

        Args:
            folder: where it is.
            mmap: map the arrays read-only instead of reading them.

        Raises:
            DataError: a part is missing or damaged.
        """
        try:
            names = json.loads((folder / "names.json").read_text(encoding="utf-8"))
            arrays = {
                name: np.load(folder / f"{name}.npy", mmap_mode="r" if mmap else None)
                for name in ("keys", "codes", "numeric")
            }
            return cls(
                feature_names=tuple(names["feature_names"]),
                numeric_names=tuple(names["numeric_names"]),
                **arrays,
            )
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{folder}: not an entity table: {error}") from error
