"""The foundation model: shared inputs, a body, shared outputs."""

from __future__ import annotations

from torch import nn

from foundation.batches import FmBatch
from foundation.model.config import ModelConfig
from foundation.model.inputs import InputEncoder
from foundation.model.interface import Body, FmOutput, Interface
from foundation.model.readout import Readout


class FoundationModel(nn.Module):
    """A model over set features and one merged event sequence.

    Args:
        interface: of the data.
        config: sizes, and which body.
    """

    def __init__(self, interface: Interface, config: ModelConfig) -> None:
        super().__init__()
        self.interface, self.config = interface, config
        self.inputs = InputEncoder(interface, width=config.width)
        self.body: Body = config.body.build(num_tokens=interface.num_tokens, width=config.width)
        self.readout = Readout(
            self.body.out_width + interface.num_dense,
            hidden=config.head_hidden,
            num_objectives=len(interface.objectives),
            dim=config.bottleneck_dim,
            prefixes=config.bottleneck_prefixes,
        )

    def forward(self, batch: FmBatch) -> FmOutput:
        """Score B rows."""
        encoded, dense_BG = self.inputs(batch)
        out: FmOutput = self.readout(self.body(encoded), dense_BG)
        return out

    def flops(self, batch: FmBatch) -> float:
        """Give the forward FLOPs of a batch over its real lengths (`foundation.model.flops`)."""
        lengths_B = batch.offsets_B[1:] - batch.offsets_B[:-1]
        return (
            self.inputs.flops(batch) + self.body.flops(lengths_B) + self.readout.flops(len(batch))
        )
