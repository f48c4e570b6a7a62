"""A tiny log and a tiny model, shared by the tests of this folder."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from features.dataset import LogDataset, load_dataset
from foundation.assembly import build_model, make_builder, to_examples
from foundation.batches import BatchBuilder, Examples
from foundation.model.config import ModelConfig
from foundation.model.foundation import FoundationModel
from foundation.model.kunlun import KunlunConfig
from foundation.training.config import TrainConfig
from tests.features.tiny_log import write_tiny_log

BODY = KunlunConfig(
    num_heads=2,
    num_layers=2,
    generated_width=4,
    summary_tokens=3,
    half_window=4,
    num_seeds=3,
    num_pooled=2,
    interaction_rank=3,
    interaction_hidden=16,
)
CONFIG = ModelConfig(
    width=16,
    head_hidden=16,
    max_events=12,
    count_events=64,
    bottleneck_dim=8,
    bottleneck_prefixes=(4, 8),
    body=BODY,
)
TRAIN = TrainConfig(model=CONFIG, max_rows=48, lr_dense=5e-3, checkpoint_steps=3, num_threads=1)


@cache
def tiny_dataset() -> LogDataset:
    with TemporaryDirectory() as folder:
        return load_dataset(write_tiny_log(Path(folder) / "log"))


def tiny_model(seed: int = 0) -> FoundationModel:
    torch.manual_seed(seed)
    return build_model(tiny_dataset(), CONFIG)


def tiny_builder() -> BatchBuilder:
    return make_builder(tiny_dataset(), CONFIG)


def tiny_examples(first: int = 200, last: int = 260) -> Examples:
    return to_examples(tiny_dataset().impressions).take(slice(first, last))
