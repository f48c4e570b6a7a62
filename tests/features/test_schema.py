"""A schema document is read whole or refused with the place of what is wrong."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from features.errors import SchemaError
from features.schema import load_schema, parse_schema
from tests.features.tiny_log import SCHEMA

Document = dict[str, Any]
COMPLETE_JOURNEY = (
    Path(__file__).parents[2] / "foundation" / "datasets" / "complete_journey" / "schema.yaml"
)


@pytest.fixture
def document() -> Document:
    loaded: Document = yaml.safe_load(SCHEMA)
    return loaded


def test_the_schema_that_users_copy_loads() -> None:
    schema = load_schema(COMPLETE_JOURNEY)
    assert schema.verticals[0].objectives == ("purchase", "coupon_used")
    assert schema.feature("surface").of == "context"


def test_the_id_changes_with_the_content_and_with_nothing_else(document: Document) -> None:
    schema = parse_schema(document, where="x")
    turned = dict(reversed(document.items()))
    assert parse_schema(turned, where="y").schema_id == schema.schema_id
    assert len(schema.schema_id) == 16
    changed = copy.deepcopy(document)
    changed["verticals"][0]["memory_length"] = 5
    assert parse_schema(changed, where="x").schema_id != schema.schema_id


def test_parts_are_found_by_name_and_by_owner(document: Document) -> None:
    schema = parse_schema(document, where="x")
    assert [f.name for f in schema.features_of("item")] == ["item_id", "kind", "brand", "price"]
    assert schema.source("purchase").item_column == "item_id"
    with pytest.raises(SchemaError, match=r"vertical 'nowhere': expected one of \['home'\]"):
        schema.vertical("nowhere")


CHANGES: list[tuple[Callable[[Document], object], str]] = [
    (lambda d: d.update(colour="red"), r"colour.*"),
    (lambda d: d["user"].update(dtype="float"), r"user\.dtype"),
    (lambda d: d.pop("item"), r"item: "),
    (lambda d: d["time"].update(unit="hours"), r"time\.unit"),
    (lambda d: d["features"][0].update(kolumn="x"), r"features.*kolumn"),
    (lambda d: d["features"][0].update(vocabulary="none"), r"features\.item_id\.vocabulary"),
    (lambda d: d["features"][3].update(minimum=-1), r"features\.price\.minimum"),
    (lambda d: d["features"][3].update(vocabulary="kind"), r"a numeric feature has none"),
    (lambda d: d["features"][0].update(of="event"), r"features\.item_id\.of"),
    (lambda d: d["features"].append(dict(d["features"][0])), r"'item_id' is used 2 times"),
    (lambda d: d["vocabularies"][2].update(num_buckets=0), r"vocabularies\.brand"),
    (lambda d: d["sources"][0].update(max_length=0), r"sources\.purchase\.max_length"),
    (lambda d: d["verticals"][0].update(surfaces=["moon"]), r"verticals\.home\.surfaces.*'moon'"),
    (lambda d: d["verticals"][0].update(objectives=[]), r"verticals\.home\.objectives"),
    (lambda d: d["verticals"][0].update(features=["nose"]), r"verticals\.home\.features.*'nose'"),
    (lambda d: d["verticals"][0].update(match_features=["price"]), r"match_features.*'price'"),
    (lambda d: d["verticals"][0].update(memory_source="contact"), r"memory_source.*'contact'"),
    (lambda d: d["verticals"][0].update(hard_ttl_ms=1), r"verticals\.home\.hard_ttl_ms"),
    (lambda d: d["verticals"][0].update(memory_length=0), r"verticals\.home\.memory_length"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES, ids=[said for _, said in CHANGES])
def test_a_mistake_is_refused_with_file_and_place(
    document: Document, change: Callable[[Document], object], said: str
) -> None:
    change(document)
    with pytest.raises(SchemaError, match=rf"my\.yaml: (.*\n)*.*{said}"):
        parse_schema(document, where="my.yaml")


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "a: [", "\x00"])
def test_a_file_that_holds_no_mapping_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "schema.yaml").write_text(text)
    with pytest.raises(SchemaError, match=r"schema\.yaml"):
        load_schema(tmp_path / "schema.yaml")


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"schema\.yaml"):
        load_schema(tmp_path / "schema.yaml")
