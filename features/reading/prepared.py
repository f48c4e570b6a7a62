"""What is kept of a log once it was read: encoder, windows, and columns that map into memory.

    prepared/
        encoder.json        vocabularies; every later step must read the same codes
        splits.yaml         windows, where the user wrote none
        log-<fingerprint>/  the log in columns, made of one state of the files
            impressions/    sorted by time
            events/<source> sorted by user, then time, with the range of each user
            items/ users/   entity tables
            report.json     what became of the rows

A fingerprint is a hash of the schema, the encoder, and every file's name, size and time of change.
If a file changes the log is read again, with the same encoder. A folder appears whole or not at
all; while one process makes it, others wait for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from features.arrays import AnyArray, IntArray
from features.errors import DataError
from features.log import Events, Impressions
from features.reading.columnfiles import map_columns
from features.reading.columns import feature_array
from features.reading.tables import table_files
from features.schema import FeatureSpec, Schema, SourceSpec, TableFiles
from features.segments import Segment

PREPARED = "prepared"
IMPRESSIONS = "impressions"

_FORMAT = 1
_PREFIX, _PARTIAL = "log-", ".partial-"
_SEGMENT = ("users", "starts", "max_delay_ms")


FileStates = list[tuple[str, int, int]]
"""Name, size and time of change of every file of a log."""


def file_states(folder: Path, schema: Schema) -> FileStates:
    """Look at the files of a log.

    Raises:
        DataError: a table has no files.
    """
    entities: tuple[TableFiles, ...] = (schema.items, *([schema.users] if schema.users else []))
    tables: tuple[TableFiles, ...] = (schema.impressions, *entities, *schema.sources)
    found = []
    for path in (path for table in tables for path in table_files(folder, table)):
        stat = path.stat()
        found.append((os.path.relpath(path, folder), stat.st_size, stat.st_mtime_ns))
    return found


def fingerprint(schema: Schema, encoder_id: str, files: FileStates) -> str:
    """Give the name of a log, read from files in this state."""
    content = json.dumps([_FORMAT, schema.schema_id, encoder_id, files])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def require_unchanged(folder: Path, schema: Schema, before: FileStates) -> None:
    """Check that no file changed since it was looked at: two passes must see the same rows.

    Raises:
        DataError: names those that did, came or went.
    """
    changed = sorted({name for name, *_ in set(before) ^ set(file_states(folder, schema))})
    if changed:
        raise DataError(f"{folder}: changed while they were read: {changed}; read them again")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """Give `prepared/` to one process at a time; it goes again if nothing was put into it.

    Raises:
        DataError: the folder cannot be made or written.
    """
    prepared = folder / PREPARED
    lock = prepared / ".lock"
    try:
        prepared.mkdir(exist_ok=True)
        with lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield prepared
    except OSError as error:
        raise DataError(
            f"{prepared}: what was read of the log cannot be kept ({error}); make the folder "
            "writable and give it room, since every later step must read the same codes"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            if [path.name for path in prepared.iterdir()] == [".lock"]:
                lock.unlink()
                prepared.rmdir()


def log_folder(prepared: Path, name: str) -> Path:
    """Where the columns of this fingerprint lie."""
    return prepared / f"{_PREFIX}{name}"


def write_log(prepared: Path, name: str, write: Callable[[Path], None]) -> Path:
    """Make a log's folder, whole or not at all; call it with the lock held.

    Folders of earlier states, and what a killed process left, are removed.
    """
    for left in prepared.glob(f"{_PARTIAL}*"):
        shutil.rmtree(left)
    partial, final = prepared / f"{_PARTIAL}{name}", log_folder(prepared, name)
    partial.mkdir()
    try:
        write(partial)
        if final.exists():  # of an encoder that was deleted and came out the same
            shutil.rmtree(final)
        partial.rename(final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    for old in prepared.glob(f"{_PREFIX}*"):
        if old != final:
            shutil.rmtree(old)
    return final


def impression_dtypes(schema: Schema) -> dict[str, type]:
    """Name and type of every column of the impressions."""
    names = ("example_ids", "request_ids", "user_keys", "item_keys", "at_ms")
    found: dict[str, type] = dict.fromkeys(names, np.int64)
    found |= feature_dtypes(schema.features_of("context"))
    found |= {f"labels/{objective.name}": np.float32 for objective in schema.objectives}
    return {**found, "weights": np.float32}


def event_dtypes(source: SourceSpec) -> dict[str, type]:
    """Name and type of every column of a source's events."""
    names = ["user_keys", "at_ms"]
    names += ["arrival_ms"] if source.arrival is not None else []
    names += ["item_keys"] if source.item_column is not None else []
    found: dict[str, type] = dict.fromkeys(names, np.int64)
    return {**found, **feature_dtypes(source.columns)}


def feature_dtypes(features: Iterable[FeatureSpec]) -> dict[str, type]:
    """Name and type of the columns of features."""
    return {
        feature_array(feature): np.float32 if feature.vocabulary is None else np.int64
        for feature in features
    }


def segment_dtypes() -> dict[str, type]:
    """Name and type of the columns that say where each user's events are."""
    return dict.fromkeys(_SEGMENT, np.int64)


def map_impressions(folder: Path, schema: Schema) -> Impressions:
    """Map the impressions of a log's folder into memory."""
    columns = map_columns(folder / IMPRESSIONS, impression_dtypes(schema))
    return Impressions(
        example_ids=columns["example_ids"],
        request_ids=columns["request_ids"],
        user_keys=columns["user_keys"],
        item_keys=columns["item_keys"],
        at_ms=columns["at_ms"],
        codes=_part(columns, "codes"),
        numeric=_part(columns, "numeric"),
        labels=_part(columns, "labels"),
        weights=columns["weights"],
    )


def map_segment(folder: Path, source: SourceSpec) -> Segment:
    """Map the events of one source into memory."""
    place = events_folder(folder, source.name)
    columns = map_columns(place, event_dtypes(source))
    users, starts, max_delay_ms = map_columns(place, _SEGMENT).values()
    return Segment(events=to_events(columns), users=users, starts=starts, max_delay_ms=max_delay_ms)


def to_events(columns: dict[str, AnyArray]) -> Events:
    """Give columns by their meaning."""
    return Events(
        user_keys=columns["user_keys"],
        at_ms=columns["at_ms"],
        arrival_ms=columns.get("arrival_ms", columns["at_ms"]),
        item_keys=columns.get("item_keys"),
        codes=_part(columns, "codes"),
        numeric=_part(columns, "numeric"),
    )


def events_folder(folder: Path, source: str) -> Path:
    """Where the columns of one source lie."""
    return folder / "events" / source


def repeated(values: IntArray) -> IntArray:
    """Give the values that are there more than once, sorted."""
    values = np.sort(values)
    return np.unique(values[1:][values[1:] == values[:-1]])


def _part(columns: dict[str, AnyArray], kind: str) -> dict[str, AnyArray]:
    mark = f"{kind}/"
    return {
        name.removeprefix(mark): column for name, column in columns.items() if name.startswith(mark)
    }
