"""What is wrong with which rows of a log, gathered over all batches, so that one load tells all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from features.errors import BadRows, SeveralBadRows


class Rejections:
    """Rows that are not what the schema says, by file, column and problem."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], BadRows] = {}

    @contextlib.contextmanager
    def noting(self, where: str, first_row: int) -> Iterator[None]:
        """Note the bad rows that the block raises, and go on after it.

        Args:
            where: the file.
            first_row: place in the file of the row that the block calls 0.
        """
        try:
            yield
        except (BadRows, SeveralBadRows) as error:
            for bad in error.parts if isinstance(error, SeveralBadRows) else (error,):
                place = bad.place if bad.place.startswith(where) else f"{where}: {bad.place}"
                self.note(bad.moved(first_row, place=place))

    def note(self, bad: BadRows) -> None:
        """Add bad rows that are counted from the first of their file."""
        key = (bad.place, bad.problem)
        known = self._found.get(key)
        self._found[key] = bad if known is None else known.joined(bad)

    @property
    def found(self) -> tuple[BadRows, ...]:
        """Everything so far, in the order in which it was met."""
        return tuple(self._found.values())

    def raise_if_any(self) -> None:
        """Stop, with a line for each problem.

        Raises:
            BadRows: there is one problem.
            SeveralBadRows: there are several.
        """
        if len(self._found) == 1:
            raise self.found[0]
        if self._found:
            raise SeveralBadRows(self.found)
