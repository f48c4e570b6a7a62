"""The training loop: one pass over the training window, in time order.

Legend: B rows, A objectives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from features.dataset import LogDataset
from features.encoding import NULL
from features.errors import GemcutterError
from features.log import Impressions
from features.sampling import keep_frac_by_code, sample_negatives
from features.schema import SURFACE
from foundation.assembly import build_model, make_builder, to_examples
from foundation.batches import BatchBuilder, Examples, FmBatch
from foundation.model.foundation import FoundationModel
from foundation.model.interface import FmOutput
from foundation.plan import (
    BatchBudget,
    BatchPlan,
    history_tokens,
    plan_batches,
    request_starts,
)
from foundation.training.checkpoint import (
    FINAL,
    CheckpointMeta,
    load_checkpoint,
    newest_checkpoint,
    require_writable,
    save_checkpoint,
)
from foundation.training.config import TrainConfig

Progress = Callable[[int, int, float], None]


class TrainingError(GemcutterError, RuntimeError):
    """Training cannot go on; says what was found where."""


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """A finished run.

    Attributes:
        model: in evaluation mode.
        losses: of every step that this call ran.
        num_rows: training rows of the whole run.
        path: the final checkpoint.
    """

    model: FoundationModel
    losses: list[float]
    num_rows: int
    path: Path


def train(
    dataset: LogDataset,
    config: TrainConfig,
    out: Path,
    *,
    progress: Progress | None = None,
    stop_after_steps: int | None = None,
) -> TrainResult:
    """Train on the foundation model's window, going on from the newest checkpoint in `out`.

    Args:
        dataset: the log.
        config: the run.
        out: folder of the checkpoints.
        progress: called with (step, steps, loss).
        stop_after_steps: end early, as an interruption would; a later call goes on.

    Raises:
        CheckpointError: `out` holds a run with another configuration or of other data.
        TrainingError: the loss or a gradient is not finite.
    """
    require_writable(out)
    run = start(dataset, config, out)
    run.resume()
    losses = run.go(progress, stop_after_steps)
    if stop_after_steps is None or run.step == run.num_steps:
        run.save(FINAL)
    return TrainResult(
        model=run.model.eval(), losses=losses, num_rows=len(run.impressions), path=out / FINAL
    )


def start(dataset: LogDataset, config: TrainConfig, out: Path) -> Run:
    """Give a run at its first step."""
    torch.set_num_threads(config.num_threads)
    torch.manual_seed(config.seed)
    model = build_model(dataset, config.model)
    impressions = _sampled(dataset, config)
    _start_from_base_rates(model, impressions)
    return Run(dataset, config, model, impressions, out)


def _sampled(dataset: LogDataset, config: TrainConfig) -> Impressions:
    """Give the rows of the training window, with as many of the negatives as the run asks for."""
    shown = dataset.impressions.between(*dataset.splits.fm_train)
    if not config.negative_keep_frac:
        return shown
    names = list(config.negative_keep_frac)
    stray = sorted(set(names) - set(dataset.schema.surfaces))
    if stray:
        raise TrainingError(
            f"negative_keep_frac: expected surfaces of {list(dataset.schema.surfaces)}, got {stray}"
        )
    codes = dataset.encoder.codes(SURFACE, names).tolist()
    fracs = dict(zip(codes, config.negative_keep_frac.values(), strict=True))
    shares = keep_frac_by_code(shown.codes[SURFACE], fracs)
    return sample_negatives(shown, shares, seed=config.seed)


def _start_from_base_rates(model: FoundationModel, impressions: Impressions) -> None:
    """Set the heads' biases so that the untrained model predicts each objective's rate.

    A head that first has to learn that its objective is rare does so with large weights.
    """
    rates = [
        np.average(impressions.labels[name], weights=impressions.weights)
        for name in model.interface.objectives
    ]
    p_A = torch.tensor(rates, dtype=torch.float64).clamp(1e-6, 1 - 1e-6)
    with torch.no_grad():
        model.readout.heads.bias.copy_(torch.logit(p_A))


def _plan(dataset: LogDataset, config: TrainConfig, impressions: Impressions) -> BatchPlan:
    starts = request_starts(impressions.user_keys, impressions.at_ms)
    tokens = history_tokens(
        dataset.schema,
        dataset.histories(),
        impressions.user_keys[starts],
        impressions.at_ms[starts],
        max_events=config.model.max_events,
    )
    budget = BatchBudget(max_rows=config.max_rows, max_tokens=config.max_tokens)
    return plan_batches(starts, tokens, len(impressions), budget)


class Run:
    """One run's model, optimisers and position."""

    def __init__(
        self,
        dataset: LogDataset,
        config: TrainConfig,
        model: FoundationModel,
        impressions: Impressions,
        out: Path,
    ) -> None:
        self.config, self.model, self.out = config, model, out
        self.impressions = impressions
        self.builder: BatchBuilder = make_builder(dataset, config.model)
        self.ids = {"schema_id": dataset.schema.schema_id, "encoder_id": dataset.encoder.encoder_id}
        self.plan = _plan(dataset, config, impressions)
        self.num_steps = len(self.plan)
        self.step = 0
        tables = list(model.inputs.embeddings.parameters())
        in_tables = {id(parameter) for parameter in tables}
        self.dense = [p for p in model.parameters() if id(p) not in in_tables]
        self.optimisers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(self.dense, lr=1.0, weight_decay=config.weight_decay),
            torch.optim.Adagrad(tables, lr=1.0),
        ]
        self.peaks = [config.lr_dense, config.lr_embedding]
        weights = [config.objective_weights.get(o, 1.0) for o in model.interface.objectives]
        self.weights_A = torch.tensor(weights)

    def resume(self) -> None:
        """Go on from the newest checkpoint, if there is one."""
        newest = newest_checkpoint(self.out)
        if newest is None:
            return
        state, meta = load_checkpoint(
            newest, config=asdict(self.config), plan_id=self.plan.plan_id, **self.ids
        )
        self.model.load_state_dict(state["model"])
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.step = meta.step

    def save(self, name: str) -> None:
        """Write a checkpoint of this moment."""
        state: dict[str, Any] = {
            "model": self.model.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
        }
        meta = CheckpointMeta(
            step=self.step,
            num_rows=int(self.plan.bounds[self.step]),
            config=asdict(self.config),
            plan_id=self.plan.plan_id,
            **self.ids,
        )
        save_checkpoint(self.out, name, state, meta)

    def go(self, progress: Progress | None, stop_after_steps: int | None) -> list[float]:
        """Take the remaining steps and give their losses."""
        self.model.train()
        losses = []
        for batch, labels_BA, weights_B in self.batches():
            losses.append(self.take_step(batch, labels_BA, weights_B))
            if self.step % self.config.checkpoint_steps == 0:
                self.save(f"step-{self.step:08d}")
            if progress is not None:
                progress(self.step, self.num_steps, losses[-1])
            if stop_after_steps is not None and len(losses) >= stop_after_steps:
                break
        return losses

    def batches(self) -> Iterator[tuple[FmBatch, Tensor, Tensor]]:
        """Give the batches of the remaining steps, with labels and weights."""
        objectives = self.model.interface.objectives
        bounds = self.plan.bounds.tolist()
        for step in range(self.step, self.num_steps):
            part = self.impressions.take(np.arange(bounds[step], bounds[step + 1]))
            examples = self._without_some_context(to_examples(part), step)
            batch = self.builder.build(examples, where=f"training batch {step}")
            labels = np.stack([part.labels[name] for name in objectives], axis=1)
            yield batch, torch.from_numpy(labels), torch.from_numpy(part.weights)

    def _without_some_context(self, examples: Examples, step: int) -> Examples:
        """Make the context of some rows null; which ones depends on seed and step alone."""
        rng = np.random.default_rng((self.config.seed, step))
        hidden = rng.random(len(examples)) < self.config.null_context_frac
        codes = {name: np.where(hidden, NULL, c) for name, c in examples.codes.items()}
        return Examples(
            user_keys=examples.user_keys,
            item_keys=examples.item_keys,
            at_ms=examples.at_ms,
            codes=codes,
            numeric=examples.numeric,
        )

    def take_step(self, batch: FmBatch, labels_BA: Tensor, weights_B: Tensor) -> float:
        """Train on one batch and give its loss."""
        factor = self._schedule()
        for optimiser, peak in zip(self.optimisers, self.peaks, strict=True):
            optimiser.param_groups[0]["lr"] = peak * factor
            optimiser.zero_grad(set_to_none=True)
        output = self.model(batch)
        loss = self._loss(output, labels_BA, weights_B)
        if not torch.isfinite(loss):
            raise TrainingError(f"step {self.step}: loss {loss.item()}; {self._first_bad(output)}")
        (loss + self.config.reconstruction_weight * output.reconstruction).backward()
        norm = nn.utils.clip_grad_norm_(self.dense, self.config.clip_norm)
        if not torch.isfinite(norm):
            raise TrainingError(
                f"step {self.step}: gradient norm {norm.item()}; {self._bad_grad()}"
            )
        for optimiser in self.optimisers:
            optimiser.step()
        self.step += 1
        return float(loss.detach())

    def _loss(self, output: FmOutput, labels_BA: Tensor, weights_B: Tensor) -> Tensor:
        """Weighted cross-entropy from logits, in fp32."""
        losses_BA = functional.binary_cross_entropy_with_logits(
            output.logits_BA.float(), labels_BA, reduction="none"
        )
        per_row = (losses_BA * self.weights_A).sum(1)
        return (per_row * weights_B).sum() / weights_B.sum()

    def _schedule(self) -> float:
        """The learning rate at this step as a share of its peak."""
        warmup = max(1, int(self.config.warmup_frac * self.num_steps))
        if self.step < warmup:
            return (self.step + 1) / warmup
        done_frac = (self.step - warmup) / max(1, self.num_steps - warmup)
        return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done_frac))

    def _first_bad(self, output: FmOutput) -> str:
        for name, parameter in self.model.named_parameters():
            if not torch.isfinite(parameter).all():
                return f"parameter {name!r} is not finite"
        rows = (~torch.isfinite(output.logits_BA)).any(1).nonzero().flatten()[:5].tolist()
        return f"parameters are finite, the logits of rows {rows} are not"

    def _bad_grad(self) -> str:
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
                return f"the gradient of {name!r} is not finite"
        return "every single gradient is finite"
