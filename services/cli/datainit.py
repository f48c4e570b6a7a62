"""What `gemcutter data init` writes and prints."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from features.errors import DataError
from features.files import write_whole
from features.schemadraft import draft_schema

_SCHEMA, _SPLITS = "schema.yaml", "splits.yaml"


def write_draft(paths: list[Path], out: Path | None, console: Console) -> None:
    """Draft a schema for some files, and write it beside them.

    Args:
        paths: files, or folders with the files of one table each.
        out: folder of the schema; None takes the one that holds all of the files.
        console: where to say what is left to do.

    Raises:
        DataError: a file cannot be read, or a draft cannot be written or would overwrite something.
    """
    folder = out or _shared_folder(paths)
    for name in (_SCHEMA, _SPLITS):
        if (folder / name).exists():
            raise DataError(f"{folder / name}: it is there already and is not overwritten; move it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = draft_schema(paths, folder)
        texts = {_SCHEMA: draft.schema, _SPLITS: draft.splits}
        for name, text in texts.items():
            if text is not None:
                write_whole(folder / name, text.encode())
                console.print(
                    f"wrote {escape(str(folder / name))}", highlight=False, soft_wrap=True
                )
    except OSError as error:
        raise DataError(f"{folder}: the draft cannot be written: {error}") from error
    for note in draft.notes:
        console.print(f"[yellow]note[/yellow] {escape(note)}", highlight=False, soft_wrap=True)
    for line in draft.todos:
        console.print(f"[red]to do[/red] {escape(line)}", highlight=False, soft_wrap=True)
    follow = f"every line is a guess: correct it, then run gemcutter data check {folder}"
    console.print(escape(follow), highlight=False, soft_wrap=True)


def _shared_folder(paths: list[Path]) -> Path:
    """The lowest folder that holds every file, or every table's folder."""
    folders = [str(path.resolve().parent) for path in paths]
    return Path(os.path.commonpath(folders))
