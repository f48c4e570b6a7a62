import numpy as np
import pytest

from features.arrays import IntArray
from features.assembly import Assembled, AssemblySpec, MemoryStatus, RequestState, assemble
from features.entities import EntityTable
from features.errors import DataError
from features.lookup import PairState, Tier
from features.packed import BlobKind, Missing, VectorBlob

HOUR_MS = 3_600_000
NOW_MS = 1_000 * HOUR_MS
BLOCKS = frozenset({"memory", "pairs"})


def make_spec(blocks: frozenset[str] = BLOCKS) -> AssemblySpec:
    return AssemblySpec(
        user_features=("age",),
        item_features=("item_id", "kind"),
        context_features=("slot",),
        numeric_features=("income",),
        item_numeric_features=("price",),
        match_features=("kind",),
        similarity_feature="kind",
        memory_length=4,
        dim=2,
        blocks=blocks,
        soft_ttl_ms=10 * HOUR_MS,
        hard_ttl_ms=100 * HOUR_MS,
    )


def make_items() -> EntityTable:
    return EntityTable(
        keys=np.array([10, 20, 30]),
        codes=np.array([[2, 2], [3, 5], [4, 5], [5, 1]]),
        feature_names=("item_id", "kind"),
        numeric=np.array([[0.5], [1], [2], [3]], dtype=np.float32),
        numeric_names=("price",),
    )


def memory_of(keys: list[int], ages_h: list[int]) -> VectorBlob:
    return VectorBlob(
        kind=BlobKind.MEMORY,
        space_id="0" * 16,
        owner=1,
        at_ms=NOW_MS - np.array(ages_h) * HOUR_MS,
        keys=np.array(keys),
        z=np.array([[key / 100, 0.25] for key in keys], dtype=np.float32),
    )


def run(
    item_keys: list[int],
    *,
    memory: VectorBlob | Missing | None = None,
    pairs: PairState | None = None,
    spec: AssemblySpec | None = None,
    context: IntArray | None = None,
) -> Assembled:
    n = len(item_keys)
    empty = RequestState.empty(n, 2)
    return assemble(
        spec or make_spec(),
        make_items(),
        user_codes=np.array([7]),
        item_keys=np.array(item_keys),
        context_codes=np.full((n, 1), 3) if context is None else context,
        numeric=np.full((n, 1), 9, dtype=np.float32),
        at_ms=NOW_MS,
        state=RequestState(
            memory=memory or empty.memory,
            pairs=pairs or empty.pairs,
            user_aggregate=None,
            item_aggregates=empty.item_aggregates,
        ),
    )


def test_features_of_user_item_and_context_come_in_the_order_of_the_spec() -> None:
    inputs = run([20, 10]).inputs

    np.testing.assert_array_equal(inputs["user_codes"], [[7]])
    np.testing.assert_array_equal(inputs["item_codes"], [[4, 5], [3, 5]])
    np.testing.assert_array_equal(inputs["context_codes"], [[3], [3]])
    np.testing.assert_array_equal(inputs["numeric"], [[9, 2], [9, 1]])


def test_an_item_without_a_row_is_cold_and_gets_the_default_numbers() -> None:
    got = run([20, 99])

    np.testing.assert_array_equal(got.is_cold_item, [False, True])
    np.testing.assert_array_equal(got.inputs["item_codes"][1], [2, 2])
    assert got.inputs["numeric"][1, 1] == np.float32(0.5)


def test_memory_is_newest_first_with_ages_in_log_hours_and_empty_slots_at_the_end() -> None:
    inputs = run([20], memory=memory_of([10, 30], [1, 8])).inputs

    np.testing.assert_array_equal(inputs["memory_mask"], [[1, 1, 0, 0]])
    ages = inputs["memory_age"].astype(np.float64)
    np.testing.assert_allclose(ages, [[np.log(2), np.log(9), 0, 0]], rtol=1e-6)
    first = inputs["memory_z"][0, :2, 0].astype(np.float64)
    np.testing.assert_allclose(first, [0.1, 0.3], rtol=1e-6)
    np.testing.assert_array_equal(inputs["memory_codes"][0, :2], [[3, 5], [5, 1]])
    assert not inputs["memory_z"][0, 2:].any()


