"""Architectures side by side: the same inputs, outputs, data order and optimiser, at one budget.

Sizes are chosen so that a forward pass costs each about the same FLOPs per sample, counted over
real lengths. What is compared is then what an architecture makes of a FLOP.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from features.dataset import LogDataset
from foundation.assembly import build_model, make_builder, to_examples
from foundation.batches import FmBatch
from foundation.evaluation import Evaluation, evaluate_objectives
from foundation.frozen import FrozenFm
from foundation.model.config import BodyConfig
from foundation.rivals.dcn import DcnConfig
from foundation.rivals.din import DinConfig
from foundation.rivals.hstu import HstuConfig
from foundation.rivals.interformer import InterFormerConfig
from foundation.rivals.wukong import WukongConfig
from foundation.training.config import TrainConfig
from foundation.training.loop import Progress, train

REFERENCE = "kunlun"
"""Whose FLOPs are the budget: that of the recipe."""

_MAX_SIZE = 16_384
_SAMPLE_ROWS = 2_048

# From one number to a whole architecture; more is more FLOPs.
RIVALS: dict[str, Callable[[int], BodyConfig]] = {
    "din": lambda size: DinConfig(unit=max(8, size // 16), deep=(size, max(1, size // 2))),
    "dcn": lambda size: DcnConfig(rank=max(4, size // 8), deep=(size, max(1, size // 2))),
    "wukong": lambda size: WukongConfig(num_layers=3, hidden=size),
    "hstu": lambda size: HstuConfig(num_layers=size),
    "interformer": lambda size: InterFormerConfig(num_layers=1, hidden=size),
}


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One architecture, trained once.

    Attributes:
        flops_per_sample: forward, over the real lengths of a sample of the training window.
        samples_per_s: training, forward and backward, loader included.
        evaluation: on the test window.
    """

    name: str
    seed: int
    body: BodyConfig
    num_parameters: int
    flops_per_sample: float
    samples_per_s: float
    evaluation: Evaluation


def flops_per_sample(dataset: LogDataset, config: TrainConfig, batch: FmBatch) -> float:
    """Give the forward FLOPs of a row of this batch, on average."""
    return build_model(dataset, config.model).flops(batch) / len(batch)


def sample_batch(dataset: LogDataset, config: TrainConfig) -> FmBatch:
    """Give rows from all over the training window as one batch."""
    shown = dataset.impressions.between(*dataset.splits.fm_train)
    step = max(1, len(shown) // _SAMPLE_ROWS)
    examples = to_examples(shown.take(slice(0, len(shown), step)))
    return make_builder(dataset, config.model).build(examples, where="sample")


def fit_to_budget(
    dataset: LogDataset, config: TrainConfig, name: str, *, budget: float, batch: FmBatch
) -> BodyConfig:
    """Give the largest body of an architecture that costs at most the budget per sample.

    Raises:
        ValueError: even its smallest costs more.
    """
    low, high = 1, _MAX_SIZE if name != "hstu" else 64

    def cost(size: int) -> float:
        model = replace(config.model, body=RIVALS[name](size))
        return flops_per_sample(dataset, replace(config, model=model), batch)

    if cost(low) > budget:
        raise ValueError(f"{name}: expected a budget of {cost(low):,.0f} FLOPs or more per sample")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= budget else (low, middle)
    return RIVALS[name](low)


def compare_one(
    dataset: LogDataset,
    config: TrainConfig,
    name: str,
    out: Path,
    *,
    batch: FmBatch,
    progress: Progress | None = None,
) -> Compared:
    """Train one architecture on the training window and score it on the test window.

    Args:
        dataset: the log.
        config: with the body to train, and the seed.
        name: of it.
        out: folder of the run; a new one, or the time would be of a part.
        batch: from :func:`sample_batch`.
        progress: as of :func:`foundation.training.loop.train`.
    """
    started_s = time.perf_counter()
    result = train(dataset, config, out, progress=progress)
    elapsed_s = time.perf_counter() - started_s
    test = dataset.impressions.between(*dataset.splits.test)
    scores = FrozenFm(result.model, dataset).score(to_examples(test))
    return Compared(
        name=name,
        seed=config.seed,
        body=config.model.body,
        num_parameters=sum(p.numel() for p in result.model.parameters()),
        flops_per_sample=result.model.flops(batch) / len(batch),
        samples_per_s=result.num_rows / elapsed_s,
        evaluation=evaluate_objectives(scores.p, test),
    )
