"""Figures of a vertical's model on the test window: by objective, by surface, and against base.

Intervals resample whole users (`features.metrics`). Figures of a surface come from its own rows, so
their base rate, and with it the normalised entropy, is the surface's.

Must not know: models; it sees calibrated probabilities only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from features.arrays import FloatArray, IntArray
from features.dataset import LogDataset
from features.metrics import Estimate, evaluate, paired_ne_difference
from ranking.training.dataset import VerticalExamples

Figures = dict[str, Estimate]


@dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """Rows of each window.

    Shapes:
        train, tune, test: int64, places in `examples`.
    """

    examples: VerticalExamples
    train: IntArray
    tune: IntArray
    test: IntArray

    @classmethod
    def of(cls, dataset: LogDataset, examples: VerticalExamples) -> Windows:
        """Give the windows of a data set's splits."""
        splits = dataset.splits
        return cls(
            examples=examples,
            train=examples.rows_between(splits.vm_train),
            tune=examples.rows_between(splits.tune),
            test=examples.rows_between(splits.test),
        )

    def evaluate(self, p_NA: FloatArray, *, num_bootstrap: int) -> dict[str, Figures]:
        """Give objective to figures of the test window.

        Shapes:
            p_NA: (N, A), rows of `test`.
        """
        return self._evaluate(p_NA, np.arange(len(self.test)), num_bootstrap)

    def evaluate_surfaces(
        self, p_NA: FloatArray, *, num_bootstrap: int
    ) -> dict[str, dict[str, Figures]]:
        """Give surface and objective to figures of the surface's rows of the test window."""
        surface = self.examples.surface_index[self.test]
        return {
            name: self._evaluate(p_NA, np.flatnonzero(surface == place), num_bootstrap)
            for place, name in enumerate(self.examples.surfaces)
        }

    def difference(
        self, p_NA: FloatArray, base_NA: FloatArray, *, num_bootstrap: int
    ) -> dict[str, Estimate]:
        """Give objective to NE less that of base, on the same rows and resamples."""
        examples, rows = self.examples, self.test
        return {
            name: paired_ne_difference(
                p_NA[:, place],
                base_NA[:, place],
                examples.labels[rows, place],
                examples.user_keys[rows],
                weights=examples.weights[rows],
                num_bootstrap=num_bootstrap,
            )
            for place, name in enumerate(examples.objectives)
        }

    def _evaluate(self, p_NA: FloatArray, places: IntArray, num: int) -> dict[str, Figures]:
        examples, rows = self.examples, self.test[places]
        return {
            name: evaluate(
                p_NA[places, column],
                examples.labels[rows, column],
                examples.user_keys[rows],
                weights=examples.weights[rows],
                num_bootstrap=num,
            )
            for column, name in enumerate(examples.objectives)
        }


def transfer_ratio(ne: Estimate, difference: Estimate, fm_ne: Estimate) -> float | None:
    """Give (NE of base - NE) / (NE of base - NE of the foundation model).

    None where one of them is undefined, or the foundation model is not better than base.

    Args:
        ne: of the row.
        difference: of the row to base.
        fm_ne: of the foundation model.
    """
    if ne.value is None or difference.value is None or fm_ne.value is None:
        return None
    fm_gain = ne.value - difference.value - fm_ne.value
    return (0.0 - difference.value) / fm_gain if fm_gain > 0 else None
