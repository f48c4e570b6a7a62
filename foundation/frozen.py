"""A trained foundation model that no longer changes: it scores examples, and names its space."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from pydantic import TypeAdapter

from features.arrays import FloatArray
from features.dataset import LogDataset
from features.histories import HistoryIndex
from features.packed import VectorDtype
from foundation.assembly import build_model, make_builder
from foundation.batches import Examples
from foundation.model.config import ModelConfig
from foundation.model.foundation import FoundationModel
from foundation.training.checkpoint import FINAL, load_checkpoint

_MICRO_BATCH_ROWS = 512


@dataclass(frozen=True, kw_only=True)
class FmScores:
    """What the foundation model says of n examples.

    Shapes:
        p: objective to (n,), float32 probabilities as trained.
        z: (n, dim), float32 in [-1, 1].
    """

    p: dict[str, FloatArray]
    z: FloatArray


class FrozenFm:
    """A foundation model for inference only. Open one with :meth:`load`.

    Args:
        model: trained.
        dataset: what it was trained on.
        histories: what it sees of the past; the caller may append to it.
        vector_dtype: of its vectors once packed; part of the space.
    """

    def __init__(
        self,
        model: FoundationModel,
        dataset: LogDataset,
        *,
        histories: HistoryIndex | None = None,
        vector_dtype: VectorDtype = "int4",
    ) -> None:
        self._model = model.eval()
        self._builder = make_builder(dataset, model.config, histories)
        self.dim = model.config.bottleneck_dim
        self.dtype = vector_dtype
        self.fm_version = _weights_hash(model)
        parts = (self.fm_version, dataset.encoder.encoder_id, str(self.dim), vector_dtype)
        self.space_id = hashlib.sha256("/".join(parts).encode()).hexdigest()[:16]

    @classmethod
    def load(
        cls,
        folder: Path,
        dataset: LogDataset,
        *,
        histories: HistoryIndex | None = None,
        vector_dtype: VectorDtype = "int4",
    ) -> FrozenFm:
        """Open the final checkpoint of a run.

        Raises:
            CheckpointError: there is none, it is damaged, or it is of other data.
        """
        schema_id, encoder_id = dataset.schema.schema_id, dataset.encoder.encoder_id
        state, meta = load_checkpoint(
            folder / FINAL, config=None, schema_id=schema_id, encoder_id=encoder_id
        )
        config: ModelConfig = TypeAdapter(ModelConfig).validate_python(meta.config["model"])
        model = build_model(dataset, config)
        model.load_state_dict(state["model"])
        return cls(model, dataset, histories=histories, vector_dtype=vector_dtype)

    @property
    def objectives(self) -> tuple[str, ...]:
        """Names of the probabilities."""
        return self._model.interface.objectives

    def score(
        self, examples: Examples, *, progress: Callable[[float], None] | None = None
    ) -> FmScores:
        """Score examples, in micro-batches in the order given.

        Cost: examples of one user and moment that stand together share the user side.
        """
        logits, vectors = [], []
        with torch.inference_mode():
            for start in range(0, len(examples), _MICRO_BATCH_ROWS):
                part = examples.take(slice(start, start + _MICRO_BATCH_ROWS))
                output = self._model(self._builder.build(part, where=f"examples from {start}"))
                logits.append(output.logits_BA)
                vectors.append(output.z_BD)
                if progress is not None:
                    progress((start + len(part)) / len(examples))
        if not logits:
            empty = np.zeros((0, self.dim), dtype=np.float32)
            return FmScores(p={name: empty[:, 0] for name in self.objectives}, z=empty)
        p_BA = torch.sigmoid(torch.cat(logits).double()).float().numpy()
        return FmScores(
            p={name: p_BA[:, place] for place, name in enumerate(self.objectives)},
            z=torch.cat(vectors).numpy(),
        )


def _weights_hash(model: FoundationModel) -> str:
    digest = hashlib.sha256(repr(model.config).encode())
    for name, weight in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(weight.numpy()).tobytes())
    return digest.hexdigest()[:16]
