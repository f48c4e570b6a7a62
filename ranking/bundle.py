"""A bundle: all that a vertical model needs to serve, in one folder that is whole or not there.

    manifest.json   ids, inputs, calibration, and the hash of every other file
    model.onnx      the model; one output, "logits" (N, A); stamped with encoder_id and space_id
    encoder.json    the vocabularies
    items/          the item table
    schema.yaml     the feature schema
    golden.npz      requests with the logits and probabilities that the model must give

Weights, vocabulary, item table, calibration and sampling rate ship together and are checked
together: a bundle of mixed parts is refused before it serves anything.

Must not know: torch, engines.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray
from features.encoding import Encoder
from features.entities import EntityTable
from features.errors import GemcutterError
from features.schema import Schema, load_schema
from ranking.manifest import BundleError, Manifest
from ranking.modelfile import read_metadata

__all__ = ["Bundle", "BundleError", "GoldenCase", "load_bundle", "load_manifest", "write_bundle"]

MANIFEST, MODEL, ENCODER, ITEMS, SCHEMA, GOLDEN = (
    "manifest.json",
    "model.onnx",
    "encoder.json",
    "items",
    "schema.yaml",
    "golden.npz",
)
_REQUIRED = (MODEL, ENCODER, SCHEMA, GOLDEN, f"{ITEMS}/codes.npy", f"{ITEMS}/keys.npy")


@dataclass(frozen=True, kw_only=True, eq=False)
class GoldenCase:
    """One request's inputs and what the model must answer.

    Shapes:
        logits: (N, A), float32. p: (N, A), float32, calibrated.
    """

    inputs: dict[str, npt.NDArray[np.generic]]
    logits: FloatArray
    p: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Bundle:
    """A verified bundle; the item table is mapped from its files."""

    folder: Path
    manifest: Manifest
    schema: Schema
    encoder: Encoder
    items: EntityTable

    @property
    def model_path(self) -> Path:
        """Where the ONNX model lies."""
        return self.folder / MODEL

    def golden(self) -> list[GoldenCase]:
        """Read the requests with known answers.

        Raises:
            BundleError: the file is damaged.
        """
        return _read_golden(self.folder / GOLDEN)


def write_bundle(
    folder: Path,
    manifest: Manifest,
    *,
    model: Path,
    encoder: Encoder,
    items: EntityTable,
    schema: Path,
    golden: Sequence[GoldenCase],
) -> Bundle:
    """Write a bundle beside its place, verify it, and put it there in one step.

    Args:
        folder: must not exist, unless it holds this very bundle.
        manifest: files and bundle_id are filled in here.
        model: the ONNX file to copy.
        encoder: the vocabularies it was trained with.
        items: the item table it was trained with.
        schema: the schema file to copy.
        golden: requests with their answers.

    Raises:
        BundleError: the parts do not belong together, or the folder is taken.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.unfinished-", dir=folder.parent))
    try:
        shutil.copyfile(model, unfinished / MODEL)
        shutil.copyfile(schema, unfinished / SCHEMA)
        encoder.save(unfinished / ENCODER)
        items.save(unfinished / ITEMS)
        _write_golden(unfinished / GOLDEN, golden)
        complete = manifest.with_files(_hash_files(unfinished))
        (unfinished / MANIFEST).write_text(complete.to_json(), encoding="utf-8")
        load_bundle(unfinished)
        if folder.exists():
            _require_same(folder, complete)
        else:
            unfinished.chmod(0o755)
            os.rename(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return load_bundle(folder)


def load_manifest(folder: Path) -> Manifest:
    """Read a bundle's manifest without looking at the other files.

    Raises:
        BundleError: there is none, or it is damaged.
    """
    path = folder / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{path}: expected a bundle's manifest: {error}") from error
    return Manifest.from_json(text, where=str(path))


def load_bundle(folder: Path) -> Bundle:
    """Read a bundle after checking every file and id.

    Raises:
        BundleError: a file is missing, not declared or changed, or a part is of another schema,
            vocabulary or space of vectors; names the file and what differs.

    Cost: one pass over all files for their hashes.
    """
    manifest = load_manifest(folder)
    _require_files(folder, manifest)
    try:
        schema = load_schema(folder / SCHEMA)
        encoder = Encoder.load(folder / ENCODER)
        items = EntityTable.load(folder / ITEMS, mmap=False)
    except GemcutterError as error:
        raise BundleError(f"{folder}: {error}") from error
    bundle = Bundle(folder=folder, manifest=manifest, schema=schema, encoder=encoder, items=items)
    _require_belonging(bundle)
    return bundle


def _hash_files(folder: Path) -> dict[str, str]:
    hashes = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != MANIFEST:
            with path.open("rb") as stream:
                hashes[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return hashes


def _require_files(folder: Path, manifest: Manifest) -> None:
    found = _hash_files(folder)
    for name in sorted({*manifest.files, *_REQUIRED}):
        expected = manifest.files.get(name)
        if expected is None:
            raise BundleError(f"{folder / name}: expected in {MANIFEST} with its hash, got none")
        if name not in found:
            raise BundleError(f"{folder / name}: expected a file of SHA-256 {expected}, found none")
        if found[name] != expected:
            raise BundleError(f"{folder / name}: expected SHA-256 {expected}, got {found[name]}")
    for name in sorted(set(found) - set(manifest.files)):
        raise BundleError(f"{folder / name}: a file that {MANIFEST} does not declare")


def _require_belonging(bundle: Bundle) -> None:
    """Check that the parts were made for one another; their hashes say only that they are whole."""
    manifest, folder = bundle.manifest, bundle.folder
    stamps = read_metadata(bundle.model_path)
    pairs = (
        (SCHEMA, "schema_id", bundle.schema.schema_id, manifest.schema_id),
        (ENCODER, "encoder_id", bundle.encoder.encoder_id, manifest.encoder_id),
        (ENCODER, "schema_id", bundle.encoder.schema_id, manifest.schema_id),
        (MODEL, "space_id", stamps.get("space_id"), manifest.space_id),
        (MODEL, "encoder_id", stamps.get("encoder_id"), manifest.encoder_id),
    )
    for name, what, got, expected in pairs:
        if got != expected:
            raise BundleError(f"{folder / name}, {what}: expected {expected}, got {got}")
    spec, items = manifest.assembly, bundle.items
    needed = {*spec.item_features, *spec.match_features, spec.similarity_feature}
    for have, need in (
        (items.feature_names, needed),
        (items.numeric_names, set(spec.item_numeric_features)),
    ):
        if not need <= set(have):
            raise BundleError(f"{folder / ITEMS}: expected features {sorted(need)}, got {have}")
    for field in ("calibration", "prior", "value_weights"):
        got_names = sorted(getattr(manifest, field))
        if got_names != sorted(manifest.objectives):
            raise BundleError(
                f"{folder / MANIFEST}, {field}: expected {sorted(manifest.objectives)}, "
                f"got {got_names}"
            )


def _require_same(folder: Path, manifest: Manifest) -> None:
    held = load_manifest(folder)
    if held.bundle_id != manifest.bundle_id:
        raise BundleError(
            f"{folder}: expected no bundle, found {held.bundle_id}; bundles are never changed, "
            f"write {manifest.bundle_id} elsewhere"
        )


def _write_golden(path: Path, cases: Sequence[GoldenCase]) -> None:
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    for place, case in enumerate(cases):
        parts = {**case.inputs, "logits": case.logits, "p": case.p}
        arrays |= {f"{place}/{name}": array for name, array in parts.items()}
    with path.open("wb") as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]


def _read_golden(path: Path) -> list[GoldenCase]:
    try:
        with np.load(path) as arrays:
            cases: dict[int, dict[str, npt.NDArray[np.generic]]] = {}
            for name in arrays.files:
                place, _, part = name.partition("/")
                cases.setdefault(int(place), {})[part] = arrays[name]
        return [
            GoldenCase(
                logits=parts.pop("logits"),  # type: ignore[arg-type]
                p=parts.pop("p"),  # type: ignore[arg-type]
                inputs=parts,
            )
            for _, parts in sorted(cases.items())
        ]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise BundleError(f"{path}: expected golden requests: {error}") from error
