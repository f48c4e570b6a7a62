"""Lines of a draft about vocabularies, features, sources, objectives and the vertical."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from features.schema import SURFACE
from features.schemadraft.columns import ColumnSample
from features.schemadraft.guesses import FeatureGuess, vocabulary_fields
from features.schemadraft.roles import EventRoles, ImpressionRoles, Roles
from features.schemadraft.tablelines import file_lines, sampled, time_value
from features.schemadraft.words import KIND, slug, words_of
from features.schemadraft.yamltext import comment_line, commented, inline, todo

_ITEM_ID = "item_id"
_MAX_LENGTH = 256
_MAX_MATCHED = 2
_VERTICAL = {
    "memory_length": "newest events that the memory of a user is made of",
    "max_candidates": "of one request",
    "latency_budget_ms": "of one answer",
    "soft_ttl_ms": "7 days: older vectors are used, and marked as stale",
    "hard_ttl_ms": "60 days: older vectors are gone",
}
_NUMBERS = {
    "memory_length": 64,
    "max_candidates": 500,
    "latency_budget_ms": 20,
    "soft_ttl_ms": 604_800_000,
    "hard_ttl_ms": 5_184_000_000,
}


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """Features by owner (item, user, context), and columns of sources by the source's name."""

    of: dict[str, list[FeatureGuess]]
    sources: dict[str, list[FeatureGuess]]

    def kept(self, owner: str) -> list[FeatureGuess]:
        """Features of an owner that are not left out."""
        return [guess for guess in self.of[owner] if not guess.is_left_out]


def vocabulary_lines(guesses: Guesses, shown: ImpressionRoles) -> Iterator[str]:
    """Give `vocabularies`: one for each name, shared by the columns that have it."""
    columns: dict[str, list[ColumnSample]] = {}
    if shown.item is not None:
        columns[_ITEM_ID] = [shown.item]
    for group in (*guesses.of.values(), *guesses.sources.values()):
        for guess in group:
            if guess.vocabulary is not None:
                columns.setdefault(guess.vocabulary, []).append(guess.column)
    if not columns:
        yield "  []"
    for name, of_name in columns.items():
        fields, why = vocabulary_fields(of_name)
        if name == _ITEM_ID and fields["policy"] == "fitted":
            fields = {**fields, "min_count": 2}
            why += "; one that was shown once teaches nothing"
        value = {"name": name, **fields}
        yield commented(f"  - {inline(value)}", f"guessed: {why} -- correct me")


def feature_lines(guesses: Guesses, roles: Roles, shown: ImpressionRoles) -> Iterator[str]:
    """Give `features`; outcomes, ids and what says nothing are comments."""
    yield "  # Only what is known at the moment of the impression: never an outcome."
    if shown.item is not None:
        value = {
            "name": _ITEM_ID,
            "of": "item",
            "kind": "categorical",
            "column": shown.item.name if roles.items is None else roles.items.key.name,
            "vocabulary": _ITEM_ID,
        }
        yield f"  - {inline(value)}"
    for owner, group in guesses.of.items():
        for guess in group:
            yield from _feature(guess, {"of": owner}, indent="  ")
    if shown.item is None and not any(map(guesses.kept, guesses.of)):
        yield "  []"


def source_lines(roles: Roles, guesses: Guesses) -> Iterator[str]:
    """Give `sources`."""
    if not roles.events:
        yield commented("sources: []", "no other file has times and users of the impressions")
        return
    yield "sources:"
    for source in roles.events:
        yield from _source(source, guesses.sources[source.table.name])


def objective_lines(shown: ImpressionRoles) -> Iterator[str]:
    """Give `objectives`."""
    why = "its name says so" if shown.is_label_named else "it holds only 0 and 1"
    for label in shown.labels:
        value: dict[str, object] = {"name": _unused_name(label, shown.labels), "kind": "binary"}
        value |= {"label_column": label.name, "attribution_window_ms": 0}
        comment = f"guessed: {why}, {_rate(label)} of the sample are 1 -- correct me"
        num_missing = label.num_null + _num_spoilt(label)
        if num_missing:
            value["bad_labels"] = "drop"
            comment += f"; {num_missing:,} rows without a label are left out, never taken for 0"
        yield commented(f"  - {inline(value)}", comment)
    yield "  # attribution_window_ms: how long after the impression a label may still become 1"


