"""The tiny log with a synthetic transfer log, made once for all tests of ranking."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from features.dataset import LogDataset, load_dataset
from features.transferlog import TransferLog
from ranking.training.dataset import VerticalExamples, build_examples
from ranking.training.losses import DistillConfig
from ranking.training.model import ModelConfig
from ranking.training.rows import RowResult, RowsConfig, train_rows
from ranking.training.train import OptimiserConfig
from tests.features.tiny_log import write_tiny_log
from tests.ranking.tiny_transfer import make_transfer_log


@pytest.fixture(scope="package", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> LogDataset:
    return load_dataset(write_tiny_log(tmp_path_factory.mktemp("tiny") / "log", num_users=8))


@pytest.fixture(scope="package")
def transfer(tiny: LogDataset) -> TransferLog:
    return make_transfer_log(tiny)


@pytest.fixture(scope="package")
def examples(tiny: LogDataset, transfer: TransferLog) -> VerticalExamples:
    return build_examples(tiny, transfer, "home")


@pytest.fixture(scope="package")
def tiny_config() -> RowsConfig:
    return RowsConfig(
        vertical="home",
        model=ModelConfig(embedding_dim=4, memory_width=4, hidden=(8,)),
        optimiser=OptimiserConfig(batch_requests=8, max_epochs=2, learning_rate=5e-3),
        distill=DistillConfig(weight=2.0),
        num_bootstrap=20,
    )


@pytest.fixture(scope="package")
def rows(tiny: LogDataset, transfer: TransferLog, tiny_config: RowsConfig) -> dict[str, RowResult]:
    return {row.name: row for row in train_rows(tiny, transfer, tiny_config)}
