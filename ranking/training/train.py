"""The training loop of one vertical model: many passes, stopped by the tune window.

Distillation needs many passes over the logged rows, so the number of passes is the tune window's to
say and not the recipe's. Batches are whole requests, so that the user side is computed once each.

Must not know: rows of the comparison, the test window.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from features.arrays import FloatArray, IntArray
from features.metrics import normalized_entropy
from ranking.calibration import sigmoid
from ranking.training.dataset import VerticalExamples
from ranking.training.losses import DistillConfig, training_loss
from ranking.training.model import FeatureTables, ModelConfig, VerticalModel

_EVALUATED_ROWS = 4096


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """How long and how fast.

    Attributes:
        batch_requests: whole requests in a batch.
        max_epochs, patience: passes at most, and passes without a better tune window.
        average_frac: share of the running mean of weights kept at each step; the mean is what is
            evaluated and served.
    """

    learning_rate: float = 2e-3
    weight_decay: float = 1e-2
    embedding_weight_decay: float = 1e-1
    batch_requests: int = 32
    max_epochs: int = 12
    patience: int = 3
    average_frac: float = 0.98


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """Everything that decides a model, besides the rows."""

    model: ModelConfig = field(default_factory=ModelConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    distill: DistillConfig | None = None
    seed: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """A trained model, in evaluation mode, and how it got there.

    Attributes:
        tune_ne: of the first objective after each pass, not yet calibrated.
    """

    model: VerticalModel
    tune_ne: tuple[float, ...]
    wall_s: float


class Batches:
    """Rows of whole requests as tensors.

    Args:
        examples: rows.
        blocks: inputs of other blocks are left out.
    """

    def __init__(self, examples: VerticalExamples, blocks: frozenset[str]) -> None:
        unused = {"memory": "memory", "pairs": "pair"}
        prefixes = tuple(prefix for block, prefix in unused.items() if block not in blocks)
        if "memory" not in blocks:
            prefixes += ("item_match",)

        def tensors(
            arrays: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]],
        ) -> dict[str, Tensor]:
            return {
                name: torch.from_numpy(array)
                for name, array in arrays.items()
                if not name.startswith(prefixes)
            }

        self._user_side, self._row_side = tensors(examples.user_side), tensors(examples.row_side)
        self._request_index = examples.request_index
        num_requests = int(examples.request_index[-1]) + 1
        self._starts = np.searchsorted(examples.request_index, np.arange(num_requests + 1))
        self._targets = [
            torch.from_numpy(array) for array in (examples.labels, examples.p_f, examples.weights)
        ]

    def take(self, requests: IntArray) -> Batch:
        """Give the rows of these requests."""
        starts, sizes = self._starts[requests], np.diff(self._starts)[requests]
        local = np.repeat(np.arange(len(requests)), sizes)
        offsets = np.cumsum(sizes) - sizes
        rows = np.arange(len(local)) - offsets[local] + starts[local]
        chosen, index = torch.from_numpy(requests), torch.from_numpy(rows)
        inputs = {name: tensor[chosen] for name, tensor in self._user_side.items()}
        inputs |= {name: tensor[index] for name, tensor in self._row_side.items()}
        labels, p_f, weights = (tensor[index] for tensor in self._targets)
        return Batch(
            inputs=inputs,
            request_index=torch.from_numpy(local),
            labels=labels,
            p_f=p_f,
            weights=weights,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Rows of some requests; see `VerticalExamples` for shapes."""

    inputs: dict[str, Tensor]
    request_index: Tensor
    labels: Tensor
    p_f: Tensor
    weights: Tensor


