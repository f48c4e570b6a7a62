from dataclasses import replace

import numpy as np
import pytest
import torch

from features.dataset import LogDataset
from features.lookup import Tier
from ranking.training.dataset import USER_SIDE, Arrays, VerticalExamples
from ranking.training.losses import DistillConfig, training_loss
from ranking.training.model import FeatureTables, MemoryContent, ModelConfig, VerticalModel
from ranking.training.onnxfile import mix_requests, run_torch
from ranking.training.train import FitConfig, OptimiserConfig, fit, predict

MEMORIES: tuple[MemoryContent, ...] = ("none", "loopfm", "raw")


def make_model(tiny: LogDataset, examples: VerticalExamples, config: ModelConfig) -> VerticalModel:
    torch.manual_seed(0)
    tables = FeatureTables.of(tiny.schema, tiny.encoder, examples.spec)
    return VerticalModel(config, examples.spec, tables, len(examples.objectives)).eval()


def sample(examples: VerticalExamples, num_rows: int = 7, fill: int = 3) -> Arrays:
    return mix_requests(examples, num_rows, np.random.default_rng(1), fill=fill)


@pytest.mark.parametrize("memory", MEMORIES)
def test_serving_one_request_gives_the_logits_of_training(
    tiny: LogDataset, examples: VerticalExamples, memory: MemoryContent
) -> None:
    model = make_model(tiny, examples, ModelConfig(memory=memory, has_pairs=True))
    rows = np.arange(60)
    rows = rows[examples.request_index[rows] < examples.request_index[60]]

    trained = predict(model, examples, rows)
    served = [
        run_torch(model, examples.request_inputs(request))
        for request in np.unique(examples.request_index[rows]).tolist()
    ]

    np.testing.assert_allclose(np.concatenate(served), trained, atol=2e-6)
    assert np.ptp(trained) > 0


@pytest.mark.parametrize("memory", MEMORIES)
def test_permuting_candidates_permutes_scores(
    tiny: LogDataset, examples: VerticalExamples, memory: MemoryContent
) -> None:
    model = make_model(tiny, examples, ModelConfig(memory=memory, has_pairs=True))
    inputs, order = sample(examples), np.array([3, 1, 0, 6, 5, 4, 2])
    permuted = {n: a if n in USER_SIDE else a[order] for n, a in inputs.items()}

    np.testing.assert_allclose(
        run_torch(model, permuted), run_torch(model, inputs)[order], atol=1e-6
    )


def test_what_lies_in_empty_slots_of_the_memory_changes_nothing(
    tiny: LogDataset, examples: VerticalExamples
) -> None:
    model = make_model(tiny, examples, ModelConfig(memory="loopfm"))
    inputs = sample(examples, fill=2)
    dirty = {name: array.copy() for name, array in inputs.items()}
    dirty["memory_z"][:, 2:] = 1
    dirty["memory_age"][:, 2:] = 5
    dirty["memory_match"][:, 2:, 0] = inputs["item_match"][0, 0]

    np.testing.assert_allclose(run_torch(model, dirty), run_torch(model, inputs), atol=1e-6)


def test_a_match_with_the_candidate_changes_its_logit_only(
    tiny: LogDataset, examples: VerticalExamples
) -> None:
    model = make_model(tiny, examples, ModelConfig(memory="loopfm"))
    inputs = sample(examples, fill=2)
    inputs["memory_match"][:] = -1
    matched = {name: array.copy() for name, array in inputs.items()}
    matched["item_match"][:, 0] = np.arange(1000, 1007)
    matched["memory_match"][0, 0, 0] = 1002

    changed = np.abs(run_torch(model, matched) - run_torch(model, inputs)).max(axis=1)

    assert changed[2] > 1e-4
    np.testing.assert_allclose(np.delete(changed, 2), 0, atol=1e-6)


