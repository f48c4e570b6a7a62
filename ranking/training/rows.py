"""The rows of the comparison: what each kind of transfer is worth, on the same data and budget.

    base                nothing from the foundation model
    kd                  its probabilities as a second target
    loopfm              its vectors of the user's past engagements as an input
    raw                 the same engagements without its vectors: what history alone gives
    kd+loopfm           both
    kd+loopfm+solaris   and its vectors of pairs that were shown before

`raw` has the encoder and match inputs of `loopfm`, so only the difference of those two is evidence
that vectors carry something. `CONTROLS` asks the same more sharply: vectors dealt out anew among
all entries (`shuffled`) keep the match inputs and lose what each entry was about. Schedules and
calibration come from the tune window, and figures from the test window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from features.arrays import FloatArray, IntArray
from features.dataset import LogDataset
from features.metrics import Estimate
from features.transferlog import TransferLog
from ranking.calibration import Platt, calibrate
from ranking.training.calibration import fit_platt
from ranking.training.dataset import (
    VerticalExamples,
    build_examples,
    shuffle_memory_vectors,
)
from ranking.training.evaluation import Figures, Windows, transfer_ratio
from ranking.training.losses import DistillConfig
from ranking.training.model import FeatureTables, MemoryContent, ModelConfig, VerticalModel
from ranking.training.replay import ReplayRule
from ranking.training.train import FitConfig, OptimiserConfig, fit, predict

BASE = "base"
Progress = Callable[[float, str], None]


@dataclass(frozen=True, kw_only=True)
class RowSpec:
    """What one row has."""

    name: str
    has_distillation: bool = False
    memory: MemoryContent = "none"
    has_pairs: bool = False
    has_shuffled_vectors: bool = False


ROWS = (
    RowSpec(name=BASE),
    RowSpec(name="kd", has_distillation=True),
    RowSpec(name="loopfm", memory="loopfm"),
    RowSpec(name="raw", memory="raw"),
    RowSpec(name="kd+loopfm", has_distillation=True, memory="loopfm"),
    RowSpec(name="kd+loopfm+solaris", has_distillation=True, memory="loopfm", has_pairs=True),
)

CONTROLS = (
    RowSpec(name=BASE),
    RowSpec(name="loopfm", memory="loopfm"),
    RowSpec(name="loopfm shuffled", memory="loopfm", has_shuffled_vectors=True),
    RowSpec(name="raw", memory="raw"),
    RowSpec(name="kd", has_distillation=True),
    RowSpec(name="kd+loopfm", has_distillation=True, memory="loopfm"),
    RowSpec(
        name="kd+loopfm shuffled",
        has_distillation=True,
        memory="loopfm",
        has_shuffled_vectors=True,
    ),
    RowSpec(name="kd+raw", has_distillation=True, memory="raw"),
)


@dataclass(frozen=True, kw_only=True)
class RowsConfig:
    """One budget for all rows.

    Attributes:
        model: sizes; memory and pairs are the row's.
        seed: of every row, so that rows differ in their inputs only.
        num_bootstrap: resamples of the users behind each interval.
        num_threads: of PyTorch; models this small gain nothing from a second thread, and wait for
            it whenever something else has its core.
    """

    vertical: str
    rows: tuple[RowSpec, ...] = ROWS
    model: ModelConfig = field(default_factory=ModelConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    distill: DistillConfig = field(default_factory=DistillConfig)
    replay: ReplayRule = field(default_factory=ReplayRule)
    seed: int = 0
    num_bootstrap: int = 200
    num_threads: int = 1

    def __post_init__(self) -> None:
        """The first row is what the others are compared with."""
        names = [row.name for row in self.rows]
        if not names or names[0] != BASE or len(set(names)) < len(names):
            raise ValueError(f"rows: expected distinct names, {BASE!r} first, got {names}")

    def fit_config(self, row: RowSpec) -> FitConfig:
        """Give the training of one row."""
        model = replace(self.model, memory=row.memory, has_pairs=row.has_pairs)
        distill = self.distill if row.has_distillation else None
        return FitConfig(model=model, optimiser=self.optimiser, distill=distill, seed=self.seed)


@dataclass(frozen=True, kw_only=True, eq=False)
class RowResult:
    """One row: the model, its calibration, and its figures on the test window.

    Shapes:
        test_p: (N, A), float32, calibrated; rows of `examples` in the test window.

    Attributes:
        metrics: objective and name to estimate; see `features.metrics.evaluate`.
        surface_metrics: the same by surface first, each on the surface's own rows.
        ne_difference: objective to NE less that of base on the same rows; below 0 is better.
        transfer_ratio: objective to the share of the foundation model's NE gain that arrived; None
            where the foundation model is not better than base.
        fm_metrics: the foundation model's own figures on the same rows.
        tune_ne: of the first objective after each pass.
    """

    name: str
    spec: RowSpec
    config: FitConfig
    examples: VerticalExamples
    tables: FeatureTables
    model: VerticalModel
    calibration: dict[str, Platt]
    test_p: FloatArray
    metrics: dict[str, Figures]
    surface_metrics: dict[str, dict[str, Figures]]
    ne_difference: dict[str, Estimate]
    transfer_ratio: dict[str, float | None]
    fm_metrics: dict[str, Figures]
    tune_ne: tuple[float, ...]
    wall_s: float


def train_rows(
    dataset: LogDataset,
    log: TransferLog,
    config: RowsConfig,
    *,
    progress: Progress | None = None,
) -> list[RowResult]:
    """Train and evaluate every row.

    Args:
        dataset: the log, with labels.
        log: what the foundation model says of it.
        config: the rows and their budget.
        progress: called with (share done, what is being done).

    Raises:
        DataError: the transfer log does not fit the data set.
        ValueError: the tune window has one class of the first objective only.
    """
    tell = progress or _tell_nobody
    torch.set_num_threads(config.num_threads)
    assembling = 0.1
    examples = build_examples(
        dataset,
        log,
        config.vertical,
        rule=config.replay,
        progress=lambda share, what: tell(share * assembling, what),
    )
    tables = FeatureTables.of(dataset.schema, dataset.encoder, examples.spec)
    windows = Windows.of(dataset, examples)
    fm_metrics = windows.evaluate(examples.p_f[windows.test], num_bootstrap=config.num_bootstrap)
    results: list[RowResult] = []
    for place, row in enumerate(config.rows):
        size = (1 - assembling) / len(config.rows)
        base_p = results[0].test_p if results else None
        tell_row = _part(tell, assembling + place * size, size, row.name)
        results.append(
            _train_row(row, config, windows, tables, fm_metrics, base_p=base_p, tell=tell_row)
        )
    return results


def _train_row(
    row: RowSpec,
    config: RowsConfig,
    windows: Windows,
    tables: FeatureTables,
    fm_metrics: dict[str, Figures],
    *,
    base_p: FloatArray | None,
    tell: Progress,
) -> RowResult:
    examples, fit_config = windows.examples, config.fit_config(row)
    if row.has_shuffled_vectors:
        examples = shuffle_memory_vectors(examples, seed=config.seed)
    fitted = fit(
        examples, tables, fit_config, train=windows.train, tune=windows.tune, progress=tell
    )
    calibration = calibrate_model(fitted.model, examples, windows.tune)
    logits = predict(fitted.model, examples, windows.test)
    p = calibrate(logits, examples.objectives, calibration)
    base_p = p if base_p is None else base_p
    num = config.num_bootstrap
    metrics = windows.evaluate(p, num_bootstrap=num)
    difference = windows.difference(p, base_p, num_bootstrap=num)
    return RowResult(
        name=row.name,
        spec=row,
        config=fit_config,
        examples=examples,
        tables=tables,
        model=fitted.model,
        calibration=calibration,
        test_p=p,
        metrics=metrics,
        surface_metrics=windows.evaluate_surfaces(p, num_bootstrap=num),
        ne_difference=difference,
        transfer_ratio={
            name: transfer_ratio(metrics[name]["ne"], difference[name], fm_metrics[name]["ne"])
            for name in examples.objectives
        },
        fm_metrics=fm_metrics,
        tune_ne=fitted.tune_ne,
        wall_s=fitted.wall_s,
    )


def calibrate_model(
    model: VerticalModel, examples: VerticalExamples, tune: IntArray
) -> dict[str, Platt]:
    """Fit the calibration of every objective on the tune window."""
    logits = predict(model, examples, tune)
    return {
        name: fit_platt(logits[:, place], examples.labels[tune, place], examples.weights[tune])
        for place, name in enumerate(examples.objectives)
    }


def _part(tell: Progress, first: float, size: float, name: str) -> Progress:
    return lambda share, what: tell(first + share * size, f"{name}: {what}")


def _tell_nobody(share: float, what: str) -> None:
    """Take progress and do nothing with it."""