def fit(
    examples: VerticalExamples,
    tables: FeatureTables,
    config: FitConfig,
    *,
    train: IntArray,
    tune: IntArray,
    progress: Callable[[float, str], None] | None = None,
) -> Fit:
    """Train on some rows until others stop getting better.

    The same seed gives the same model to the last bit on one machine.

    Shapes:
        train, tune: rows of whole requests.
    """
    began = time.monotonic()
    torch.manual_seed(config.seed)
    rng = np.random.default_rng(config.seed)
    model = VerticalModel(config.model, examples.spec, tables, len(examples.objectives))
    average = copy.deepcopy(model).eval()
    batches = Batches(examples, config.model.blocks)
    requests = np.unique(examples.request_index[train])
    optimiser = _optimiser(model, config.optimiser)
    steps_per_epoch = -(-len(requests) // config.optimiser.batch_requests)
    num_steps = config.optimiser.max_epochs * steps_per_epoch
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: _learning_rate_factor(step, num_steps)
    )
    history: list[float] = []
    best = copy.deepcopy(average.state_dict())
    for epoch in range(config.optimiser.max_epochs):
        model.train()
        rng.shuffle(requests)
        for part in np.array_split(requests, steps_per_epoch):
            _step(model, batches.take(part), optimiser, config)
            schedule.step()
            _follow(average, model, config.optimiser.average_frac)
        p = sigmoid(predict(average, examples, tune, batches=batches)[:, 0])
        history.append(_tune_ne(p, examples, tune))
        if history[-1] == min(history):
            best = copy.deepcopy(average.state_dict())
        if progress is not None:
            progress((epoch + 1) / config.optimiser.max_epochs, f"tune NE {history[-1]:.4f}")
        if len(history) - int(np.argmin(history)) > config.optimiser.patience:
            break
    average.load_state_dict(best)
    return Fit(model=average, tune_ne=tuple(history), wall_s=time.monotonic() - began)


def predict(
    model: VerticalModel,
    examples: VerticalExamples,
    rows: IntArray,
    *,
    batches: Batches | None = None,
) -> FloatArray:
    """Give the serving head's logits of rows of whole requests, (N, A), float32."""
    batches = batches or Batches(examples, model.config.blocks)
    requests = np.unique(examples.request_index[rows])
    num_parts = max(1, len(rows) // _EVALUATED_ROWS)
    with torch.inference_mode():
        parts = []
        for part in np.array_split(requests, num_parts):
            batch = batches.take(part)
            parts.append(model(batch.inputs, batch.request_index)[0].numpy())
    return np.concatenate(parts)


def _step(
    model: VerticalModel, batch: Batch, optimiser: torch.optim.Optimizer, config: FitConfig
) -> None:
    optimiser.zero_grad(set_to_none=True)
    logits = model(batch.inputs, batch.request_index)
    loss = training_loss(logits, batch.labels, batch.p_f, batch.weights, distill=config.distill)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimiser.step()


def _follow(average: nn.Module, model: nn.Module, kept_frac: float) -> None:
    with torch.no_grad():
        for mean, current in zip(average.parameters(), model.parameters(), strict=True):
            mean.lerp_(current, 1 - kept_frac)


def _learning_rate_factor(step: int, num_steps: int) -> float:
    """Up in a straight line for a tenth of the steps, then down along a cosine."""
    num_rising = max(1, num_steps // 10)
    if step < num_rising:
        return (step + 1) / num_rising
    done_frac = (step - num_rising) / max(1, num_steps - num_rising)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, done_frac)))


def _optimiser(model: VerticalModel, config: OptimiserConfig) -> torch.optim.Optimizer:
    """Biases and scales are not decayed, embeddings more: they are what learns rows by heart."""
    embeddings = list(model.embeddings.parameters())
    known = {id(parameter) for parameter in embeddings}
    others = [p for p in model.parameters() if id(p) not in known]
    groups = [
        {"params": embeddings, "weight_decay": config.embedding_weight_decay},
        {"params": [p for p in others if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in others if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate)


def _tune_ne(
    p: FloatArray | np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    examples: VerticalExamples,
    tune: IntArray,
) -> float:
    ne = normalized_entropy(p, examples.labels[tune, 0], examples.weights[tune])
    if ne is None:
        raise ValueError(
            f"tune window: expected rows of both classes of {examples.objectives[0]}, got one"
        )
    return ne
