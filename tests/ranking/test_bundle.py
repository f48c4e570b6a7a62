import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from features.assembly import AssemblySpec
from features.dataset import LogDataset
from features.encoding import Encoder
from ranking.bundle import Bundle, BundleError, GoldenCase, load_bundle, load_manifest, write_bundle
from ranking.calibration import Platt
from ranking.manifest import Manifest, TensorSpec
from ranking.modelfile import read_metadata


def make_manifest(tiny: LogDataset, **changes: object) -> Manifest:
    spec = AssemblySpec.for_vertical(
        tiny.schema, "home", dim=6, blocks=frozenset({"pairs", "memory"})
    )
    both = {"click": 0.2, "order": 0.1}
    manifest = Manifest(
        schema_id=tiny.schema.schema_id,
        encoder_id=tiny.encoder.encoder_id,
        space_id="0" * 16,
        fm_version="tiny",
        vertical="home",
        objectives=("click", "order"),
        row="base",
        assembly=spec,
        vector_dtype="int4",
        max_candidates=50,
        row_buckets=(2, 50),
        inputs=(TensorSpec(name="item_codes", dtype="int64", shape=(None, 3)),),
        outputs=(TensorSpec(name="logits", dtype="float32", shape=(None, 2)),),
        calibration={"click": Platt(slope=0.9, intercept=-0.1), "order": Platt()},
        prior=both,
        value_weights=both,
        tolerance={"fp32": 1e-5},
        train_window_ms=(1, 2),
        tune_window_ms=(2, 3),
        metrics={"click": {"ne": 0.8, "gauc": None}},
    )
    return replace(manifest, **changes)  # type: ignore[arg-type]


def write_model(path: Path, **stamps: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    graph = onnx.helper.make_graph([], "nothing", [], [])
    file = onnx.helper.make_model(graph, producer_name="x" * 300)
    onnx.helper.set_model_props(file, stamps)
    onnx.save(file, str(path))
    return path


def write(
    tiny: LogDataset, folder: Path, *, stamps: dict[str, str] | None = None, **changes: object
) -> Bundle:
    belonging = {"encoder_id": tiny.encoder.encoder_id, "space_id": "0" * 16}
    model = write_model(
        folder.parent / "exported.onnx", **(belonging if stamps is None else stamps)
    )
    logits = np.array([[0.5, -2.0]], dtype=np.float32)
    case = GoldenCase(inputs={"item_codes": np.array([[3, 4, 5]])}, logits=logits, p=logits * 0.1)
    return write_bundle(
        folder,
        make_manifest(tiny, **changes),
        model=model,
        encoder=tiny.encoder,
        items=tiny.items,
        schema=tiny.folder / "schema.yaml",
        golden=[case],
    )


def test_a_bundle_gives_back_everything_that_was_put_in(tiny: LogDataset, tmp_path: Path) -> None:
    written = write(tiny, tmp_path / "b")

    read = load_bundle(tmp_path / "b")

    expected = make_manifest(tiny, files=read.manifest.files, bundle_id=read.manifest.bundle_id)
    assert read.manifest == written.manifest == expected
    assert read.encoder.encoder_id == tiny.encoder.encoder_id
    np.testing.assert_array_equal(read.items.codes, tiny.items.codes)
    (case,) = read.golden()
    np.testing.assert_array_equal(case.inputs["item_codes"], [[3, 4, 5]])
    np.testing.assert_array_equal(case.logits, np.array([[0.5, -2.0]], dtype=np.float32))


def test_the_manifest_says_how_vectors_are_stored(tiny: LogDataset, tmp_path: Path) -> None:
    manifest = write(tiny, tmp_path / "b").manifest

    assert (manifest.dim, manifest.vector_dtype, manifest.memory_length) == (6, "int4", 4)
    assert (manifest.soft_ttl_ms, manifest.hard_ttl_ms) == (604_800_000, 2_592_000_000)


def test_the_same_content_has_the_same_bundle_id_and_other_content_another(
    tiny: LogDataset, tmp_path: Path
) -> None:
    one, same, other = (
        write(tiny, tmp_path / name / "b", row=row).manifest.bundle_id
        for name, row in (("1", "base"), ("2", "base"), ("3", "kd"))
    )

    assert one == same != other


@pytest.mark.parametrize("name", ["model.onnx", "encoder.json", "items/codes.npy", "golden.npz"])
def test_a_changed_file_is_refused_by_name(tiny: LogDataset, tmp_path: Path, name: str) -> None:
    write(tiny, tmp_path / "b")
    path = tmp_path / "b" / name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))

    with pytest.raises(BundleError, match=f"{name}: expected SHA-256"):
        load_bundle(tmp_path / "b")


@pytest.mark.parametrize("name", ["model.onnx", "schema.yaml", "items/keys.npy"])
def test_a_missing_file_is_refused_by_name(tiny: LogDataset, tmp_path: Path, name: str) -> None:
    write(tiny, tmp_path / "b")
    (tmp_path / "b" / name).unlink()

    with pytest.raises(BundleError, match=f"{name}.*found none"):
        load_bundle(tmp_path / "b")


