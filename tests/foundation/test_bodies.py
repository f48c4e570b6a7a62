"""Every architecture: the same inputs and outputs, its own FLOPs, and no way to cheat."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from features.histories import HistoryIndex
from foundation.assembly import build_model, make_builder
from foundation.batches import FmBatch
from foundation.model.flops import num_causal_pairs, num_full_pairs, num_window_pairs
from foundation.model.foundation import FoundationModel
from foundation.model.interface import Encoded
from foundation.rivals.dcn import DcnConfig
from foundation.rivals.din import DinConfig
from foundation.rivals.hstu import HstuConfig
from foundation.rivals.interformer import InterFormerConfig
from foundation.rivals.wukong import WukongConfig
from tests.foundation.small import BODY, CONFIG, tiny_builder, tiny_dataset, tiny_examples

BODIES: dict[str, Any] = {
    "kunlun": BODY,
    "kunlun, CompSkip": replace(BODY, comp_skip=True, num_layers=3),
    "kunlun, experts": replace(BODY, num_experts=2),
    "kunlun, linear feed-forward": replace(BODY, feed_forward="linear"),
    "kunlun, shared feed-forward": replace(BODY, feed_forward="shared"),
    "kunlun, no feed-forward": replace(BODY, feed_forward="none"),
    "kunlun, full attention": replace(BODY, attention="full"),
    "kunlun, no attention": replace(BODY, attention="none"),
    "kunlun, places only": replace(BODY, rotary="place"),
    "kunlun, no rotary": replace(BODY, rotary="none"),
    "kunlun, PMA": replace(BODY, pooling="pma"),
    "kunlun, mean": replace(BODY, pooling="mean"),
    "dcn": DcnConfig(num_cross=2, rank=4, deep=(16, 8)),
    "din": DinConfig(unit=8, deep=(16, 8)),
    "hstu": HstuConfig(num_heads=2),
    "interformer": InterFormerConfig(num_heads=2, hidden=16),
    "wukong": WukongConfig(num_layers=2, rank=4, hidden=16),
}
NO_ATTENTION = [
    "kunlun, no attention",
    "kunlun, experts",
    "kunlun, linear feed-forward",
    "kunlun, shared feed-forward",
    "kunlun, PMA",
    "dcn",
    "din",
    "wukong",
]


@pytest.fixture(params=BODIES)
def model(request: pytest.FixtureRequest) -> FoundationModel:
    return new(BODIES[request.param])


def new(body: Any) -> FoundationModel:
    torch.manual_seed(0)
    return build_model(tiny_dataset(), replace(CONFIG, body=body))


def encoded(num_rows: int, length: int, num_tokens: int) -> Encoded:
    rng = torch.Generator().manual_seed(1)
    return Encoded(
        tokens_BND=torch.randn(num_rows, num_tokens, 16, generator=rng),
        events_MD=torch.randn(num_rows * length, 16, generator=rng),
        offsets_B=torch.arange(num_rows + 1) * length,
        age_ms_M=torch.rand(num_rows * length, generator=rng) * 1e9,
        num_item_features=3,
    )


def without_history() -> FmBatch:
    dataset = tiny_dataset()
    nothing = {name: events.take(np.arange(0)) for name, events in dataset.events.items()}
    return make_builder(dataset, CONFIG, HistoryIndex.build(nothing)).build(tiny_examples(200, 205))


def test_permuting_rows_permutes_answers(model: FoundationModel) -> None:
    builder, examples = tiny_builder(), tiny_examples(200, 230)
    order = np.random.default_rng(0).permutation(30)
    with torch.inference_mode():
        straight = model.eval()(builder.build(examples)).logits_BA
        shuffled = model(builder.build(examples.take(order))).logits_BA
    torch.testing.assert_close(shuffled, straight[order], rtol=1e-4, atol=1e-5)
    assert straight.std() > 0


def test_a_row_alone_scores_as_it_does_among_others(model: FoundationModel) -> None:
    builder, examples = tiny_builder(), tiny_examples(200, 212)
    with torch.inference_mode():
        together = model.eval()(builder.build(examples)).logits_BA
        alone = [model(builder.build(examples.take(slice(i, i + 1)))).logits_BA for i in range(12)]
    # HSTU divides by the longest row of its batch, as published.
    tolerance = 5e-2 if model.config.body.kind == "hstu" else 1e-4
    torch.testing.assert_close(torch.cat(alone), together, rtol=tolerance, atol=tolerance)


def test_rows_without_history_have_finite_answers_and_gradients(model: FoundationModel) -> None:
    output = model(without_history())
    (output.logits_BA.square().sum() + output.reconstruction).backward()
    assert torch.isfinite(output.logits_BA).all()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.integration  # of the time that it takes
def test_a_few_rows_can_be_learnt_by_heart(model: FoundationModel) -> None:
    batch = tiny_builder().build(tiny_examples(200, 224))
    labels = torch.tensor(tiny_dataset().impressions.labels["click"][200:224])
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(80):
        optimiser.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(model(batch).logits_BA[:, 0], labels)
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.1


def test_what_a_model_gives_changes_with_its_events(model: FoundationModel) -> None:
    x = encoded(3, 6, model.interface.num_tokens)
    changed = replace(x, events_MD=x.events_MD + torch.tensor([[0.0] * 15 + [2.0]]))
    with torch.inference_mode():
        one, other = model.eval().body(x), model.body(changed)
    assert one.shape == (3, model.body.out_width)
    assert not torch.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("name", NO_ATTENTION)
def test_counted_flops_are_the_formula_where_nothing_is_padded(name: str) -> None:
    body = BODIES[name]
    if body.kind == "kunlun":
        body = replace(body, attention="none")
    model = new(body)
    x = encoded(4, 8, model.interface.num_tokens)
    # PyTorch counts nothing for its fused attention on a CPU.
    with (
        torch.inference_mode(),
        sdpa_kernel(SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        model.eval().body(x)
    assert model.body.flops(torch.full((4,), 8)) == pytest.approx(counter.get_total_flops())


def test_flops_of_inputs_and_readout_are_those_counted() -> None:
    model = new(BODIES["dcn"])
    batch = tiny_builder().build(tiny_examples(200, 216))
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        x, dense_BG = model.eval().inputs(batch)
    assert model.inputs.flops(batch) == pytest.approx(counter.get_total_flops())
    body_BW = model.body(x)
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        hidden = model.readout.trunk(torch.cat((body_BW, dense_BG), dim=1))
        model.readout.heads(hidden)
    assert model.readout.flops(16) == pytest.approx(counter.get_total_flops())
    lengths = batch.offsets_B[1:] - batch.offsets_B[:-1]
    parts = model.inputs.flops(batch) + model.body.flops(lengths) + model.readout.flops(16)
    assert model.flops(batch) == parts


@pytest.mark.parametrize("half_window", [1, 3, 50])
def test_pairs_are_those_that_a_loop_counts(half_window: int) -> None:
    lengths = torch.tensor([0, 1, 2, 5, 9])
    window = full = causal = 0
    for length in lengths.tolist():
        for i in range(length):
            for j in range(length):
                window += abs(i - j) <= half_window
                full += 1
                causal += j <= i
    assert num_window_pairs(lengths, half_window) == window
    assert num_full_pairs(lengths) == full
    assert num_causal_pairs(lengths) == causal


def test_windows_cost_what_grows_with_the_length_and_full_attention_with_its_square() -> None:
    def attention_flops(attention: str, length: int) -> float:
        with_it, without = (new(replace(BODY, attention=kind)).body for kind in (attention, "none"))
        lengths = torch.tensor([length])
        projections = 8.0 * length * 16**2
        return with_it.flops(lengths) - without.flops(lengths) - projections

    window = [attention_flops("window", length) for length in (256, 512, 1024)]
    full = [attention_flops("full", length) for length in (256, 512, 1024)]
    assert window[2] / window[1] == pytest.approx(2, rel=0.01)
    assert full[2] / full[1] == pytest.approx(4, rel=0.01)


def test_skipping_layers_saves_more_than_two_fifths() -> None:
    lengths = torch.full((4,), 200)
    every = new(replace(BODY, num_layers=3)).body.flops(lengths)
    skipping = new(replace(BODY, num_layers=3, comp_skip=True)).body.flops(lengths)
    assert skipping < 0.75 * every


def test_experts_divide_the_tokens_and_still_reach_one_another() -> None:
    model = new(replace(BODY, num_experts=2, feed_forward="none", attention="none"))
    x = encoded(2, 4, model.interface.num_tokens)
    tokens: Tensor = x.tokens_BND.clone().requires_grad_()
    model.body(replace(x, tokens_BND=tokens))[:, :16].square().sum().backward()
    assert tokens.grad is not None
    assert (tokens.grad.abs().sum(-1) > 0).all()