def vertical_lines(
    roles: Roles, shown: ImpressionRoles, guesses: Guesses, surfaces: list[str]
) -> Iterator[str]:
    """Give `verticals`: one that serves everything."""
    features = [*([_ITEM_ID] if shown.item else []), SURFACE]
    features += [guess.name for owner in guesses.of for guess in guesses.kept(owner)]
    matched = _matched(guesses, shown)
    with_items = [source for source in roles.events if source.item is not None]
    memory = max(with_items, key=lambda source: source.table.num_rows, default=None)
    yield "  - name: main"
    value = surfaces if shown.surface is not None else todo("list the surfaces that it serves")
    yield f"    surfaces: {inline(value)}"
    objectives = [_unused_name(label, shown.labels) for label in shown.labels]
    yield commented(f"    objectives: {inline(objectives)}", "it ranks by the first")
    yield f"    features: {inline(features)}"
    yield commented(
        f"    match_features: {inline(matched or todo('item features to compare events by'))}",
        "guessed: item categories with neither few nor many values -- correct me",
    )
    similar = matched[0] if matched else todo("an item feature that similar items share")
    yield commented(
        f"    similarity_feature: {inline(similar)}",
        "guessed: its vector may stand in for an item's missing one -- correct me",
    )
    missing = todo("name a source with an item column")
    yield commented(
        f"    memory_source: {inline(memory.table.name if memory is not None else missing)}",
        "guessed: the source with items that has the most rows -- correct me",
    )
    for key, comment in _VERTICAL.items():
        yield commented(f"    {key}: {_NUMBERS[key]}", comment)


def _feature(guess: FeatureGuess, more: dict[str, str], *, indent: str) -> Iterator[str]:
    if guess.is_left_out:
        yield f"{indent}{comment_line(f'- {guess.column.name}: {guess.comment}')}"
        return
    fields = {"kind": guess.fields["kind"], "column": guess.column.name, **guess.fields}
    value = {"name": guess.name, **more, **fields}
    yield commented(f"{indent}- {inline(value)}", guess.comment)


def _source(source: EventRoles, columns: list[FeatureGuess]) -> Iterator[str]:
    table = source.table
    yield f"  {comment_line(sampled(table))}"
    yield f"  - name: {inline(table.name)}"
    yield from (f"    {line}" for line in file_lines(table))
    yield commented(f"    user_column: {inline(source.user.name)}", "guessed -- correct me")
    if source.item is not None:
        yield commented(f"    item_column: {inline(source.item.name)}", "guessed -- correct me")
    yield f"    time: {time_value(source.time)}"
    if source.arrival is not None:
        yield f"    arrival: {time_value(source.arrival)}"
    yield commented(f"    max_length: {_MAX_LENGTH}", "guessed: newest events that count")
    kept = [guess for guess in columns if not guess.is_left_out]
    yield "    columns:" if kept else "    columns: []"
    for guess in columns:
        yield from _feature(guess, {}, indent="      ")


def _matched(guesses: Guesses, shown: ImpressionRoles) -> list[str]:
    """Item categories that many items share: well named and fine first; else the item itself."""
    found = [
        guess
        for guess in guesses.kept("item")
        if guess.vocabulary is not None
        and 3 <= guess.column.num_distinct <= max(20, guess.column.num_rows // 10)
    ]
    found.sort(key=lambda guess: (not words_of(guess.name) & KIND, -guess.column.num_distinct))
    names = [guess.name for guess in found[:_MAX_MATCHED]]
    return names or ([_ITEM_ID] if shown.item is not None else [])


def _unused_name(label: ColumnSample, labels: tuple[ColumnSample, ...]) -> str:
    """Columns differ; what is left of their names need not."""
    alike = [other.name for other in labels if slug(other.name) == slug(label.name)]
    place = alike.index(label.name)
    return slug(label.name) + (f"_{place + 1}" if place else "")


def _num_spoilt(label: ColumnSample) -> int:
    if label.kind == "text":
        return sum(str(v).strip() not in {"0", "1", "None"} for v in label.values.to_pylist())
    if label.kind == "boolean":
        return 0
    return int(np.isnan(label.numbers()).sum()) - label.num_null


def _rate(label: ColumnSample) -> str:
    values = [str(value).strip() for value in label.values.to_pylist()]
    num_positive = sum(value in {"1", "1.0", "True"} for value in values)
    return f"{num_positive / max(len(values), 1):.2%}"
