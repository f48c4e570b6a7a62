"""Where the bytes of a CSV are not text in its encoding: line, column and offset.

Bytes are never replaced or skipped: two ids that differ in one bad byte would become one.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import BinaryIO, cast

from features.errors import DataError
from features.schema import TableFiles

_LONGEST_SHOWN = 80


def require_encoding(path: Path, table: TableFiles) -> None:
    """Look for the first line that is not text in the declared encoding.

    Raises:
        DataError: there is one; names file, line, byte offset and column.

    Cost: one pass over the file, a line at a time.
    """
    offset, header = 0, b""
    with _open(path) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.decode(table.encoding)
            except UnicodeDecodeError as error:
                column = _column_at(header or line, line, error.start, table.delimiter)
                raise DataError(
                    f"{path}, line {number} (from 1), byte offset {offset + error.start}, column "
                    f"{column!r}: byte 0x{line[error.start]:02X} is not {table.encoding}, in "
                    f"{line.decode('latin-1').strip()[:_LONGEST_SHOWN]!r} (read as latin-1); "
                    "declare `encoding:` of the table in the schema, such as latin-1"
                ) from error
            header = header or line
            offset += len(line)


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _column_at(header: bytes, line: bytes, place: int, delimiter: str) -> str:
    text = header.decode("utf-8-sig", errors="backslashreplace").strip()
    names = [name.strip('"') for name in text.split(delimiter)]
    before = line[:place].decode("latin-1")
    count = sum(1 for part in before.split('"')[::2] for mark in part if mark == delimiter)
    return names[min(count, len(names) - 1)]
