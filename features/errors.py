"""What can go wrong with a user's data, a stored value or the store.

GemcutterError
|- SchemaError        (also ValueError)  a schema document says something it may not
|- DataError          (also ValueError)  a table, column or value is not what the schema says
|  |- BadRows                            some rows of a column are not; says which
|  `- SeveralBadRows                     and that for several reasons, or in several columns
|- CodecError         (also ValueError)  a vector cannot be packed as asked
`- StoreError                            the store did not do what was asked
   |- StoreTimeout                       it did not answer in time
   `- StoreUnavailable                   it cannot be reached, or refuses writes
"""

from __future__ import annotations

from collections.abc import Sequence

_FIRST_ROWS = 5


class GemcutterError(Exception):
    """Anything this project raises on purpose."""


class SchemaError(GemcutterError, ValueError):
    """A schema document says something it may not."""


class DataError(GemcutterError, ValueError):
    """A table, column or value is not what the schema says."""


class BadRows(DataError):  # noqa: N818 (named for what was found)
    """Some rows of a column are not what the schema says.

    Args:
        place: file and column, or as much of it as is known.
        problem: what they are or hold, as in "3 <problem>".
        rows: of the rows that are wrong, at least the first few; counted from 0.
        num_rows: of all of them, if rows holds fewer.
        example: what the first of them holds.
        hint: what to do about it.
    """

    def __init__(
        self,
        place: str,
        problem: str,
        rows: Sequence[int],
        *,
        num_rows: int | None = None,
        example: str = "",
        hint: str = "",
    ) -> None:
        self.place, self.problem = place, problem
        self.rows = tuple(int(row) for row in rows[:_FIRST_ROWS])
        self.num_rows = len(rows) if num_rows is None else num_rows
        self.example, self.hint = example, hint
        super().__init__(self._text())

    def _text(self) -> str:
        example = f"; row {self.rows[0]} holds {self.example}" if self.example else ""
        hint = f"; {self.hint}" if self.hint else ""
        return (
            f"{self.place}: {self.num_rows} {self.problem}; first rows {list(self.rows)}"
            f"{example}{hint}"
        )

    def moved(self, first_row: int, *, place: str | None = None) -> BadRows:
        """Give the same of a part that begins at a row of the whole."""
        return BadRows(
            self.place if place is None else place,
            self.problem,
            [row + first_row for row in self.rows],
            num_rows=self.num_rows,
            example=self.example,
            hint=self.hint,
        )

    def joined(self, later: BadRows) -> BadRows:
        """Give this and the same problem further down as one."""
        return BadRows(
            self.place,
            self.problem,
            [*self.rows, *later.rows],
            num_rows=self.num_rows + later.num_rows,
            example=self.example,
            hint=self.hint,
        )


class SeveralBadRows(DataError):  # noqa: N818 (named for what was found)
    """Several things are wrong with rows.

    Args:
        parts: one for each file, column and problem.
    """

    def __init__(self, parts: Sequence[BadRows]) -> None:
        self.parts = tuple(parts)
        super().__init__("\n".join(map(str, parts)))


class CodecError(GemcutterError, ValueError):
    """A vector cannot be packed as asked."""


class StoreError(GemcutterError):
    """The store did not do what was asked."""


class StoreTimeout(StoreError):  # noqa: N818 (named for what happened)
    """The store did not answer in time."""


class StoreUnavailable(StoreError):  # noqa: N818
    """The store cannot be reached, or refuses writes."""
