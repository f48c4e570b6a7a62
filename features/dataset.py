"""A data set folder, read, checked and encoded.

A folder holds `schema.yaml` and the tables that it names, and may hold `splits.yaml` (windows of
time; without one they are drawn by `features.splits`). The first load fits the encoder on what was
known before the foundation model's training window ends, and keeps it and the log's columns in
`prepared/` (`features.reading.prepared`). The encoder is never refitted behind the user's back: one
of another schema or window is refused until it is deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from features.encoding import Encoder
from features.entities import EntityTable
from features.errors import DataError
from features.histories import HistoryIndex
from features.log import Events, Impressions, Splits
from features.reading.ingest import scan_log, write_columns
from features.reading.prepared import (
    PREPARED,
    file_states,
    fingerprint,
    locked,
    log_folder,
    map_impressions,
    map_segment,
    require_unchanged,
    write_log,
)
from features.reading.progress import Progress, silent
from features.reading.report import IngestReport
from features.schema import Schema, load_schema
from features.segments import Segment
from features.splits import draw_splits, load_splits, save_splits

__all__ = ["PREPARED", "LogDataset", "load_dataset", "load_splits"]

_ENCODER, _SPLITS, _REPORT = "encoder.json", "splits.yaml", "report.json"


@dataclass(frozen=True, kw_only=True)
class LogDataset:
    """Everything a step needs to know of a log.

    Attributes:
        segments: the events of each source in the order of histories, mapped into memory.
        report: what became of the rows when they were read.
    """

    folder: Path
    schema: Schema
    splits: Splits
    encoder: Encoder
    items: EntityTable
    users: EntityTable
    impressions: Impressions
    segments: dict[str, Segment]
    report: IngestReport

    @property
    def events(self) -> dict[str, Events]:
        """The events of each source, by user and time."""
        return {source: segment.events for source, segment in self.segments.items()}

    def histories(self) -> HistoryIndex:
        """Give a new index over all events; what is appended to it stays its own."""
        return HistoryIndex.of_segments(self.segments)


def load_dataset(folder: Path, *, progress: Progress | None = None) -> LogDataset:
    """Read a data set folder, or map what an earlier load kept of the same files.

    Several processes may load one folder at once: one reads, the others wait.

    Args:
        folder: with schema.yaml.
        progress: told what is being read, and how many rows of it are.

    Raises:
        SchemaError: `schema.yaml` is wrong.
        DataError: a table, column, value or label is not what the schema says, with its place, a
            line for each; or `prepared/` was made for another schema or training window.
    """
    schema = load_schema(folder / "schema.yaml")
    tell = progress or silent
    splits = _known_splits(folder)
    encoder = None if splits is None else _known_encoder(folder, schema, splits)
    if encoder is not None:
        files = file_states(folder, schema)
        kept = log_folder(folder / PREPARED, fingerprint(schema, encoder.encoder_id, files))
        if kept.is_dir() and splits is not None:
            return _map(folder, schema, splits, encoder, kept)
    with locked(folder) as prepared:
        # Another process may have been through while this one waited.
        splits = _known_splits(folder)
        is_drawn = splits is None
        splits = draw_splits(folder, schema, progress=tell) if splits is None else splits
        known = _known_encoder(folder, schema, splits)
        kept = _read(folder, schema, splits, known, progress=tell)
        encoder = Encoder.load(prepared / _ENCODER)
        if is_drawn:
            save_splits(prepared / _SPLITS, splits)
        return _map(folder, schema, splits, encoder, kept)


def _read(
    folder: Path,
    schema: Schema,
    splits: Splits,
    known: Encoder | None,
    *,
    progress: Progress,
) -> Path:
    """Read the files unless this state of them was read; gives the folder of the columns."""
    prepared, files = folder / PREPARED, file_states(folder, schema)
    if known is not None:
        kept = log_folder(prepared, fingerprint(schema, known.encoder_id, files))
        if kept.is_dir():
            return kept
    scan = scan_log(folder, schema, encoder=known, splits=splits, progress=progress)

    def write(out: Path) -> None:
        write_columns(folder, schema, scan, out, progress=progress).save(out / _REPORT)
        require_unchanged(folder, schema, files)

    kept = write_log(prepared, fingerprint(schema, scan.encoder.encoder_id, files), write)
    if known is None:
        scan.encoder.save(prepared / _ENCODER)
    return kept


def _map(folder: Path, schema: Schema, splits: Splits, encoder: Encoder, kept: Path) -> LogDataset:
    return LogDataset(
        folder=folder,
        schema=schema,
        splits=splits,
        encoder=encoder,
        items=EntityTable.load(kept / "items"),
        users=EntityTable.load(kept / "users"),
        impressions=map_impressions(kept, schema),
        segments={source.name: map_segment(kept, source) for source in schema.sources},
        report=IngestReport.load(kept / _REPORT),
    )


def _known_splits(folder: Path) -> Splits | None:
    for path in (folder / _SPLITS, folder / PREPARED / _SPLITS):
        if path.exists():
            return load_splits(path)
    return None


def _known_encoder(folder: Path, schema: Schema, splits: Splits) -> Encoder | None:
    path, until_ms = folder / PREPARED / _ENCODER, splits.fm_train[1]
    if not path.exists():
        return None
    remedy = f"delete {path.parent} to fit again (models that were trained on it are then refused)"
    try:
        encoder = Encoder.load(path)
    except DataError as error:
        raise DataError(f"{error}; {remedy}") from error
    if encoder.schema_id != schema.schema_id:
        raise DataError(
            f"{path}: fitted for schema {encoder.schema_id}, but schema.yaml is now "
            f"{schema.schema_id}; {remedy}"
        )
    # An encoder without the note was fitted by hand: whoever put it here answers for its window.
    if encoder.fitted_until_ms not in {None, until_ms}:
        raise DataError(
            f"{path}: fitted on what was before {encoder.fitted_until_ms}, but fm_train in "
            f"splits.yaml now ends at {until_ms}; {remedy}"
        )
    return encoder