def test_a_file_that_the_manifest_does_not_know_is_refused(
    tiny: LogDataset, tmp_path: Path
) -> None:
    write(tiny, tmp_path / "b")
    (tmp_path / "b" / "notes.txt").write_text("hello")

    with pytest.raises(
        BundleError, match=r"notes\.txt: a file that manifest\.json does not declare"
    ):
        load_bundle(tmp_path / "b")


def test_an_edited_manifest_is_refused(tiny: LogDataset, tmp_path: Path) -> None:
    write(tiny, tmp_path / "b")
    path = tmp_path / "b" / "manifest.json"
    document = json.loads(path.read_text())
    document["calibration"]["click"]["slope"] = 2.0
    path.write_text(json.dumps(document))

    with pytest.raises(BundleError, match="bundle_id: its content amounts to"):
        load_manifest(tmp_path / "b")


@pytest.mark.parametrize(
    ("text", "found"),
    [("{", "not a manifest"), ("[]", "format"), ('{"format": 99}', "expected 1, got 99")],
)
def test_a_damaged_manifest_is_refused(
    tiny: LogDataset, tmp_path: Path, text: str, found: str
) -> None:
    write(tiny, tmp_path / "b")
    (tmp_path / "b" / "manifest.json").write_text(text)

    with pytest.raises(BundleError, match=found):
        load_bundle(tmp_path / "b")


def test_an_encoder_of_another_run_is_refused_before_anything_is_published(
    tiny: LogDataset, tmp_path: Path
) -> None:
    with pytest.raises(BundleError, match=r"encoder\.json, encoder_id: expected f"):
        write(tiny, tmp_path / "b", encoder_id="f" * 16)

    assert [path.name for path in tmp_path.iterdir()] == ["exported.onnx"]


def test_an_encoder_swapped_with_its_hash_is_still_refused(
    tiny: LogDataset, tmp_path: Path
) -> None:
    manifest = write(tiny, tmp_path / "b").manifest
    Encoder(tiny.schema.schema_id, {}).save(tmp_path / "b" / "encoder.json")
    digest = hashlib.sha256((tmp_path / "b" / "encoder.json").read_bytes()).hexdigest()
    forged = manifest.with_files({**manifest.files, "encoder.json": digest})
    (tmp_path / "b" / "manifest.json").write_text(forged.to_json())

    with pytest.raises(BundleError, match=r"encoder\.json, encoder_id"):
        load_bundle(tmp_path / "b")


@pytest.mark.parametrize("name", ["space_id", "encoder_id"])
def test_a_model_of_another_space_or_vocabulary_is_refused_by_name(
    tiny: LogDataset, tmp_path: Path, name: str
) -> None:
    belonging = {"encoder_id": tiny.encoder.encoder_id, "space_id": "0" * 16}

    with pytest.raises(BundleError, match=rf"model\.onnx, {name}: expected .*, got {'e' * 16}"):
        write(tiny, tmp_path / "b", stamps={**belonging, name: "e" * 16})
    with pytest.raises(BundleError, match=rf"model\.onnx, {name}: expected .*, got None"):
        write(tiny, tmp_path / "c", stamps={k: v for k, v in belonging.items() if k != name})


def test_a_schema_of_another_version_is_refused_by_name(tiny: LogDataset, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"schema\.yaml, schema_id: expected f"):
        write(tiny, tmp_path / "b", schema_id="f" * 16)


def test_metadata_of_a_model_is_what_was_stamped(tmp_path: Path) -> None:
    stamps = {"encoder_id": "a" * 200, "space_id": "", "note": "häuser"}
    path = write_model(tmp_path / "m.onnx", **stamps)

    assert read_metadata(path) == stamps


@pytest.mark.parametrize("data", [b"a model", b"\xff" * 20, b"\x08", b"\x0b", b"\x72\x03\x0a\x01"])
def test_a_file_that_is_no_model_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(data)

    with pytest.raises(BundleError, match=r"m\.onnx: expected an ONNX model"):
        read_metadata(tmp_path / "m.onnx")


def test_an_objective_without_calibration_is_refused(tiny: LogDataset, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="calibration: expected"):
        write(tiny, tmp_path / "b", calibration={"click": Platt()})


def test_a_bundle_is_never_overwritten_by_another(tiny: LogDataset, tmp_path: Path) -> None:
    first = write(tiny, tmp_path / "b")

    with pytest.raises(BundleError, match="bundles are never changed"):
        write(tiny, tmp_path / "b", row="kd")

    assert write(tiny, tmp_path / "b").manifest == first.manifest


def test_a_loaded_bundle_keeps_its_items_whatever_becomes_of_the_files(
    tiny: LogDataset, tmp_path: Path
) -> None:
    bundle = write(tiny, tmp_path / "b")
    codes = bundle.items.codes.copy()
    for path in (tmp_path / "b" / "items").glob("*.npy"):
        content = path.read_bytes()
        path.write_bytes(content[:-32] + b"\xff" * 32)
        path.write_bytes(b"")  # of a file that was mapped, reading on would end the process

    np.testing.assert_array_equal(bundle.items.codes, codes)
