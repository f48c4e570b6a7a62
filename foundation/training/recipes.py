"""Complete configurations, by name. Add a function to add a run."""

from foundation.model.config import KunlunConfig
from foundation.training.config import TrainConfig


def quickstart() -> TrainConfig:
    """The quick start: minutes on two cores for about 80,000 rows."""
    return TrainConfig(model=KunlunConfig(max_events=192))


def full() -> TrainConfig:
    """All households of Complete Journey: about an hour and a half on two cores."""
    return TrainConfig(model=KunlunConfig(max_events=384), checkpoint_steps=500)


RECIPES = {"quickstart": quickstart, "full": full}
