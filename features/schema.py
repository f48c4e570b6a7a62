"""The feature schema: the one document a user writes, as frozen objects with a hash.

`schema.yaml` is read once, checked whole, and never guessed at: unknown keys, wrong types and
names that point nowhere fail with their place in the document. The hash of the content,
`schema_id`, is stamped on every artefact that was made from it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from features.documents import read_yaml
from features.errors import SchemaError
from features.ids import IdDtype
from features.times import TimeSpec, time_problems

_STRICT = ConfigDict(extra="forbid")
# Names become file names, store keys and columns of reports.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

SURFACE = "surface"


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class IdSpec:
    """An id column and its type."""

    column: str
    dtype: IdDtype


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class VocabularySpec:
    """How values become codes: `fitted` on the training windows, or `hashed` into buckets."""

    name: str
    policy: Literal["fitted", "hashed"]
    min_count: int = 1
    num_buckets: int = 0


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class FeatureSpec:
    """One feature: whose it is, where it is read, and how it is encoded.

    Attributes:
        of: item, user, context (the impression), or event (a column of a source).
        minimum, maximum: the declared domain of a numeric feature, before the transform.
        default: a missing number's value, before the transform; none declared: missing is an error.
    """

    name: str
    kind: Literal["categorical", "numeric"]
    column: str
    of: Literal["user", "item", "context", "event"] = "event"
    vocabulary: str | None = None
    transform: Literal["identity", "log1p"] = "identity"
    minimum: float | None = None
    maximum: float | None = None
    default: float | None = None


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class SourceSpec:
    """A table of events with columns of its own."""

    name: str
    path: str
    user_column: str
    time: TimeSpec
    max_length: int
    item_column: str | None = None
    arrival: TimeSpec | None = None
    columns: tuple[FeatureSpec, ...] = ()


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class ObjectiveSpec:
    """Something to predict, with the label's column and window."""

    name: str
    kind: Literal["binary", "value"]
    label_column: str
    attribution_window_ms: int
    delay_column: str | None = None
    weight_column: str | None = None


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class VerticalSpec:
    """One small model that serves: where, for what, and what it may see.

    Attributes:
        objectives: ranked by the first.
        match_features: item features by which a candidate is compared with events.
        similarity_feature: items that share it may stand in for one another's missing vector.
        memory_source: the events that a LoopFM memory is made of.
    """

    name: str
    surfaces: tuple[str, ...]
    objectives: tuple[str, ...]
    features: tuple[str, ...]
    match_features: tuple[str, ...]
    similarity_feature: str
    memory_source: str
    memory_length: int
    max_candidates: int
    latency_budget_ms: int
    soft_ttl_ms: int
    hard_ttl_ms: int


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class ImpressionsSpec:
    """The impression table and the columns every impression has."""

    path: str
    request_column: str
    example_column: str
    surface_column: str
    surfaces: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class EntitySpec:
    """A table with one row per user or item."""

    path: str


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Schema:
    """A whole feature schema. Build it with :func:`load_schema`."""

    name: str
    version: int
    user: IdSpec
    item: IdSpec
    time: TimeSpec
    impressions: ImpressionsSpec
    users: EntitySpec
    items: EntitySpec
    vocabularies: tuple[VocabularySpec, ...]
    features: tuple[FeatureSpec, ...]
    sources: tuple[SourceSpec, ...]
    objectives: tuple[ObjectiveSpec, ...]
    verticals: tuple[VerticalSpec, ...]

    @functools.cached_property
    def schema_id(self) -> str:
        """Sixteen hexadecimal digits of the content's SHA-256."""
        content = json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def surfaces(self) -> tuple[str, ...]:
        """The surfaces of the impressions."""
        return self.impressions.surfaces

    def feature(self, name: str) -> FeatureSpec:
        """The feature of this name."""
        return _named(self.features, name, "feature")

    def vocabulary(self, name: str) -> VocabularySpec:
        """The vocabulary of this name."""
        return _named(self.vocabularies, name, "vocabulary")

    def source(self, name: str) -> SourceSpec:
        """The event source of this name."""
        return _named(self.sources, name, "source")

    def objective(self, name: str) -> ObjectiveSpec:
        """The objective of this name."""
        return _named(self.objectives, name, "objective")

    def vertical(self, name: str) -> VerticalSpec:
        """The vertical of this name."""
        return _named(self.verticals, name, "vertical")

    def features_of(self, owner: Literal["user", "item", "context"]) -> tuple[FeatureSpec, ...]:
        """The features of users, of items or of the context, in the order of the document."""
        return tuple(feature for feature in self.features if feature.of == owner)


