"""Lookup tiers against a loop over candidates and entries."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.arrays import FloatArray, IntArray
from features.encoding import FIRST, NULL, UNKNOWN
from features.lookup import LookupRule, PairLookup, PairState, Tier, resolve_pairs

NOW = 1000
RULE = LookupRule(soft_ttl_ms=20, hard_ttl_ms=60)
TABLES = ("z", "tier", "age_ms", "similarity", "is_stale")
Mean = tuple[FloatArray, int]


def vector(seed: int) -> FloatArray:
    return np.random.default_rng(abs(seed)).uniform(-1, 1, 3).astype(np.float32)


def state(*pairs: tuple[int, int, int]) -> PairState:
    """Give pairs of (item, similarity code, time), each with a vector of its own."""
    columns = np.array(pairs, dtype=np.int64).reshape(-1, 3)
    return PairState(
        item_keys=columns[:, 0],
        similarity_codes=columns[:, 1],
        at_ms=columns[:, 2],
        z=np.array([vector(7 * i + t) for i, _, t in pairs], dtype=np.float32).reshape(-1, 3),
    )


def means_of(at_ms: list[int]) -> tuple[FloatArray, IntArray]:
    z = np.array([vector(50 + i) for i in range(len(at_ms))], dtype=np.float32).reshape(-1, 3)
    return z, np.array(at_ms, dtype=np.int64)


def resolve_in_a_loop(
    items: list[int],
    codes: list[int],
    pairs: PairState,
    user: Mean | None,
    means: tuple[FloatArray, IntArray],
    rule: LookupRule,
) -> PairLookup:
    """The rule once more, one candidate and one entry at a time."""

    def is_visible(at: int) -> bool:
        return NOW - rule.hard_ttl_ms <= at < NOW

    columns = (pairs.item_keys, pairs.similarity_codes, pairs.at_ms)
    seen = [
        (int(item), int(code), int(at), pairs.z[i])
        for i, (item, code, at) in enumerate(zip(*columns, strict=True))
        if is_visible(at)
    ]
    seen.sort(key=lambda entry: (-entry[2], entry[0]))
    rows = []
    for i, (item, code) in enumerate(zip(items, codes, strict=True)):
        found = {Tier.DEFAULT: (np.zeros(3, dtype=np.float32), NOW + 1, 0.0)}
        for its_item, its_code, at, z in reversed(seen):
            if its_item == item:
                found[Tier.EXACT_PAIR] = (z, at, 1.0)
            elif its_code == code >= FIRST:
                found[Tier.SAME_USER_SIMILAR_ITEM] = (z, at, 0.5)
        if user is not None and is_visible(user[1]):
            found[Tier.USER_AGGREGATE] = (*user, 0.0)
        if is_visible(means[1][i]):
            found[Tier.ITEM_AGGREGATE] = (means[0][i], int(means[1][i]), 0.0)
        tier = min(t for t in found if t in rule.allowed_tiers | {Tier.DEFAULT})
        z, at, similarity = found[tier]
        rows.append((z, tier, NOW - at, similarity, NOW - at > rule.soft_ttl_ms))
    return PairLookup(
        z=np.array([row[0] for row in rows]),
        tier=np.array([row[1] for row in rows], dtype=np.int64),
        age_ms=np.array([row[2] for row in rows], dtype=np.int64),
        similarity=np.array([row[3] for row in rows], dtype=np.float32),
        is_stale=np.array([row[4] for row in rows], dtype=np.bool_),
    )


def assert_equal(got: PairLookup, expected: PairLookup) -> None:
    for name in TABLES:
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name), err_msg=name)


moments = st.sampled_from([900, 939, 940, 941, 960, 979, 980, 981, 998, 999, 1000, 1001])
codes = st.sampled_from([NULL, UNKNOWN, FIRST, FIRST + 1])
tiers = st.frozensets(st.sampled_from(Tier))


@settings(max_examples=300)
@given(st.data())
def test_it_agrees_with_a_loop_over_everything(data: st.DataObject) -> None:
    drawn = data.draw(
        st.lists(st.tuples(st.integers(0, 5), codes, moments), max_size=8, unique_by=lambda p: p[0])
    )
    candidates = data.draw(st.lists(st.tuples(st.integers(0, 7), codes), min_size=1, max_size=6))
    items, own_codes = [list(column) for column in zip(*candidates, strict=True)]
    at = data.draw(st.lists(st.just(-1) | moments, min_size=len(items), max_size=len(items)))
    user = data.draw(st.none() | moments.map(lambda moment: (vector(99), moment)))
    rule = replace(RULE, allowed_tiers=data.draw(tiers))

    got = resolve_pairs(
        np.array(items),
        np.array(own_codes),
        at_ms=NOW,
        pairs=state(*drawn),
        user_aggregate=user,
        item_aggregates=means_of(at),
        rule=rule,
    )

    expected = resolve_in_a_loop(items, own_codes, state(*drawn), user, means_of(at), rule)
    assert_equal(got, expected)


def resolve_one(
    pairs: PairState, *, user_at: int | None = None, item_at: int = -1, rule: LookupRule = RULE
) -> PairLookup:
    """Look up item 1 of code FIRST."""
    return resolve_pairs(
        np.array([1]),
        np.array([FIRST]),
        at_ms=NOW,
        pairs=pairs,
        user_aggregate=None if user_at is None else (vector(99), user_at),
        item_aggregates=means_of([item_at]),
        rule=rule,
    )


def test_the_best_tier_with_something_visible_answers() -> None:
    exact, similar = (1, FIRST, 990), (2, FIRST, 995)
    found = [
        resolve_one(state(exact, similar), user_at=999, item_at=999),
        resolve_one(state(similar), user_at=999, item_at=999),
        resolve_one(state(), user_at=999, item_at=998),
        resolve_one(state(), item_at=998),
        resolve_one(state()),
    ]

    assert [int(f.tier[0]) for f in found] == [1, 2, 4, 5, 6]
    assert [int(f.age_ms[0]) for f in found] == [10, 5, 1, 2, -1]
    assert [float(f.similarity[0]) for f in found] == [1.0, 0.5, 0.0, 0.0, 0.0]
    assert found[0].z.tolist() == [state(exact).z[0].tolist()]
    assert found[4].z.tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("at_ms", "tier", "is_stale"),
    [
        (1001, Tier.DEFAULT, False),
        (1000, Tier.DEFAULT, False),
        (999, Tier.EXACT_PAIR, False),
        (980, Tier.EXACT_PAIR, False),
        (979, Tier.EXACT_PAIR, True),
        (940, Tier.EXACT_PAIR, True),
        (939, Tier.DEFAULT, False),
    ],
)
def test_entries_from_now_on_and_beyond_the_hard_limit_are_invisible(
    at_ms: int, tier: Tier, is_stale: bool
) -> None:
    found = resolve_one(state((1, FIRST, at_ms)))

    assert found.tier.tolist() == [tier]
    assert found.is_stale.tolist() == [is_stale]


def test_what_happens_at_or_after_the_request_changes_nothing() -> None:
    before, later = state((1, FIRST, 970), (2, FIRST, 980)), (3, FIRST, 1000)

    with_it = resolve_one(
        state((1, FIRST, 970), (2, FIRST, 980), later), user_at=1000, item_at=1001
    )

    assert_equal(with_it, resolve_one(before))


def test_a_demoted_candidate_does_not_get_its_own_vector_as_that_of_a_similar_item() -> None:
    demoted = replace(RULE, allowed_tiers=frozenset(Tier) - {Tier.EXACT_PAIR})

    alone = resolve_one(state((1, FIRST, 990)), rule=demoted)
    beside = resolve_one(state((1, FIRST, 990), (2, FIRST, 980)), rule=demoted)

    assert alone.tier.tolist() == [Tier.DEFAULT]
    assert beside.tier.tolist() == [Tier.SAME_USER_SIMILAR_ITEM]
    assert beside.age_ms.tolist() == [20]


def test_the_order_of_pairs_and_candidates_does_not_matter() -> None:
    rng = np.random.default_rng(5)
    pairs = state(*[(i, int(rng.integers(0, 6)), int(rng.integers(930, 1001))) for i in range(40)])
    items, own_codes = rng.integers(0, 60, 50), rng.integers(0, 6, 50)
    z, at = means_of(rng.integers(930, 1001, 50).tolist())
    rows, places = rng.permutation(50), rng.permutation(40)

    def resolve(rows: IntArray, pairs: PairState) -> PairLookup:
        return resolve_pairs(
            items[rows],
            own_codes[rows],
            at_ms=NOW,
            pairs=pairs,
            user_aggregate=None,
            item_aggregates=(z[rows], at[rows]),
            rule=RULE,
        )

    straight = resolve(np.arange(50), pairs)
    shuffled = resolve(rows, pairs.take(places))

    assert_equal(shuffled, PairLookup(**{n: getattr(straight, n)[rows] for n in TABLES}))
    assert len(set(straight.tier.tolist())) == 4


def test_no_candidates_are_no_answers() -> None:
    none = np.zeros(0, dtype=np.int64)
    found = resolve_pairs(
        none,
        none,
        at_ms=NOW,
        pairs=PairState.empty(3),
        user_aggregate=None,
        item_aggregates=means_of([]),
        rule=RULE,
    )

    assert found.z.shape == (0, 3)
    assert found.tier.shape == (0,)
