"""Each block is its formula, and the whole model learns, forgets nothing and leaks nothing."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from features.histories import HistoryIndex
from features.log import Events
from foundation.assembly import make_builder
from foundation.batches import FmBatch
from foundation.model.attention import SelfAttention
from foundation.model.bottleneck import Bottleneck
from foundation.model.config import ModelConfig
from foundation.model.events import AgeEncoding, EventAggregator
from foundation.model.interaction import Wukong
from foundation.model.pffn import WeightGeneration, pffn_block
from foundation.model.pooling import Pooling
from tests.foundation.small import (
    CONFIG,
    tiny_builder,
    tiny_dataset,
    tiny_examples,
    tiny_model,
)

OFFSETS = torch.tensor([0, 3, 3, 5])
D, H, F = 8, 2, 3


def rms(x: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + torch.finfo(x.dtype).eps)


def test_the_personalised_network_follows_the_published_order_of_norms() -> None:
    torch.manual_seed(0)
    events, keys, values = (
        torch.randn(5, D),
        torch.randn(3, F, H, D // H),
        torch.randn(3, F, H, D // H),
    )
    got = pffn_block(events, keys, values, OFFSETS)
    row_of = [0, 0, 0, 2, 2]
    for event in range(5):
        q = events[event]
        u = (q - q.mean()) / torch.sqrt(q.var(unbiased=False) + 1e-5)
        parts = []
        for head in range(H):
            u_h = u[head * D // H : (head + 1) * D // H]
            k, v = keys[row_of[event], :, head], values[row_of[event], :, head]
            scores = functional.gelu((rms(k) @ u_h) * (D // H) ** -0.5, approximate="tanh")
            parts.append(scores @ v)
        torch.testing.assert_close(got[event], rms(torch.cat(parts) + u) + q, rtol=1e-4, atol=1e-5)


def test_generated_weights_differ_by_row_and_depend_on_every_token() -> None:
    torch.manual_seed(0)
    block = WeightGeneration(4, summary_tokens=2, generated=F, width=D, num_heads=H)
    tokens = torch.randn(2, 4, D, requires_grad=True)
    keys, values = block(tokens)
    assert keys.shape == values.shape == (2, F, H, D // H)
    (keys[0].square().sum() + values[0].square().sum()).backward()
    assert tokens.grad is not None
    assert (tokens.grad[0].abs().sum(-1) > 0).all()
    assert not tokens.grad[1].any()


def test_the_factorisation_machine_is_the_matrix_of_dot_products_projected() -> None:
    torch.manual_seed(0)
    block = Wukong(5, 4, width=D, rank=3, hidden=16)
    tokens = torch.randn(2, 5, D)
    dots = torch.matmul(tokens, tokens.mT) @ block.y_MR * D**-0.5
    machine = block.machine(dots.flatten(1)).unflatten(-1, (-1, D))
    linear = torch.einsum("nm,bmd->bnd", block.compress.weight, tokens)
    linear = linear + block.compress.bias[None, :, None]
    expected = block.norm(torch.cat((machine, linear), 1) + tokens[:, :4])
    torch.testing.assert_close(block(tokens), expected, rtol=1e-4, atol=1e-5)


def test_attention_and_pooling_of_a_row_do_not_depend_on_other_rows() -> None:
    torch.manual_seed(0)
    attention = SelfAttention(width=D, num_heads=H, half_window=2)
    pooling = Pooling("hsp", width=D, num_heads=H, num_seeds=3, num_pooled=2, rank=2)
    events, ages = torch.randn(5, D), torch.rand(5) * 1e9
    changed = events.clone()
    changed[3:] += 1.0
    one, two = (attention(x, OFFSETS, ages) for x in (events, changed))
    torch.testing.assert_close(one[:3], two[:3], rtol=0, atol=0)
    assert not torch.equal(one[3:], two[3:])
    first, second = (pooling(x, OFFSETS) for x in (events, changed))
    torch.testing.assert_close(first[:2], second[:2], rtol=0, atol=0)
    assert not torch.equal(first[2], second[2])
    assert not first[1].any()


def test_ages_between_two_knots_are_mixed_linearly() -> None:
    encoding = AgeEncoding(width=D, num_knots=8)
    hours = torch.tensor([0.0, 1.0, 2.0**1.5 - 1.0, 1e9])
    got = encoding(hours * 3_600_000.0)
    knots = encoding.knots.weight
    torch.testing.assert_close(got[0], knots[0])
    torch.testing.assert_close(got[1], knots[1])
    torch.testing.assert_close(got[2], 0.5 * (knots[1] + knots[2]), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(got[3], knots[7], rtol=1e-1, atol=1e-3)


def test_an_aggregator_mixes_every_column_of_its_source() -> None:
    aggregator = EventAggregator(1, width=D)
    columns = [torch.randn(4, D) for _ in range(2)]
    before = aggregator(columns, torch.zeros(4, 1))
    assert before.shape == (4, D)
    assert not torch.allclose(before, aggregator(columns, torch.ones(4, 1)))
    assert not torch.allclose(before, aggregator([columns[0], columns[1] + 1], torch.zeros(4, 1)))


def test_the_bottleneck_never_trains_what_it_compresses() -> None:
    block = Bottleneck(6, dim=4, prefixes=(2, 4))
    hidden = torch.randn(5, 6, requires_grad=True)
    z, loss = block(hidden)
    loss.backward()
    assert hidden.grad is None
    assert z.abs().max() <= 1
    decoded = [block.decode(z * torch.tensor([1.0, 1.0, on, on])) for on in (0.0, 1.0)]
    expected = sum(functional.mse_loss(d, hidden.detach()) for d in decoded) / 2
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"width": 15}, "width"),
        ({"bottleneck_dim": 7}, "bottleneck_prefixes"),
        ({"max_events": 0}, "max_events"),
        ({"wdith": 16}, "wdith"),
        ({"body": {"kind": "kunlun", "num_layers": 0}}, "num_layers"),
        ({"body": {"kind": "kunlun", "num_layers": 2, "comp_skip": True}}, "an odd number, got 2"),
        ({"body": {"kind": "kunlun", "num_experts": 0}}, "num_experts"),
        ({"body": {"kind": "hstu", "num_heads": 7}}, "multiple of 7"),
        ({"body": {"kind": "bert"}}, "bert"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_by_name(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ModelConfig(**change)


def test_the_model_overfits_a_tiny_batch() -> None:
    model, batch = tiny_model(), tiny_builder().build(tiny_examples(200, 232))
    labels = torch.tensor(tiny_dataset().impressions.labels["click"][200:232])
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(120):
        optimiser.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(model(batch).logits_BA[:, 0], labels)
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.02


def test_permuting_rows_permutes_answers() -> None:
    model, builder, examples = tiny_model().eval(), tiny_builder(), tiny_examples(200, 230)
    order = np.random.default_rng(0).permutation(30)
    with torch.inference_mode():
        straight = model(builder.build(examples))
        shuffled = model(builder.build(examples.take(order)))
    torch.testing.assert_close(shuffled.logits_BA, straight.logits_BA[order], rtol=1e-4, atol=1e-5)
    assert straight.logits_BA.std() > 0


def test_what_happens_after_a_row_changes_nothing_in_it() -> None:
    dataset, examples, model = tiny_dataset(), tiny_examples(200, 230), tiny_model().eval()
    until_ms = int(examples.at_ms.max())
    later = {name: _replaced_after(events, until_ms) for name, events in dataset.events.items()}
    builder = make_builder(dataset, CONFIG, HistoryIndex.build(later))
    with torch.inference_mode():
        before = model(tiny_builder().build(examples)).logits_BA
        after = model(builder.build(examples)).logits_BA
    assert torch.equal(before, after)


def _replaced_after(events: Events, until_ms: int) -> Events:
    return events.take(np.flatnonzero(events.at_ms < until_ms))


def test_a_row_without_history_has_a_finite_answer_and_gradient() -> None:
    dataset, model = tiny_dataset(), tiny_model()
    nothing = {name: events.take(np.arange(0)) for name, events in dataset.events.items()}
    builder = make_builder(dataset, CONFIG, HistoryIndex.build(nothing))
    batch: FmBatch = builder.build(tiny_examples(200, 205))
    output = model(batch)
    (output.logits_BA.square().sum() + output.reconstruction).backward()
    assert torch.isfinite(output.logits_BA).all()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
