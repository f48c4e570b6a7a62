"""What sets one training run apart from another."""

from dataclasses import dataclass, field

from foundation.model.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A whole run of the foundation model.

    Attributes:
        model: sizes.
        max_rows, max_tokens: of a step (`foundation.plan`).
        negative_keep_frac: surface to the share of its negatives that is trained on, with weights
            that make up for the rest; 1 where absent.
        lr_dense, lr_embedding: peaks for AdamW and Adagrad.
        warmup_frac: share of the steps over which the rate rises; it then falls to a tenth.
        weight_decay: of the dense part.
        objective_weights: objective to weight in the loss; 1 where absent.
        reconstruction_weight: of the bottleneck's loss, which reaches the bottleneck only.
        null_context_frac: share of training rows whose context is made null, so that pairs
            without a placement (engagements) are not new to the model.
        clip_norm: of the dense gradient.
        checkpoint_steps: steps between checkpoints.
        seed: of everything random.
        num_threads: of PyTorch.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    max_rows: int = 256
    max_tokens: int = 32_768
    negative_keep_frac: dict[str, float] = field(default_factory=dict)
    lr_dense: float = 2e-3
    lr_embedding: float = 0.05
    warmup_frac: float = 0.1
    weight_decay: float = 1e-4
    objective_weights: dict[str, float] = field(default_factory=dict)
    reconstruction_weight: float = 1.0
    null_context_frac: float = 0.1
    clip_norm: float = 1.0
    checkpoint_steps: int = 100
    seed: int = 0
    num_threads: int = 2
