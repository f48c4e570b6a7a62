from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from features.errors import SchemaError
from features.schema import Schema, load_schema, parse_schema
from tests.features.tiny_log import SCHEMA

ROOT = Path(__file__).parents[2]
Change = Callable[[dict[str, Any]], object]


def document() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(SCHEMA)
    return found


def parse(change: Change = lambda d: None) -> Schema:
    changed = document()
    change(changed)
    return parse_schema(changed, where="schema.yaml")


def refusal(change: Change) -> str:
    with pytest.raises(SchemaError) as caught:
        parse(change)
    return str(caught.value)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "schema.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_schema_of_complete_journey_loads() -> None:
    schema = load_schema(ROOT / "foundation/datasets/complete_journey/schema.yaml")

    assert schema.name == "complete-journey"
    assert schema.source("purchase").max_length == 512
    assert schema.vertical("shelf").objectives == ("purchase", "coupon_used")


def test_what_is_written_is_what_is_held(tmp_path: Path) -> None:
    schema = load_schema(written(tmp_path, SCHEMA))

    assert (schema.user.column, schema.user.dtype) == ("user_id", "int64")
    assert [f.name for f in schema.features_of("item")] == ["item_id", "kind", "brand", "price"]
    assert schema.feature("price").maximum == 100.0
    arrival = schema.source("purchase").arrival
    assert arrival is not None
    assert arrival.column == "arrived"
    assert schema.vocabulary("brand").num_buckets == 16


def test_the_surface_is_a_context_feature_without_being_declared() -> None:
    schema = parse()

    assert [f.name for f in schema.features_of("context")] == ["slot", "surface"]
    assert schema.feature("surface").column == schema.impressions.surface_column
    assert schema.vocabulary("surface").policy == "fitted"


