"""Complete configurations, by name. Add a function to add a run."""

from foundation.model.config import ModelConfig
from foundation.model.kunlun import KunlunConfig
from foundation.training.config import TrainConfig


def quickstart() -> TrainConfig:
    """The quick start: about 80,000 rows, a minute or two on two cores.

    Chosen on the tune weeks of the 200-household hard cut; `docs/log.md` has what else was tried.
    """
    model = ModelConfig(width=48, max_events=96, body=KunlunConfig(num_seeds=8))
    return TrainConfig(
        model=model,
        max_rows=256,
        lr_dense=4e-3,
        lr_embedding=0.03,
        weight_decay=0.02,
        objective_weights={"coupon_used": 0.3},
    )


def full() -> TrainConfig:
    """All households of Complete Journey: about a million rows, wider and further back."""
    return TrainConfig(
        model=ModelConfig(width=64, max_events=128, body=KunlunConfig(num_seeds=16)),
        max_rows=512,
        max_tokens=65_536,
        lr_dense=3e-3,
        lr_embedding=0.03,
        weight_decay=0.02,
        objective_weights={"coupon_used": 0.3},
        checkpoint_steps=250,
    )


RECIPES = {"quickstart": quickstart, "full": full}
