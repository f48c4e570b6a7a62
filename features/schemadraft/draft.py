"""A draft of schema.yaml: every guess with what it rests on, every gap as a TODO.

A TODO is a mapping where the schema wants text or a list, so `load_schema` refuses the draft and
names it. A draft without one loads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from features.errors import DataError, SchemaError
from features.schema import SURFACE, parse_schema
from features.schemadraft import words
from features.schemadraft.columns import ColumnSample
from features.schemadraft.featurelines import (
    Guesses,
    feature_lines,
    objective_lines,
    source_lines,
    vertical_lines,
    vocabulary_lines,
)
from features.schemadraft.guesses import FeatureGuess, guess_feature
from features.schemadraft.roles import Roles, find_roles, outcomes
from features.schemadraft.samples import sample_tables
from features.schemadraft.tablelines import (
    entity_lines,
    id_lines,
    impression_lines,
    open_lines,
    surfaces_of,
)
from features.schemadraft.windows import draw_windows
from features.times import TimeSpec

_HEAD = """\
# A draft, made from a sample of the files. Correct it: nothing here is certain. What could not be
# told from the files is marked {TODO: ...}, and nothing loads while one is left. Then run
# `gemcutter data check` on this folder.
"""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Two documents.

    Attributes:
        schema: text of schema.yaml.
        splits: text of splits.yaml; None where no windows could be drawn.
        todos: what `load_schema` says of the draft; empty if it loads.
        notes: what a person should know of the rest.
    """

    schema: str
    splits: str | None
    todos: tuple[str, ...]
    notes: tuple[str, ...]


def draft_schema(paths: list[Path], folder: Path) -> Draft:
    """Draft a schema for some files.

    Args:
        paths: files, or folders with the files of one table each.
        folder: that the schema will be in; exists.

    Raises:
        DataError: a file cannot be read.
    """
    tables = sample_tables(paths, folder)
    roles = find_roles(tables)
    text = "\n".join([_HEAD, *_document(roles, folder)]) + "\n"
    todos: tuple[str, ...] = ()
    try:
        parse_schema(yaml.safe_load(text), where="schema.yaml")
    except SchemaError as error:
        todos = tuple(str(error).splitlines())
    splits, notes = None, [f"{table.files.path}: no role was found for it" for table in roles.left]
    if roles.impressions is not None:
        try:
            files, time = roles.impressions.table.files, roles.impressions.time
            splits = draw_windows(folder, files, _spec(time))
            if _spec(time).timezone is not None:
                notes.append(f"splits.yaml was drawn as if {time.name!r} were in UTC")
        except DataError as error:
            notes.append(f"no splits.yaml: {error}")
    return Draft(schema=text, splits=splits, todos=todos, notes=tuple(notes))


def _document(roles: Roles, folder: Path) -> Iterator[str]:
    shown = roles.impressions
    yield from ("name: draft", "version: 1", "")
    if shown is None:
        yield from open_lines(roles.left)
        return
    guesses, surfaces = _guesses(roles), surfaces_of(shown, folder)
    yield from id_lines(roles, shown)
    yield from impression_lines(shown, surfaces)
    yield from entity_lines(roles)
    yield from ("", "vocabularies:", *vocabulary_lines(guesses, shown))
    yield from ("", "features:", *feature_lines(guesses, roles, shown))
    yield from ("", *source_lines(roles, guesses))
    yield from ("", "objectives:", *objective_lines(shown))
    yield from ("", "verticals:", *vertical_lines(roles, shown, guesses, surfaces))


def _guesses(roles: Roles) -> Guesses:
    shown = roles.impressions
    assert shown is not None
    names = {SURFACE, "item_id"}
    hidden = set(outcomes(shown))
    found: dict[str, list[FeatureGuess]] = {"item": [], "user": [], "context": []}
    entities = {"item": roles.items, "user": roles.users}
    for owner, entity in entities.items():
        if entity is not None:
            columns = [c for c in entity.table.columns.values() if c.name != entity.key.name]
            found[owner] = _named(columns, names, prefix=owner)
    columns = [c for c in shown.table.columns.values() if c.name not in shown.taken]
    found["context"] = [
        FeatureGuess(
            column=guess.column,
            name=guess.name,
            fields={},
            comment="left out: it holds something only where a label is 1, so it tells the outcome",
            is_left_out=True,
        )
        if guess.column.name in hidden
        else guess
        for guess in _named(columns, names, prefix="context")
    ]
    sources = {
        source.table.name: _named(
            [c for c in source.table.columns.values() if c.name not in source.taken],
            {SURFACE, "item_id"},
            prefix=source.table.name,
        )
        for source in roles.events
    }
    return Guesses(of=found, sources=sources)


def _named(columns: list[ColumnSample], names: set[str], *, prefix: str) -> list[FeatureGuess]:
    """Guess features under names that are not taken."""
    found = []
    for column in columns:
        name = words.slug(column.name)
        if name in names:
            name = f"{prefix}_{name}"
        while name in names:
            name += "_"
        names.add(name)
        found.append(guess_feature(column, name, allows_vector=prefix == "item"))
    return found


def _spec(column: ColumnSample) -> TimeSpec:
    """A zone that is not known moves windows by hours; they are a draft too."""
    guess = column.time
    assert guess is not None
    zone = "UTC" if guess.needs_zone else None
    return TimeSpec(column=column.name, unit=guess.unit, timezone=zone)
