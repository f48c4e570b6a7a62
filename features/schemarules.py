"""What the types of a schema cannot say: names that repeat or point nowhere, senseless numbers."""

from __future__ import annotations

import codecs
import math
import re
from collections import Counter
from collections.abc import Iterable

from features.specs import (
    SURFACE,
    FeatureSpec,
    Named,
    ObjectiveSpec,
    Schema,
    SourceSpec,
    TableFiles,
    VerticalSpec,
    VocabularySpec,
)
from features.times import time_problems

# Names become file names, store keys and columns of reports.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def problems(schema: Schema) -> Iterable[str]:
    """Give everything that is wrong with a schema, each with its place."""
    yield from _name_problems(schema)
    yield from _list_problems(schema.surfaces, "impressions.surfaces")
    yield from time_problems(schema.time, "time")
    yield from _file_problems(schema.impressions, "impressions")
    yield from _file_problems(schema.items, "items")
    if schema.users is not None:
        yield from _file_problems(schema.users, "users")
    for vocabulary in schema.vocabularies:
        yield from _vocabulary_problems(vocabulary)
    for feature in schema.features:
        place = f"features.{feature.name}"
        if feature.of == "event":
            yield f"{place}.of: expected user, item or context, got {feature.of!r}"
        if feature.of == "user" and schema.users is None:
            yield f"{place}.of: a feature of users needs the table `users`, and none is declared"
        yield from _feature_problems(schema, feature, place)
    yield from _outcome_problems(schema)
    for source in schema.sources:
        yield from _source_problems(schema, source)
    for objective in schema.objectives:
        yield from _objective_problems(objective)
    for vertical in schema.verticals:
        yield from _vertical_problems(schema, vertical)


def _name_problems(schema: Schema) -> Iterable[str]:
    groups: dict[str, Iterable[Named]] = {
        "vocabularies": schema.vocabularies,
        "features": schema.features,
        "sources": schema.sources,
        "objectives": schema.objectives,
        "verticals": schema.verticals,
    }
    groups |= {f"sources.{source.name}.columns": source.columns for source in schema.sources}
    for group, members in groups.items():
        for name, count in Counter(member.name for member in members).items():
            if count > 1 and name == SURFACE and group in {"vocabularies", "features"}:
                yield f"{group}: {name!r} is there without being declared; delete it or rename it"
            elif count > 1:
                yield f"{group}: the name {name!r} is used {count} times"
            if not _NAME.fullmatch(name):
                yield f"{group}: expected a name of letters, digits, '_', '-' and '.', got {name!r}"


def _file_problems(table: TableFiles, place: str) -> Iterable[str]:
    try:
        codecs.lookup(table.encoding)
    except LookupError:
        yield f"{place}.encoding: expected one that Python knows, got {table.encoding!r}"
    if len(table.delimiter) != 1:
        yield f"{place}.delimiter: expected one character, got {table.delimiter!r}"


def _list_problems(names: tuple[str, ...], place: str) -> Iterable[str]:
    if not names or "" in names:
        yield f"{place}: expected at least one, and none empty, got {list(names)}"
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{place}: {name!r} is there {count} times"


def _vocabulary_problems(vocabulary: VocabularySpec) -> Iterable[str]:
    place = f"vocabularies.{vocabulary.name}"
    if vocabulary.policy == "hashed":
        if vocabulary.num_buckets < 1:
            yield f"{place}: hashed needs num_buckets of 1 or more, got {vocabulary.num_buckets}"
        if vocabulary.min_count != 1:
            yield f"{place}.min_count: only a fitted vocabulary counts, this one is hashed"
    else:
        if vocabulary.num_buckets != 0:
            yield f"{place}.num_buckets: only a hashed vocabulary has buckets, this one is fitted"
        if vocabulary.min_count < 1:
            yield f"{place}.min_count: expected 1 or more, got {vocabulary.min_count}"


def _feature_problems(schema: Schema, feature: FeatureSpec, place: str) -> Iterable[str]:
    if feature.kind == "numeric":
        yield from _domain_problems(feature, place)
        return
    known = [vocabulary.name for vocabulary in schema.vocabularies]
    if feature.vocabulary not in known:
        yield f"{place}.vocabulary: expected one of {known}, got {feature.vocabulary!r}"
    if feature.transform != "identity":
        yield f"{place}.transform: a categorical feature has none, got {feature.transform!r}"
    for key in ("minimum", "maximum", "default", "element", "dim"):
        if getattr(feature, key) is not None:
            yield f"{place}.{key}: a categorical feature has none, got {getattr(feature, key)}"
    if feature.outside != "stop":
        yield f"{place}.outside: a categorical feature has no domain, got {feature.outside!r}"


