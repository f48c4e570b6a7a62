"""Lines of a draft about tables: ids, times, impressions, users and items."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc

from features.encoding import as_text
from features.reading.tables import read_batches
from features.schema import EntitySpec
from features.schemadraft import words
from features.schemadraft.columns import ColumnSample
from features.schemadraft.roles import EntityRoles, ImpressionRoles, Roles
from features.schemadraft.samples import TableSample
from features.schemadraft.yamltext import comment_line, commented, inline, todo

_MAX_SURFACES = 50


def id_lines(roles: Roles, shown: ImpressionRoles) -> Iterator[str]:
    """Give `user`, `item` and `time`."""
    for owner, column, entity in (
        ("user", shown.user, roles.users),
        ("item", shown.item, roles.items),
    ):
        if column is None:
            value = {"column": todo(_missing_id(owner, shown.table)), "dtype": "int64"}
            yield f"{owner}: {inline(value)}"
            continue
        of_events = [source.user if owner == "user" else source.item for source in roles.events]
        everywhere = [column, *(c for c in of_events if c is not None)]
        everywhere += [entity.key] if entity is not None else []
        is_integer = all(c.kind == "integer" for c in everywhere)
        value = {"column": column.name, "dtype": "int64" if is_integer else "string"}
        what = "whole numbers everywhere" if is_integer else "not whole numbers everywhere"
        yield commented(
            f"{owner}: {inline(value)}",
            f"guessed: {column.num_distinct:,} ids in the sample, {what} -- correct me",
        )
    yield f"time: {time_value(shown.time)}"


def open_lines(tables: tuple[TableSample, ...]) -> Iterator[str]:
    """Give a document that is open everywhere, and what the files hold."""
    for table in tables:
        columns = ", ".join(map(_described, table.columns.values()))
        yield comment_line(f"{table.files.path} has {columns}")
    shown = {"path": todo("which file holds impressions? none has a time and a column of 0 and 1")}
    for key in ("request", "example", "surface"):
        shown[f"{key}_column"] = todo(f"name the column with the {key}")
    for owner in ("user", "item"):
        value = {"column": todo(f"name the column with the {owner}"), "dtype": "int64"}
        yield f"{owner}: {inline(value)}"
    yield f"time: {inline({'column': todo('name the column with the time'), 'unit': 'ms'})}"
    yield f"impressions: {inline({**shown, 'surfaces': []})}"
    yield f"items: {inline({'path': todo('which file holds one row per item?')})}"
    for key in ("vocabularies", "features", "sources", "objectives", "verticals"):
        yield f"{key}: []"


def _described(column: ColumnSample) -> str:
    what = column.kind if column.time is None else f"a moment, {column.time.unit}"
    return f"{column.name!r} ({what}, {column.num_distinct:,} values)"


def _missing_id(owner: str, table: TableSample) -> str:
    """Say what is missing; a column of floating-point numbers may be meant."""
    named = words.USER if owner == "user" else words.ITEM
    for column in table.columns.values():
        if column.is_stored_as_float and words.words_of(column.name) & named:
            return f"{column.name} is stored as {column.stored}: store whole numbers or text"
    return f"name the column with the {owner} of an impression"


def time_value(column: ColumnSample) -> str:
    """Give the declaration of a time column, with its comment."""
    guess = column.time
    assert guess is not None
    value: dict[str, object] = {"column": column.name, "unit": guess.unit}
    comment = f"guessed from values such as {_example(column)} -- correct me"
    if guess.needs_zone:
        if "utc" in words.words_of(column.name) or "gmt" in words.words_of(column.name):
            value["timezone"] = "UTC"
        else:
            value["timezone"] = todo("name the zone of these times, such as Europe/Berlin or UTC")
    if guess.is_date:
        comment += "; dates: an event counts from the start of its day, which may be too early"
    return commented(inline(value), comment)


def _example(column: ColumnSample) -> str:
    return str(column.values.drop_null()[0])


def file_lines(table: TableSample) -> Iterator[str]:
    """Give path, encoding and delimiter."""
    files = table.files
    yield f"path: {inline(files.path)}"
    if files.encoding != "utf-8":
        yield commented(f"encoding: {files.encoding}", "guessed: it is not UTF-8 -- correct me")
    if files.delimiter != ",":
        yield f"delimiter: {inline(files.delimiter)}"


def impression_lines(shown: ImpressionRoles, surfaces: list[str]) -> Iterator[str]:
    """Give `impressions`."""
    yield from ("", comment_line(sampled(shown.table)), "impressions:")
    yield from (f"  {line}" for line in file_lines(shown.table))
    example, request = shown.example, shown.request
    if example is None:
        what = "name an int64 column that differs in every row; add one if there is none"
        yield f"  example_column: {inline(todo(what))}"
    else:
        yield commented(
            f"  example_column: {inline(example.name)}",
            "guessed: a whole number that differs in every row of the sample -- correct me",
        )
    if request is not None:
        yield commented(
            f"  request_column: {inline(request.name)}",
            f"guessed: {request.num_distinct:,} distinct values of {request.num_rows:,}; rows of "
            "one request were shown together -- correct me",
        )
    elif example is not None:
        yield commented(
            f"  request_column: {inline(example.name)}",
            "guessed: nothing tells which rows were shown together, so each is a request of its "
            "own -- correct me",
        )
    else:
        yield f"  request_column: {inline(todo('name a column that rows shown together share'))}"
    yield from _surface(shown, surfaces)


def _surface(shown: ImpressionRoles, surfaces: list[str]) -> Iterator[str]:
    if shown.surface is None:
        what = (
            "name a column with few values that says where it was shown; add one if there is none"
        )
        yield f"  surface_column: {inline(todo(what))}"
        yield f"  surfaces: {inline(todo('list the values of surface_column'))}"
        return
    column = shown.surface
    yield commented(
        f"  surface_column: {inline(column.name)}",
        f"guessed: {column.num_distinct} distinct values of {column.num_rows:,} -- correct me",
    )
    if len(surfaces) > _MAX_SURFACES:
        yield f"  surfaces: {inline(todo(f'{column.name} has too many values; list or change it'))}"
    else:
        yield commented(f"  surfaces: {inline(surfaces)}", "every value that occurs")


def surfaces_of(shown: ImpressionRoles, folder: Path) -> list[str]:
    """Give the surfaces, looking at every row; of too many, some."""
    found: set[str] = set()
    if shown.surface is None:
        return []
    name = shown.surface.name
    for batch in read_batches(folder, shown.table.files, [name]):
        values = pc.unique(as_text(batch.column(name, None)))
        found |= {value for value in pc.drop_null(values).to_pylist() if value}
        if len(found) > _MAX_SURFACES:
            break
    return sorted(found)


def entity_lines(roles: Roles) -> Iterator[str]:
    """Give `users` and `items`."""
    yield ""
    shown = roles.impressions
    assert shown is not None
    if roles.users is not None:
        yield _entity("users", roles.users, shown.user)
    else:
        yield comment_line("users: {path: ...}  left out: no table with one row per user was found")
    if roles.items is not None:
        yield _entity("items", roles.items, shown.item)
    else:
        yield f"items: {inline({'path': todo('which file holds one row per item?')})}"


def _entity(name: str, roles: EntityRoles, key: ColumnSample | None) -> str:
    files: EntitySpec = roles.table.files
    value: dict[str, object] = {"path": files.path}
    if key is not None and key.name != roles.key.name:
        value["id_column"] = roles.key.name
    if files.encoding != "utf-8":
        value["encoding"] = files.encoding
    if files.delimiter != ",":
        value["delimiter"] = files.delimiter
    why = (
        f"guessed: {roles.key.name!r} differs in each of {roles.key.num_rows:,} rows -- correct me"
    )
    return commented(f"{name}: {inline(value)}", why)


def sampled(table: TableSample) -> str:
    """Say how much of a table was looked at."""
    part = "all of it" if table.is_whole else "a part of it"
    return f"{table.files.path}: {table.num_rows:,} rows were looked at, {part}"