def _named(members: Iterable[N], name: str, what: str) -> N:
    for member in members:
        if member.name == name:
            return member
    known = sorted(member.name for member in members)
    raise SchemaError(f"{what} {name!r}: expected one of {known}")


def load_schema(path: Path) -> Schema:
    """Read and check `schema.yaml`.

    Raises:
        SchemaError: the file is missing or not YAML, or everything that is wrong with it and where.
    """
    try:
        document = read_yaml(path)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SchemaError(f"{path}: {error}") from error
    return parse_schema(document, where=str(path))


def parse_schema(document: Any, *, where: str) -> Schema:
    """Check a document that was read already; `where` names it in errors.

    Raises:
        SchemaError: one line for each thing that is wrong, with its place in the document.
    """
    if not isinstance(document, dict):
        raise SchemaError(f"{where}: expected a mapping, got {type(document).__name__}")
    document = {**document, "features": _with_surface(document.get("features"), document)}
    document["vocabularies"] = _with_surface_vocabulary(document.get("vocabularies"))
    try:
        # As JSON, where a list may stand for a tuple and yet no type is taken for another.
        content = json.dumps(document, default=str)
        schema: Schema = TypeAdapter(Schema).validate_json(content, strict=True)
    except ValidationError as error:
        raise SchemaError(_explain(error, document, where)) from error
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{where}: {error}") from error
    problems = list(_problems(schema))
    if problems:
        raise SchemaError("\n".join(f"{where}: {problem}" for problem in problems))
    return schema


def _with_surface(features: Any, document: dict[str, Any]) -> Any:
    """Every impression has a surface, so it is a context feature without being declared."""
    impressions = document.get("impressions")
    if not isinstance(features, list) or not isinstance(impressions, dict):
        return features
    column = impressions.get("surface_column")
    if not isinstance(column, str):
        return features
    surface = {"name": SURFACE, "of": "context", "kind": "categorical", "vocabulary": SURFACE}
    return [*features, {**surface, "column": column}]


def _with_surface_vocabulary(vocabularies: Any) -> Any:
    if not isinstance(vocabularies, list):
        return vocabularies
    return [*vocabularies, {"name": SURFACE, "policy": "fitted"}]


def _explain(error: ValidationError, document: dict[str, Any], where: str) -> str:
    lines = []
    for fault in error.errors(include_url=False):
        got = "" if fault["type"] in {"missing", "dataclass_type"} else f", got {fault['input']!r}"
        lines.append(f"{where}: {_place(fault['loc'], document)}: {fault['msg']}{got}")
    return "\n".join(lines)


def _place(steps: tuple[int | str, ...], document: Any) -> str:
    """Name a place as a reader would: members of a list by their name where they have one."""
    words, here = [], document
    for step in steps:
        try:
            here = here[step]
        except (KeyError, IndexError, TypeError):
            here = None
        named = isinstance(step, int) and isinstance(here, dict) and "name" in here
        words.append(str(here["name"]) if named else str(step))
    return ".".join(words) or "document"


def _problems(schema: Schema) -> Iterable[str]:
    """What the types cannot say: names that repeat or point nowhere, senseless numbers."""
    yield from _name_problems(schema)
    yield from _list_problems(schema.surfaces, "impressions.surfaces")
    yield from time_problems(schema.time, "time")
    for vocabulary in schema.vocabularies:
        yield from _vocabulary_problems(vocabulary)
    for feature in schema.features:
        place = f"features.{feature.name}"
        if feature.of == "event":
            yield f"{place}.of: expected user, item or context, got {feature.of!r}"
        yield from _feature_problems(schema, feature, place)
    yield from _outcome_problems(schema)
    for source in schema.sources:
        yield from _source_problems(schema, source)
    for objective in schema.objectives:
        yield from _objective_problems(objective)
    for vertical in schema.verticals:
        yield from _vertical_problems(schema, vertical)


def _name_problems(schema: Schema) -> Iterable[str]:
    groups: dict[str, Iterable[_Named]] = {
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
    for key in ("minimum", "maximum", "default"):
        if getattr(feature, key) is not None:
            yield f"{place}.{key}: a categorical feature has none, got {getattr(feature, key)}"


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
    for key in ("memory_length", "max_candidates", "latency_budget_ms", "soft_ttl_ms"):
        if getattr(vertical, key) < 1:
            yield f"{place}.{key}: expected 1 or more, got {getattr(vertical, key)}"
    if vertical.hard_ttl_ms < vertical.soft_ttl_ms:
        yield f"{place}.hard_ttl_ms: expected soft_ttl_ms or more, got {vertical.hard_ttl_ms}"
