"""Micro-batches: everything once, users together, never over the budget."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precompute.scoring import MicroBatchBudget, plan_micro_batches
from tests.precompute.fakes import FakeLog, ask, buy
from tests.precompute.rig import Rig

ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 50)), max_size=40)


def plan(rows: list[tuple[int, int]], budget: MicroBatchBudget) -> list[list[int]]:
    users = np.array([user for user, _ in rows], dtype=np.int64)
    tokens = np.array([cost for _, cost in rows], dtype=np.int64)
    return [batch.tolist() for batch in plan_micro_batches(users, tokens, budget=budget)]


@given(ROWS, st.integers(1, 10), st.integers(1, 100))
def test_every_row_is_in_exactly_one_batch_within_the_budget(
    rows: list[tuple[int, int]], max_rows: int, max_tokens: int
) -> None:
    batches = plan(rows, MicroBatchBudget(max_rows=max_rows, max_tokens=max_tokens))
    assert sorted(row for batch in batches for row in batch) == list(range(len(rows)))
    for batch in batches:
        assert 1 <= len(batch) <= max_rows
        assert sum(rows[row][1] for row in batch) <= max_tokens or len(batch) == 1


def test_rows_of_one_user_are_side_by_side_and_not_cut_without_need() -> None:
    rows = [(1, 10), (2, 10), (1, 10), (2, 10), (3, 10)]
    assert plan(rows, MicroBatchBudget(max_rows=3, max_tokens=1000)) == [[0, 2], [1, 3, 4]]


def test_a_user_larger_than_the_budget_is_cut() -> None:
    rows = [(1, 10)] * 5
    batches = plan(rows, MicroBatchBudget(max_rows=100, max_tokens=20))
    assert batches == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("limits", [{"max_rows": 0}, {"max_tokens": 0}])
def test_a_budget_that_holds_nothing_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected 1 or more"):
        MicroBatchBudget(**limits)


def test_a_long_history_makes_smaller_micro_batches() -> None:
    history = [buy(1, item, item) for item in range(1, 31)]
    rig = Rig(FakeLog([*history, ask(1, [1, 2, 3, 4], 100)]), max_events=100).run()
    # 30 events and the example itself cost 31 of 40 tokens: one row at a time.
    assert rig.model.batch_sizes[-4:] == [1, 1, 1, 1]
    assert rig.model.batch_sizes[0] > 1


def test_a_request_without_a_context_column_is_refused_by_name() -> None:
    request = ask(1, [1, 2], 100)
    request.codes.clear()
    rig = Rig(FakeLog([request])).run()
    (letter,) = rig.log.letters.values()
    assert "'r1-100': no context ['surface']" in letter.reason
