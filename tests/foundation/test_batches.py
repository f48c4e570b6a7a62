"""Batches hold what each row may see, and refuse what does not fit."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from features.encoding import FIRST, Encoder
from features.errors import DataError
from foundation.assembly import make_builder
from foundation.batches import Examples, keyed_jagged
from foundation.matches import match_features
from tests.foundation.small import CONFIG, tiny_builder, tiny_dataset, tiny_examples, tiny_model

HOUR_MS = 3_600_000


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_lengths_that_do_not_fit_the_values_are_refused_with_feature_and_totals() -> None:
    with pytest.raises(DataError, match=r"batch 7, source 'x': feature 'b' .* to 2, expected 3"):
        keyed_jagged(
            ["a", "b"],
            [ints(1, 2), ints(3, 4, 5)],
            [ints(1, 1), ints(1, 1)],
            where="batch 7, source 'x'",
        )


def test_lengths_for_another_number_of_rows_are_refused() -> None:
    with pytest.raises(DataError, match="feature 'b' has lengths for 1 rows, expected 2"):
        keyed_jagged(["a", "b"], [ints(1), ints(2)], [ints(1, 0), ints(1)], where="batch 0")


def test_negative_lengths_are_refused() -> None:
    with pytest.raises(DataError, match="'a'"):
        keyed_jagged(["a"], [ints(1)], [ints(2, -1)], where="batch 0")


def test_all_lengths_zero_and_no_rows_at_all_are_valid() -> None:
    empty = keyed_jagged(["a", "b"], [ints(), ints()], [ints(0, 0), ints(0, 0)], where="batch 0")
    assert empty.stride() == 2
    assert empty["b"].values().numel() == 0
    nothing = keyed_jagged(["a"], [ints()], [ints()], where="batch 0")
    assert nothing.stride() == 0


@pytest.mark.parametrize(("code", "named"), [(5, 5), (-1, -1)])
def test_a_code_that_its_table_lacks_is_refused_with_feature_table_and_rows(
    code: int, named: int
) -> None:
    tables = {"a": ("words", 5)}
    fits = keyed_jagged(["a"], [ints(0, 4)], [ints(2)], where="batch 0", tables=tables)
    assert fits["a"].values().tolist() == [0, 4]

    said = (
        rf"batch 3: feature 'a', table 'words' of 5 rows: expected codes from 0 to 4, got {named}"
    )
    with pytest.raises(DataError, match=said):
        keyed_jagged(["a"], [ints(0, code)], [ints(2)], where="batch 3", tables=tables)


def test_an_encoder_with_more_values_than_the_models_tables_is_refused_by_the_first_batch() -> None:
    """As when a vocabulary grew after the model was made."""
    dataset = tiny_dataset()
    small = replace(dataset, encoder=Encoder.of_counts(dataset.schema, {"item_id": {"100": 1}}))
    builder = make_builder(small, CONFIG)

    with pytest.raises(
        DataError, match=r"feature 'item_id', table 'item_id' of 4 rows: .* got \d+"
    ):
        builder.build(tiny_examples())


def test_a_batch_of_no_examples_can_be_built() -> None:
    batch = tiny_builder().build(tiny_examples(0, 0))
    assert len(batch) == 0
    assert batch.counts_BC.shape[0] == 0


def test_rows_of_one_request_share_its_events_and_score_as_rows_alone_do() -> None:
    examples, model, builder = tiny_examples(200, 215), tiny_model().eval(), tiny_builder()
    shared = builder.build(examples)
    assert len(shared.age_ms_L) < len(shared.event_M)
    with torch.inference_mode():
        together = model(shared).logits_BA
        alone = torch.cat(
            [model(builder.build(examples.take(slice(n, n + 1)))).logits_BA for n in range(15)]
        )
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


def test_every_event_is_older_than_its_row_and_belongs_to_its_user() -> None:
    dataset, examples = tiny_dataset(), tiny_examples()
    batch = tiny_builder().build(examples)
    assert (batch.age_ms_L > 0).all()
    purchases = dataset.events["purchase"]
    contacts = dataset.events["contact"]
    for row in (0, 30, 59):
        user, at_ms = examples.user_keys[row], examples.at_ms[row]
        known = sum(
            ((e.user_keys == user) & (e.at_ms < at_ms) & (e.arrival_ms <= at_ms)).sum()
            for e in (purchases, contacts)
        )
        length = int(batch.offsets_B[row + 1] - batch.offsets_B[row])
        assert length == min(known, 12)


def test_match_bits_say_which_events_are_of_the_candidate_and_its_kind() -> None:
    dataset, examples = tiny_dataset(), tiny_examples(200, 220)
    batch = tiny_builder().build(examples)
    purchases, items = dataset.events["purchase"], dataset.items
    row = 7
    candidate = examples.item_keys[row]
    kind = items.column("kind")[items.rows(examples.item_keys[row : row + 1])][0]
    assert kind >= FIRST
    known = np.flatnonzero(
        (purchases.user_keys == examples.user_keys[row])
        & (purchases.arrival_ms <= examples.at_ms[row])
        & (purchases.at_ms < examples.at_ms[row])
    )
    part = slice(int(batch.offsets_B[row]), int(batch.offsets_B[row + 1]))
    is_purchase = batch.source_L[batch.event_M[part]] == 0
    bits = batch.matches_MJ[part][is_purchase].numpy()
    newest = known[np.argsort(purchases.at_ms[known])][-len(bits) :]
    assert bits[:, 0].tolist() == (purchases.item_keys[newest] == candidate).tolist()
    kinds = items.column("kind")[items.rows(purchases.item_keys[newest])]
    assert bits[:, 1].tolist() == (kinds == kind).tolist()
    assert not batch.matches_MJ[part][~is_purchase].any()
    assert batch.matches_MJ[:, 1].any()


def test_context_that_is_absent_counts_as_null() -> None:
    examples = tiny_examples(200, 204)
    bare = Examples(
        user_keys=examples.user_keys,
        item_keys=examples.item_keys,
        at_ms=examples.at_ms,
        codes={},
        numeric={},
    )
    batch = tiny_builder().build(bare)
    assert batch.set_codes["slot"].values().tolist() == [1, 1, 1, 1]
    assert batch.set_codes["surface"].values().tolist() == [1, 1, 1, 1]


def test_match_counts_equal_a_plain_loop() -> None:
    events = np.array([[1, 10], [2, 10], [1, 11], [3, 12]])
    ages = ints(48, 24, 12, 5) * HOUR_MS
    candidates = np.array([[1, 10], [9, 12], [2, 99]])
    request, offsets = ints(0, 0, 1), ints(0, 3, 4)
    got = match_features(candidates, request, events, ages, offsets, half_lives_days=(1.0,))
    expected = []
    for row, candidate in enumerate(candidates):
        seen = range(offsets[request[row]], offsets[request[row] + 1])
        for key in (0, 1, None):
            hits = [e for e in seen if key is None or events[e, key] == candidate[key]]
            expected.append(np.log1p(len(hits)))
            expected.append(np.log1p(sum(0.5 ** (ages[e] / (24 * HOUR_MS)) for e in hits)))
            expected.append(np.log1p(ages[hits[-1]] / HOUR_MS) if hits else 0.0)
    np.testing.assert_allclose(got.ravel(), expected, rtol=1e-6)
    assert np.count_nonzero(got)
