"""What a bundle says of itself: `manifest.json` as a frozen object.

Every id that must agree between a model, its vocabulary, its vectors and its schema is here, beside
the hash of every file, so that parts of two bundles cannot be mixed unnoticed.

Errors: BundleError (also ValueError), naming the file and what is wrong with it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from features.assembly import AssemblySpec
from features.errors import GemcutterError
from features.packed import VectorDtype
from ranking.calibration import Platt

FORMAT = 1


class BundleError(GemcutterError, ValueError):
    """A bundle is damaged, incomplete or of parts that do not belong together."""


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One input or output of the model; None in the shape is the number of candidates."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str
    dtype: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A bundle's description.

    Attributes:
        bundle_id: 16 hex digits over everything else here, the files' hashes included.
        schema_id, encoder_id, space_id: what the model was trained with; 16 hex digits each.
        fm_version: the foundation model's checkpoint behind the vectors.
        vertical, objectives: whom it serves and its logits' columns; ranked by the first.
        row: which training row it is, such as "kd+loopfm".
        assembly: its inputs, with memory_length, dim and the times to live.
        vector_dtype: how stored vectors are packed.
        max_candidates: most candidates of one call.
        row_buckets: numbers of candidates that were tested, ascending; at least 2.
        calibration, prior: by objective; prior is the rate of the training window.
        negative_keep_frac: share of negatives kept in training; None means all.
        value_weights: score = sum of weight * p over objectives.
        tolerance: precision to the largest allowed difference of a probability from golden.
        train_window_ms, tune_window_ms: half-open, Unix ms UTC.
        metrics: test-window values by objective and name.
        files: path inside the bundle to SHA-256.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    schema_id: str
    encoder_id: str
    space_id: str
    fm_version: str
    vertical: str
    objectives: tuple[str, ...]
    row: str
    assembly: AssemblySpec
    vector_dtype: VectorDtype
    max_candidates: int
    row_buckets: tuple[int, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    calibration: dict[str, Platt]
    prior: dict[str, float]
    value_weights: dict[str, float]
    tolerance: dict[str, float]
    train_window_ms: tuple[int, int]
    tune_window_ms: tuple[int, int]
    metrics: dict[str, dict[str, float | None]]
    negative_keep_frac: float | None = None
    files: dict[str, str] = field(default_factory=dict)
    bundle_id: str = ""
    format: int = FORMAT

    @property
    def dim(self) -> int:
        """Width of the stored vectors."""
        return self.assembly.dim

    @property
    def memory_length(self) -> int:
        """Entries of a user's memory."""
        return self.assembly.memory_length

    @property
    def soft_ttl_ms(self) -> int:
        """Age from which a vector is stale."""
        return self.assembly.soft_ttl_ms

    @property
    def hard_ttl_ms(self) -> int:
        """Age from which a pair vector is invisible."""
        return self.assembly.hard_ttl_ms

    def with_files(self, files: dict[str, str]) -> Manifest:
        """Give this manifest for files of these hashes, with its bundle_id."""
        described = replace(self, files=files, bundle_id="")
        return replace(described, bundle_id=described.content_id())

    def content_id(self) -> str:
        """Give the bundle_id that the rest of the content amounts to."""
        document = {k: v for k, v in self._document().items() if k != "bundle_id"}
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """Give the text of `manifest.json`."""
        return json.dumps(self._document(), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str, *, where: str) -> Manifest:
        """Read the text of `manifest.json`.

        Raises:
            BundleError: it is no manifest, of another format, or was changed after writing.
        """
        try:
            document = json.loads(text)
            found = document.get("format") if isinstance(document, dict) else None
            if found != FORMAT:
                raise BundleError(f"{where}, format: expected {FORMAT}, got {found!r}")
            manifest = TypeAdapter(cls).validate_python(document)
        except (json.JSONDecodeError, ValidationError) as error:
            raise BundleError(f"{where}: not a manifest: {error}") from error
        expected = manifest.content_id()
        if manifest.bundle_id != expected:
            raise BundleError(
                f"{where}, bundle_id: its content amounts to {expected}, got {manifest.bundle_id}"
            )
        return manifest

    def _document(self) -> dict[str, Any]:
        document: dict[str, Any] = TypeAdapter(Manifest).dump_python(self, mode="json")
        document["assembly"]["blocks"].sort()
        return document
