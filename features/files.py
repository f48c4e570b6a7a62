"""Files that appear whole or not at all, also when two processes write the same one."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under a name of its own, then rename it into place; the last writer wins.

    Raises:
        OSError: the folder cannot be made or written; no partial file stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