def test_a_demoted_row_is_scored_as_one_without_a_pair(
    tiny: LogDataset, examples: VerticalExamples
) -> None:
    config = ModelConfig(has_pairs=True, pair_demotion_frac=1.0, dropout_frac=0.0)
    model = make_model(tiny, examples, config)
    inputs = sample(examples)
    inputs["pair_tier"][:] = int(Tier.EXACT_PAIR)
    inputs["pair_z"][:] = 0.5
    without = {name: array.copy() for name, array in inputs.items()}
    without["pair_tier"][:] = int(Tier.DEFAULT)
    for name in ("pair_z", "pair_age", "pair_similarity"):
        without[name][:] = 0

    demoted = run_torch(model.train(), inputs)

    np.testing.assert_allclose(demoted, run_torch(model.eval(), without), atol=1e-6)
    assert np.abs(demoted - run_torch(model.eval(), inputs)).max() > 1e-4


@pytest.mark.parametrize("scale", [0.0, 3.0])
def test_distillation_reaches_the_backbone_scaled_and_its_head_unscaled(
    tiny: LogDataset, examples: VerticalExamples, scale: float
) -> None:
    def gradients(scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        model = make_model(tiny, examples, ModelConfig(distill_gradient_scale=scale))
        inputs = {n: torch.from_numpy(a) for n, a in sample(examples).items()}
        model(inputs)[1].sum().backward()
        first = model.backbone.deep[0]
        assert isinstance(first, torch.nn.Linear)
        body, head = first.weight.grad, model.distill_head.weight.grad
        assert head is not None
        return torch.zeros_like(head) if body is None else body, head

    (body, head), (plain_body, plain_head) = gradients(scale), gradients(1.0)

    torch.testing.assert_close(head, plain_head)
    torch.testing.assert_close(body, plain_body * scale)


def test_loss_is_the_weighted_cross_entropy_of_labels_and_scaled_teacher() -> None:
    serving, distilled = torch.tensor([[0.3], [-1.0]]), torch.tensor([[0.1], [0.7]])
    labels, p_f = torch.tensor([[1.0], [0.0]]), torch.tensor([[0.6], [0.2]])
    weights = torch.tensor([1.0, 3.0])

    got = training_loss(
        (serving, distilled), labels, p_f, weights, distill=DistillConfig(weight=2, label_scale=2)
    )

    def entropy(logit: float, target: float) -> float:
        p = 1 / (1 + np.exp(-logit))
        return float(-target * np.log(p) - (1 - target) * np.log(1 - p))

    hard = (entropy(0.3, 1) + 3 * entropy(-1, 0)) / 4
    soft = (entropy(0.1, 1.0) + 3 * entropy(0.7, 0.4)) / 4
    assert got.item() == pytest.approx(hard + 2 * soft, rel=1e-5)


def fit_tiny(tiny: LogDataset, examples: VerticalExamples, config: FitConfig, num_rows: int):  # type: ignore[no-untyped-def]
    tables = FeatureTables.of(tiny.schema, tiny.encoder, examples.spec)
    rows = np.arange(num_rows)
    return fit(examples, tables, config, train=rows, tune=rows)


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_model_learns_a_few_rows_by_heart(
    tiny: LogDataset, examples: VerticalExamples, memory: MemoryContent
) -> None:
    config = FitConfig(
        model=ModelConfig(memory=memory, dropout_frac=0.0),
        optimiser=OptimiserConfig(
            learning_rate=2e-2,
            weight_decay=0,
            embedding_weight_decay=0,
            batch_requests=8,
            max_epochs=60,
            patience=60,
            average_frac=0.5,
        ),
    )

    assert min(fit_tiny(tiny, examples, config, 40).tune_ne) < 0.2


def test_the_same_seed_gives_the_same_model_to_the_last_bit(
    tiny: LogDataset, examples: VerticalExamples
) -> None:
    config = FitConfig(
        model=ModelConfig(memory="loopfm", has_pairs=True),
        optimiser=OptimiserConfig(max_epochs=2, batch_requests=8),
        distill=DistillConfig(),
    )

    one, other = (fit_tiny(tiny, examples, config, 200) for _ in range(2))
    third = fit_tiny(tiny, examples, replace(config, seed=1), 200)

    assert one.tune_ne == other.tune_ne != third.tune_ne
    for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(a, b)
