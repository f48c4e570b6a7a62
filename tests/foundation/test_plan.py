"""Plans of batches, and requests dealt out to ranks."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.histories import HistoryIndex
from features.log import Events
from foundation.balance import CostModel, assign
from foundation.plan import BatchBudget, BatchPlan, history_tokens, plan_batches, request_starts
from tests.foundation.small import tiny_dataset

requests = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 40)), max_size=30)


def plan_of(sizes_and_tokens: list[tuple[int, int]], budget: BatchBudget) -> BatchPlan:
    sizes = np.array([size for size, _ in sizes_and_tokens], dtype=np.int64)
    tokens = np.array([each for _, each in sizes_and_tokens], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    return plan_batches(starts, tokens, int(sizes.sum()), budget)


@given(given_requests=requests, max_rows=st.integers(1, 20), max_tokens=st.integers(1, 120))
def test_every_row_is_in_one_batch_within_the_budget_and_requests_stay_whole(
    given_requests: list[tuple[int, int]], max_rows: int, max_tokens: int
) -> None:
    plan = plan_of(given_requests, BatchBudget(max_rows=max_rows, max_tokens=max_tokens))

    num_rows = sum(size for size, _ in given_requests)
    each = np.repeat([t for _, t in given_requests], [s for s, _ in given_requests])
    request = np.repeat(np.arange(len(given_requests)), [s for s, _ in given_requests])
    bounds = plan.bounds.tolist()
    assert bounds[0] == 0
    assert bounds[-1] == num_rows
    assert (np.diff(plan.bounds) > 0).all()
    oversize = split = 0
    for k, (first, last) in enumerate(itertools.pairwise(bounds)):
        assert last - first <= max_rows
        assert plan.tokens[k] == each[first:last].sum()
        oversize += plan.tokens[k] > max_tokens
        if plan.tokens[k] > max_tokens:
            assert last - first == 1
    for place, (size, tokens) in enumerate(given_requests):
        fits = size <= max_rows and size * tokens <= max_tokens
        inside = [
            b for b in bounds[1:-1] if 0 < b < num_rows and request[b - 1] == request[b] == place
        ]
        split += bool(inside)
        assert not (fits and inside)
    assert (plan.num_oversize, plan.num_split) == (oversize, split)


def test_a_batch_is_as_full_as_the_next_request_lets_it_be() -> None:
    plan = plan_of([(4, 10), (4, 10), (4, 10), (1, 100)], BatchBudget(max_rows=8, max_tokens=100))

    assert plan.bounds.tolist() == [0, 8, 12, 13]
    assert plan.tokens.tolist() == [80, 40, 100]


def test_the_name_of_a_plan_changes_with_its_bounds_only() -> None:
    budget = BatchBudget(max_rows=8, max_tokens=100)
    one, same = plan_of([(4, 10), (5, 10)], budget), plan_of([(4, 9), (5, 9)], budget)
    other = plan_of([(5, 10), (4, 10)], budget)

    assert one.plan_id == same.plan_id != other.plan_id


@pytest.mark.parametrize("name", ["max_rows", "max_tokens"])
def test_a_budget_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected 1 or more, got 0"):
        BatchBudget(**{"max_rows": 1, "max_tokens": 1, name: 0})


def test_tokens_are_the_events_that_the_builder_would_merge_and_the_row() -> None:
    dataset = tiny_dataset()
    shown = dataset.impressions.take(np.arange(0, 300))
    starts = request_starts(shown.user_keys, shown.at_ms)
    histories = dataset.histories()
    users, at_ms = shown.user_keys[starts], shown.at_ms[starts]

    tokens = history_tokens(dataset.schema, histories, users, at_ms, max_events=6)

    lengths = np.zeros(len(starts), dtype=np.int64)
    for source in dataset.schema.sources:
        part = histories.visible(source.name, users, at_ms, max_length=min(source.max_length, 6))
        lengths += part.lengths
    np.testing.assert_array_equal(tokens, np.minimum(lengths, 6) + 1)
    assert tokens.max() == 7


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(0, 9)), max_size=30),
    asked=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), max_size=6),
    cut=st.integers(0, 30),
)
def test_lengths_are_those_of_the_histories_without_copying_them(
    rows: list[tuple[int, int, int]], asked: list[tuple[int, int]], cut: int
) -> None:
    def events(part: list[tuple[int, int, int]]) -> Events:
        columns = np.array(part, dtype=np.int64).reshape(-1, 3).T
        user_keys, at_ms, delay = columns
        return Events(
            user_keys=user_keys,
            at_ms=at_ms,
            arrival_ms=at_ms + delay,
            item_keys=None,
            codes={},
            numeric={},
        )

    index = HistoryIndex.build({"x": events(rows[:cut])})
    index.append("x", events(rows[cut:]))
    users = np.array([user for user, _ in asked], dtype=np.int64)
    at_ms = np.array([tick for _, tick in asked], dtype=np.int64)

    for length in (1, 3, 99):
        found = index.lengths("x", users, at_ms, max_length=length)
        expected = index.visible("x", users, at_ms, max_length=length).lengths
        assert found.tolist() == expected.tolist()


@given(
    costs=st.lists(st.floats(0, 1e6), max_size=60),
    num_ranks=st.integers(1, 9),
)
def test_every_request_has_a_rank_and_the_longest_comes_within_four_thirds_of_the_bound(
    costs: list[float], num_ranks: int
) -> None:
    found = assign(np.array(costs), num_ranks)

    assert len(found.rank_R) == len(costs)
    assert len(found.cost_W) == num_ranks
    assert ((found.rank_R >= 0) & (found.rank_R < num_ranks)).all()
    np.testing.assert_allclose(found.cost_W.sum(), sum(costs), rtol=1e-9)
    longest = sorted(costs, reverse=True)
    bound = max(sum(costs) / num_ranks, longest[0] if costs else 0.0)
    if len(costs) > num_ranks:
        bound = max(bound, longest[num_ranks - 1] + longest[num_ranks])
    assert found.cost_W.max() <= 4 / 3 * bound + 1e-6
    assert assign(np.array(costs), num_ranks).rank_R.tolist() == found.rank_R.tolist()


@pytest.mark.parametrize("num_ranks", [2, 8, 32])
@pytest.mark.parametrize("cost", [CostModel(), CostModel(per_token=1.0, per_token_pair=0.01)])
def test_zipf_lengths_are_balanced_within_five_per_cent(num_ranks: int, cost: CostModel) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        tokens = np.minimum(rng.zipf(1.2, 64 * num_ranks), 1024)
        found = assign(cost.cost(tokens, rng.integers(5, 20, len(tokens))), num_ranks)
        by_turns = np.bincount(np.arange(len(tokens)) % num_ranks, weights=tokens)

        assert found.imbalance <= 1.05
        assert found.imbalance < by_turns.max() / by_turns.mean()


def test_ranks_without_a_request_take_part_with_nothing() -> None:
    found = assign(np.array([3.0]), 4)

    assert found.cost_W.tolist() == [3.0, 0.0, 0.0, 0.0]
    assert assign(np.zeros(8), 4).rank_R.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]


def test_costs_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="costs of 0 or more"):
        assign(np.array([1.0, float("nan")]), 2)
    with pytest.raises(ValueError, match="num_ranks: expected 1 or more, got 0"):
        assign(np.zeros(1), 0)