def test_the_id_stays_when_keys_change_places_or_comments_come(tmp_path: Path) -> None:
    shuffled = yaml.safe_dump(document(), sort_keys=True)

    expected = load_schema(written(tmp_path, SCHEMA)).schema_id

    assert len(expected) == 16
    assert load_schema(written(tmp_path, shuffled)).schema_id == expected
    assert load_schema(written(tmp_path, f"\ufeff# hello\n{SCHEMA}")).schema_id == expected
    assert parse(lambda d: d["vocabularies"][0].update(min_count=1)).schema_id == expected


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(version=2),
        lambda d: d["features"][3].update(maximum=99),
        lambda d: d["sources"][0].update(max_length=17),
        lambda d: d["features"].reverse(),
    ],
)
def test_the_id_changes_with_the_content(change: Change) -> None:
    assert parse(change).schema_id != parse().schema_id


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d.update(colour=1), "schema.yaml: colour: Unexpected keyword argument"),
        (lambda d: d["user"].update(typ="x"), "user.typ: Unexpected keyword argument"),
        (lambda d: d["sources"][0].update(maxlength=1), "sources.purchase.maxlength: Unexpected"),
        (lambda d: d.pop("items"), "schema.yaml: items: Field required"),
        (lambda d: d["sources"][1].pop("time"), "sources.contact.time: Field required"),
        (lambda d: d["user"].update(dtype="int32"), "user.dtype: Input should be 'int64' or"),
        (lambda d: d.update(version="1"), "version: Input should be a valid integer, got '1'"),
        (lambda d: d["sources"][0].update(max_length=True), "sources.purchase.max_length: Input"),
        (lambda d: d["sources"][0].update(max_length=1.5), "sources.purchase.max_length: Input"),
        (lambda d: d["features"][3].update(minimum="0"), "features.price.minimum: Input should be"),
        (lambda d: d["features"][1].update(column=7), "features.kind.column: Input should be a"),
        (lambda d: d["time"].update(unit="sec"), "time.unit: Input should be 's', 'ms'"),
        (lambda d: d.update(features=None), "features: Input should be a valid"),
        (lambda d: d["impressions"].update(surfaces="feed"), "impressions.surfaces: Input should"),
    ],
)
def test_wrong_keys_and_types_stop_with_their_place(change: Change, told: str) -> None:
    assert told in refusal(change)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d["features"][1].update(vocabulary="kin"), "features.kind.vocabulary: expected"),
        (lambda d: d["features"][1].pop("vocabulary"), "features.kind.vocabulary: expected one of"),
        (lambda d: d["features"][1].update(of="event"), "features.kind.of: expected user, item or"),
        (lambda d: d["verticals"][0].update(surfaces=["fed"]), "verticals.home.surfaces: expected"),
        (lambda d: d["verticals"][0].update(objectives=["x"]), "verticals.home.objectives: expect"),
        (lambda d: d["verticals"][0].update(objectives=[]), "verticals.home.objectives: expected"),
        (lambda d: d["verticals"][0].update(features=["x"]), "verticals.home.features: expected o"),
        (
            lambda d: d["verticals"][0].update(match_features=["price"]),
            "verticals.home.match_features: expected one of ['brand', 'item_id', 'kind']",
        ),
        (
            lambda d: d["verticals"][0].update(memory_source="contact"),
            "verticals.home.memory_source: expected one of ['purchase'], got 'contact'",
        ),
        (
            lambda d: d["verticals"][0].update(features=["slot", "age"]),
            "verticals.home.features: expected at least one category of items",
        ),
        (
            lambda d: d["verticals"][0].update(similarity_feature="age"),
            "verticals.home.similarity_feature: expected one of",
        ),
        (
            lambda d: d["sources"][1]["columns"][0].update(vocabulary="x"),
            "sources.contact.columns.channel.vocabulary: expected one of",
        ),
    ],
)
def test_names_that_point_nowhere_stop_with_their_place(change: Change, told: str) -> None:
    assert told in refusal(change)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda d: d["features"].append(d["features"][0]),
            "features: the name 'item_id' is used 2",
        ),
        (lambda d: d["sources"].append(d["sources"][0]), "sources: the name 'purchase' is used 2"),
        (
            lambda d: d["sources"][0]["columns"].append(d["sources"][0]["columns"][0]),
            "sources.purchase.columns: the name 'quantity' is used 2 times",
        ),
        (
            lambda d: d["vocabularies"].append({"name": "surface", "policy": "fitted"}),
            "vocabularies: 'surface' is there without being declared",
        ),
        (lambda d: d["impressions"]["surfaces"].append("feed"), "impressions.surfaces: 'feed' is"),
        (lambda d: d["verticals"][0]["features"].append("kind"), "verticals.home.features: 'kind'"),
        (lambda d: d["verticals"][0].update(name="a/b"), "verticals: expected a name of letters"),
    ],
)
def test_names_that_repeat_or_cannot_be_names_stop(change: Change, told: str) -> None:
    assert told in refusal(change)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d["features"][3].update(minimum=-1), "features.price.minimum: log1p needs one"),
        (
            lambda d: d["features"][3].pop("minimum"),
            "features.price.minimum: log1p needs one above",
        ),
        (lambda d: d["features"][3].update(default=101), "features.price.default: expected one in"),
        (
            lambda d: d["features"][3].update(minimum=200),
            "features.price.minimum: expected at most",
        ),
        (
            lambda d: d["features"][3].update(vocabulary="kind"),
            "features.price.vocabulary: a numer",
        ),
        (
            lambda d: d["features"][3].update(maximum=float("inf")),
            "features.price.maximum: expecte",
        ),
        (lambda d: d["features"][1].update(default=1), "features.kind.default: a categorical"),
        (lambda d: d["features"][5].update(column="click"), "'click' is the label of objective"),
        (lambda d: d["vocabularies"][2].update(num_buckets=0), "vocabularies.brand: hashed needs"),
        (lambda d: d["vocabularies"][0].update(num_buckets=9), "vocabularies.item_id.num_buckets"),
        (lambda d: d["vocabularies"][0].update(min_count=0), "vocabularies.item_id.min_count: exp"),
        (lambda d: d["objectives"][0].update(kind="value"), "objectives.click.kind: only binary"),
        (lambda d: d["objectives"][0].update(delay_column="x"), "objectives.click.delay_column"),
        (lambda d: d["sources"][0].update(max_length=0), "sources.purchase.max_length: expected 1"),
        (
            lambda d: d["sources"][0]["time"].update(timezone="UTC"),
            "sources.purchase.time.timezone",
        ),
        (lambda d: d["verticals"][0].update(hard_ttl_ms=1), "verticals.home.hard_ttl_ms: expected"),
        (
            lambda d: d["verticals"][0].update(max_candidates=0),
            "verticals.home.max_candidates: exp",
        ),
    ],
)
def test_declarations_without_sense_stop_with_their_place(change: Change, told: str) -> None:
    assert told in refusal(change)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    def change(d: dict[str, Any]) -> None:
        d["features"][1].update(vocabulary="kin")
        d["sources"][0].update(max_length=0)

    lines = refusal(change).splitlines()

    assert len(lines) == 2
    assert all(line.startswith("schema.yaml: ") for line in lines)


def test_a_key_given_twice_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, SCHEMA.replace("version: 1\n", "version: 1\nversion: 2\n"))

    with pytest.raises(SchemaError, match=r"(?s)'version' is given twice.*line 3"):
        load_schema(path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"name: [", "schema.yaml"),
        (b"name: caf\xe9", "0xe9"),
        (b"", "expected a mapping, got NoneType"),
        (b"- a", "expected a mapping, got list"),
    ],
)
def test_a_file_that_is_no_schema_is_named(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "schema.yaml").write_bytes(content)

    with pytest.raises(SchemaError, match=told) as caught:
        load_schema(tmp_path / "schema.yaml")
    assert str(tmp_path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"nowhere\.yaml.*No such file"):
        load_schema(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("what", ["feature", "vocabulary", "source", "objective", "vertical"])
def test_asking_for_an_unknown_name_lists_the_known_ones(what: str) -> None:
    with pytest.raises(SchemaError, match=rf"{what} 'nope': expected one of \[.+\]"):
        getattr(parse(), what)("nope")