def _domain_problems(feature: FeatureSpec, place: str) -> Iterable[str]:
    if feature.vocabulary is not None:
        yield f"{place}.vocabulary: a numeric feature has none, got {feature.vocabulary!r}"
    for key in ("minimum", "maximum", "default"):
        number = getattr(feature, key)
        if number is not None and not math.isfinite(number):
            yield f"{place}.{key}: expected a finite number, got {number}"
    low = -math.inf if feature.minimum is None else feature.minimum
    high = math.inf if feature.maximum is None else feature.maximum
    if low > high:
        yield f"{place}.minimum: expected at most the maximum {high:g}, got {low:g}"
    elif feature.default is not None and not low <= feature.default <= high:
        yield f"{place}.default: expected one in [{low:g}, {high:g}], got {feature.default:g}"
    if (feature.element is None) != (feature.dim is None):
        yield f"{place}: dim and element are of vectors; declare kind: vector with dim"
    if feature.element is not None and feature.of != "item":
        yield f"{place}: only items have vectors so far, got one of: {feature.of}"
    if feature.outside == "clip" and feature.minimum is None and feature.maximum is None:
        yield f"{place}.outside: clip needs a minimum or a maximum"
    if feature.transform == "log1p" and low <= -1:
        yield f"{place}.minimum: log1p needs one above -1, got {feature.minimum}"


def _outcome_problems(schema: Schema) -> Iterable[str]:
    """A label among the features would tell the models what they are to predict."""
    outcomes = {objective.label_column: objective.name for objective in schema.objectives}
    for feature in schema.features_of("context"):
        if feature.column in outcomes:
            yield (
                f"features.{feature.name}.column: {feature.column!r} is the label of objective "
                f"{outcomes[feature.column]!r}; a feature must be known before the outcome"
            )


def _source_problems(schema: Schema, source: SourceSpec) -> Iterable[str]:
    place = f"sources.{source.name}"
    if source.max_length < 1:
        yield f"{place}.max_length: expected 1 or more, got {source.max_length}"
    yield from _file_problems(source, place)
    yield from time_problems(source.time, f"{place}.time")
    if source.arrival is not None:
        yield from time_problems(source.arrival, f"{place}.arrival")
    for column in source.columns:
        if column.of != "event":
            yield f"{place}.columns.{column.name}.of: expected event, got {column.of!r}"
        yield from _feature_problems(schema, column, f"{place}.columns.{column.name}")


def _objective_problems(objective: ObjectiveSpec) -> Iterable[str]:
    place = f"objectives.{objective.name}"
    if objective.kind != "binary":
        yield f"{place}.kind: only binary can be trained so far, got {objective.kind!r}"
    if objective.delay_column is not None:
        yield f"{place}.delay_column: delays are not modelled so far; leave it out"
    if objective.attribution_window_ms < 0:
        window_ms = objective.attribution_window_ms
        yield f"{place}.attribution_window_ms: expected 0 or more, got {window_ms}"


def _vertical_problems(schema: Schema, vertical: VerticalSpec) -> Iterable[str]:
    place = f"verticals.{vertical.name}"
    item_categories = {f.name for f in schema.features_of("item") if f.kind == "categorical"}
    checks = {
        "surfaces": (vertical.surfaces, set(schema.surfaces)),
        "objectives": (vertical.objectives, {o.name for o in schema.objectives}),
        "features": (vertical.features, {f.name for f in schema.features}),
        "match_features": (vertical.match_features, item_categories),
        "similarity_feature": ((vertical.similarity_feature,), item_categories),
        "memory_source": (
            (vertical.memory_source,),
            {s.name for s in schema.sources if s.item_column is not None},
        ),
    }
    for key, (names, known) in checks.items():
        for name in names:
            if name not in known:
                yield f"{place}.{key}: expected one of {sorted(known)}, got {name!r}"
        if key != "match_features" or names:
            yield from _list_problems(names, f"{place}.{key}")
    if not item_categories.intersection(vertical.features):
        yield (
            f"{place}.features: expected at least one category of items, or all candidates would "
            f"look alike; there are {sorted(item_categories)}"
        )
    for key in ("memory_length", "max_candidates", "latency_budget_ms", "soft_ttl_ms"):
        if getattr(vertical, key) < 1:
            yield f"{place}.{key}: expected 1 or more, got {getattr(vertical, key)}"
    if vertical.hard_ttl_ms < vertical.soft_ttl_ms:
        yield f"{place}.hard_ttl_ms: expected soft_ttl_ms or more, got {vertical.hard_ttl_ms}"
