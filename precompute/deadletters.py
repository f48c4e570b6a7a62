"""Records that could not be used, kept with their reason in a JSON-lines file.

    {"source": "events.jsonl", "partition": 0, "offset": 512, "reason": "...", "payload": "..."}

A payload that is not UTF-8 is kept as base64 under ``payload_base64``. A record appears once,
however often it is delivered.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from precompute.events import SourceError
from precompute.sources.source import Position


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """One record that could not be used."""

    source: str
    position: Position
    reason: str
    payload: bytes


class DeadLetters(Protocol):
    """Where such records go."""

    def write(self, letters: Sequence[DeadLetter]) -> int:
        """Keep the letters durably; say how many were not there before.

        Raises:
            SourceError: they could not be kept; nothing may be committed then.
        """


class DeadLetterFile:
    """Dead letters in a file, made with the first of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = set(self._read())
        self._is_mended = False

    def write(self, letters: Sequence[DeadLetter]) -> int:
        """Append letters that are not in the file yet, and wait for the disk."""
        fresh = [letter for letter in letters if _name(letter) not in self._seen]
        if not fresh:
            return 0
        try:
            self._mend()
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(_to_dict(letter)) + "\n" for letter in fresh)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise SourceError(f"{self._path}: cannot keep dead letters ({error})") from error
        self._seen.update(_name(letter) for letter in fresh)
        return len(fresh)

    def _read(self) -> list[tuple[str, int, int]]:
        if not self._path.exists():
            return []
        names = []
        for line in self._path.read_bytes().splitlines(keepends=True):
            # A crash may have left half a line; its record comes again.
            if line.endswith(b"\n"):
                letter = json.loads(line)
                names.append((letter["source"], letter["partition"], letter["offset"]))
        return names

    def _mend(self) -> None:
        """Cut off half a line that a crash left, before the first write."""
        if self._is_mended or not self._path.exists():
            return
        self._is_mended = True
        content = self._path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with self._path.open("r+b") as file:
                file.truncate(whole)


def _name(letter: DeadLetter) -> tuple[str, int, int]:
    return letter.source, letter.position.partition, letter.position.offset


def _to_dict(letter: DeadLetter) -> dict[str, str | int]:
    content: dict[str, str | int] = {
        "source": letter.source,
        "partition": letter.position.partition,
        "offset": letter.position.offset,
        "reason": letter.reason,
    }
    try:
        content["payload"] = letter.payload.decode("utf-8")
    except UnicodeDecodeError:
        content["payload_base64"] = base64.b64encode(letter.payload).decode("ascii")
    return content
