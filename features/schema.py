"""The feature schema: the one document a user writes, as frozen objects with a hash.

`schema.yaml` is read once, checked whole, and never guessed at: unknown keys, wrong types and
names that point nowhere fail with their place in the document. The hash of the content,
`schema_id`, is stamped on every artefact that was made from it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from features.documents import read_yaml
from features.errors import SchemaError
from features.schemarules import problems
from features.specs import (
    SURFACE,
    EntitySpec,
    FeatureSpec,
    IdSpec,
    ImpressionsSpec,
    ObjectiveSpec,
    Schema,
    SourceSpec,
    TableFiles,
    VerticalSpec,
    VocabularySpec,
)

__all__ = [
    "SURFACE",
    "EntitySpec",
    "FeatureSpec",
    "IdSpec",
    "ImpressionsSpec",
    "ObjectiveSpec",
    "Schema",
    "SourceSpec",
    "TableFiles",
    "VerticalSpec",
    "VocabularySpec",
    "load_schema",
    "parse_schema",
]

_MAX_DIM = 4096


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
    document = _with_elements(document, where)
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
    found = list(problems(schema))
    if found:
        raise SchemaError("\n".join(f"{where}: {problem}" for problem in found))
    return schema


def _with_elements(document: dict[str, Any], where: str) -> dict[str, Any]:
    """Write each vector as the numbers that it is made of, wherever it is declared or named."""
    dims: dict[str, int] = {}
    document = {**document, "features": _expanded(document.get("features"), dims, where)}
    if isinstance(document.get("sources"), list):
        document["sources"] = [
            {**source, "columns": _expanded(source["columns"], {}, where)}
            if isinstance(source, dict) and "columns" in source
            else source
            for source in document["sources"]
        ]
    if isinstance(document.get("verticals"), list):
        document["verticals"] = [
            {**vertical, "features": _element_names(vertical["features"], dims)}
            if isinstance(vertical, dict) and isinstance(vertical.get("features"), list)
            else vertical
            for vertical in document["verticals"]
        ]
    return document


def _expanded(features: Any, dims: dict[str, int], where: str) -> Any:
    if not isinstance(features, list):
        return features
    found: list[Any] = []
    for feature in features:
        if not isinstance(feature, dict) or feature.get("kind") != "vector":
            found.append(feature)
            continue
        name, dim = feature.get("name"), feature.get("dim")
        if isinstance(dim, bool) or not isinstance(dim, int) or not 1 <= dim <= _MAX_DIM:
            raise SchemaError(f"{where}: {name}.dim: expected 1 to {_MAX_DIM}, got {dim!r}")
        dims[str(name)] = dim
        found += [
            {**feature, "name": f"{name}.{place}", "kind": "numeric", "element": place}
            for place in range(dim)
        ]
    return found


def _element_names(names: list[Any], dims: dict[str, int]) -> list[Any]:
    return [
        word
        for name in names
        for word in ([f"{name}.{i}" for i in range(dims[name])] if name in dims else [name])
    ]


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
