"""What a feature schema is made of, as frozen objects; `features.schema` reads them."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable
from typing import Literal, Protocol, TypeVar

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from features.errors import SchemaError
from features.ids import IdDtype
from features.times import TimeSpec

_STRICT = ConfigDict(extra="forbid")
SURFACE = "surface"


class TableFiles(Protocol):
    """Where a table is and how its text is written.

    Attributes:
        path: a CSV, Parquet or Arrow file, a folder of them, or a pattern such as `log/*.csv`.
        encoding: of CSV text.
        delimiter: of CSV fields.
    """

    @property
    def path(self) -> str: ...  # noqa: D102 (said above)
    @property
    def encoding(self) -> str: ...  # noqa: D102
    @property
    def delimiter(self) -> str: ...  # noqa: D102


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

    A feature of kind `vector` with `dim: 8` is read once and becomes eight numbers, `name.0` to
    `name.7`, each a feature of its own with an `element`.

    Attributes:
        of: item, user, context (the impression), or event (a column of a source).
        minimum, maximum: the declared domain of a numeric feature, before the transform.
        default: a missing number's value, before the transform; none declared: missing is an error.
        outside: what becomes of a number outside the domain: it stops the load, or is moved to
            the nearest bound and counted.
        element: place in the vector that the column holds; written by the reader of the schema.
        dim: length of that vector.
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
    outside: Literal["stop", "clip"] = "stop"
    element: int | None = None
    dim: int | None = None


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
    encoding: str = "utf-8"
    delimiter: str = ","


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class ObjectiveSpec:
    """Something to predict, with the label's column and window.

    Attributes:
        bad_labels: what becomes of a row whose label is missing or neither 0 nor 1: it stops the
            load, or the row is left out and counted. It is never taken for a 0.
    """

    name: str
    kind: Literal["binary", "value"]
    label_column: str
    attribution_window_ms: int
    delay_column: str | None = None
    weight_column: str | None = None
    bad_labels: Literal["stop", "drop"] = "stop"


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
    encoding: str = "utf-8"
    delimiter: str = ","


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class EntitySpec:
    """A table with one row per user or item.

    Attributes:
        id_column: of the id in this table, where it has another name than in the impressions.
    """

    path: str
    id_column: str | None = None
    encoding: str = "utf-8"
    delimiter: str = ","


class Named(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str: ...  # noqa: D102 (said above)


N = TypeVar("N", bound=Named)


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Schema:
    """A whole feature schema. Build it with :func:`load_schema`."""

    name: str
    version: int
    user: IdSpec
    item: IdSpec
    time: TimeSpec
    impressions: ImpressionsSpec
    users: EntitySpec | None = None
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

    def id_column(self, owner: Literal["user", "item"]) -> str:
        """The column of the id in the table of users or items."""
        spec, table = (self.item, self.items) if owner == "item" else (self.user, self.users)
        own = None if table is None else table.id_column
        return spec.column if own is None else own

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