def test_entries_at_or_after_the_request_are_invisible() -> None:
    got = run([20], memory=memory_of([20, 10, 30], [-1, 0, 2]))

    np.testing.assert_array_equal(got.inputs["memory_mask"], [[1, 0, 0, 0]])
    np.testing.assert_array_equal(got.inputs["memory_codes"][0, 0], [5, 1])


def test_a_memory_longer_than_the_slots_keeps_the_newest() -> None:
    inputs = run([20], memory=memory_of([10, 20, 30, 10, 20, 30], [1, 2, 3, 4, 5, 6])).inputs

    np.testing.assert_array_equal(inputs["memory_match"][0, :, 0], [10, 20, 30, 10])


def test_cold_items_match_by_their_key_and_unknown_codes_match_nothing() -> None:
    inputs = run([99, 30, 20], memory=memory_of([99, 30, 10], [1, 2, 3])).inputs

    same = inputs["item_match"][:, None] == inputs["memory_match"]
    np.testing.assert_array_equal(same[0, :, 0], [True, False, False, False])
    assert not same[:2, :, 1].any()
    np.testing.assert_array_equal(same[2, :, 1], [False, False, True, False])


@pytest.mark.parametrize(
    ("memory", "status"),
    [
        (None, MemoryStatus.MISSING),
        (memory_of([10], [2]), MemoryStatus.USED),
        (memory_of([10], [11]), MemoryStatus.STALE),
        (memory_of([10], [0]), MemoryStatus.EMPTY),
    ],
)
def test_memory_status_says_what_the_memory_gave(
    memory: VectorBlob | None, status: MemoryStatus
) -> None:
    assert run([20], memory=memory).memory_status is status


def test_pair_inputs_are_those_of_the_lookup() -> None:
    pairs = PairState(
        item_keys=np.array([10]),
        similarity_codes=np.array([5]),
        at_ms=np.array([NOW_MS - 3 * HOUR_MS]),
        z=np.array([[0.5, -0.5]], dtype=np.float32),
    )

    got = run([10, 20, 30], pairs=pairs)

    tiers = [Tier.EXACT_PAIR, Tier.SAME_USER_SIMILAR_ITEM, Tier.DEFAULT]
    np.testing.assert_array_equal(got.inputs["pair_tier"], tiers)
    np.testing.assert_array_equal(got.inputs["pair_z"], [[0.5, -0.5], [0.5, -0.5], [0, 0]])
    ages = got.inputs["pair_age"].astype(np.float64)
    np.testing.assert_allclose(ages, [np.log(4), np.log(4), 0], rtol=1e-6)
    np.testing.assert_array_equal(got.inputs["pair_similarity"], [1, 0.5, 0])
    assert got.lookup is not None


def test_blocks_that_are_left_out_add_no_inputs() -> None:
    got = run([20], spec=make_spec(frozenset()))

    assert set(got.inputs) == {"user_codes", "item_codes", "context_codes", "numeric"}
    assert got.lookup is None
    assert got.memory_status is None


def test_candidates_do_not_influence_one_another() -> None:
    memory = memory_of([10, 30], [1, 8])

    together, alone = run([20, 10, 99], memory=memory), run([10], memory=memory)

    for name, array in alone.inputs.items():
        whole = together.inputs[name]
        expected = whole if name.startswith(("memory", "user")) else whole[1:2]
        np.testing.assert_array_equal(array, expected)


def test_arrays_of_another_width_are_refused_by_name() -> None:
    with pytest.raises(DataError, match=r"context_codes: expected shape \(1, 1\), got \(1, 2\)"):
        run([20], context=np.zeros((1, 2), dtype=np.int64))
