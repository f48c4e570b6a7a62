"""Checkpoints: written whole or not at all, and refused where they do not fit.

A checkpoint is a folder `step-<number>` with `state.pt` and, last, `meta.json` with the hash of
the state. A folder without a `meta.json` that fits was not finished and is never read.
"""

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from features.errors import GemcutterError

FINAL = "final"
KEPT = 2


class CheckpointError(GemcutterError, ValueError):
    """A checkpoint that is missing, damaged, made for something else, or cannot be written."""


@dataclass(frozen=True, kw_only=True)
class CheckpointMeta:
    """What a checkpoint was made from.

    Attributes:
        step, num_rows: steps taken and training rows seen.
        config: the run's configuration as plain values.
        schema_id, encoder_id: of the data.
        plan_id: of the batches (`foundation.plan`).
        state_sha256: of `state.pt`.
    """

    step: int
    num_rows: int
    config: dict[str, Any]
    schema_id: str
    encoder_id: str
    plan_id: str = ""
    state_sha256: str = ""


def save_checkpoint(folder: Path, name: str, state: dict[str, Any], meta: CheckpointMeta) -> Path:
    """Write a checkpoint; a crash at any point leaves the earlier ones as they were.

    Raises:
        CheckpointError: the folder cannot be written, or the disk is full; nothing partial stays.
    """
    partial = folder / f".partial-{name}"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        return _write(folder, partial, name, state, meta)
    except (OSError, RuntimeError) as error:  # the latter is what torch makes of a full disk
        raise CheckpointError(f"{folder / name}: cannot be written: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def require_writable(folder: Path) -> None:
    """Find out before a long training whether its checkpoints can be written.

    Raises:
        CheckpointError: they cannot.
    """
    probe = folder / ".probe"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise CheckpointError(f"{folder}: checkpoints cannot be written there: {error}") from error


def _write(
    folder: Path, partial: Path, name: str, state: dict[str, Any], meta: CheckpointMeta
) -> Path:
    final = folder / name
    partial.mkdir(parents=True)
    with (partial / "state.pt").open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    document = asdict(meta) | {"state_sha256": _sha256(partial / "state.pt")}
    (partial / "meta.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)
    steps = sorted(folder.glob("step-*"))
    for old in steps[:-KEPT]:
        shutil.rmtree(old)
    return final


def load_checkpoint(
    path: Path,
    *,
    config: dict[str, Any] | None,
    schema_id: str,
    encoder_id: str,
    plan_id: str | None = None,
) -> tuple[dict[str, Any], CheckpointMeta]:
    """Read a checkpoint made for this data and, if given, this configuration and these batches.

    Raises:
        CheckpointError: incomplete or damaged, or what differs and how.
    """
    try:
        meta = CheckpointMeta(**json.loads((path / "meta.json").read_text(encoding="utf-8")))
        found = _sha256(path / "state.pt")
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path}: not a complete checkpoint: {error}") from error
    if found != meta.state_sha256:
        raise CheckpointError(f"{path}/state.pt: damaged, its hash is not that of meta.json")
    wanted: dict[str, Any] = {"schema_id": schema_id, "encoder_id": encoder_id}
    if config is not None:
        wanted["config"] = json.loads(json.dumps(config))
    if plan_id is not None:
        wanted["plan_id"] = plan_id
    for name, value in wanted.items():
        if getattr(meta, name) != value:
            raise CheckpointError(
                f"{path}: {name} is {_difference(getattr(meta, name), value)}; train again or use "
                "what it was made for"
            )
    return torch.load(path / "state.pt", weights_only=True), meta


def newest_checkpoint(folder: Path) -> Path | None:
    """Give the newest finished checkpoint of a run, None without one."""
    finished = [path for path in sorted(folder.glob("step-*")) if (path / "meta.json").exists()]
    return finished[-1] if finished else None


def _difference(found: Any, wanted: Any) -> str:
    if isinstance(found, dict) and isinstance(wanted, dict):
        names = [k for k in sorted({*found, *wanted}) if found.get(k) != wanted.get(k)]
        parts = (f"{k}: {_difference(found.get(k), wanted.get(k))}" for k in names)
        return "{" + ", ".join(parts) + "}"
    return f"{found!r}, expected {wanted!r}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
