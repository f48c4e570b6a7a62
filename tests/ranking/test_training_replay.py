"""Training sees what the ranker reads: the replay against a real vector store."""

from dataclasses import replace

import numpy as np
import pytest

from features.arrays import IntArray
from features.assembly import AssemblySpec, RequestState, assemble
from features.dataset import LogDataset
from features.errors import DataError
from features.packed import Missing
from features.store.memory import MemoryStore
from features.transferlog import RowKind, TransferLog, TransferRows
from features.vectorstore import VectorStore
from ranking.training.dataset import USER_SIDE, VerticalExamples, build_examples
from ranking.training.replay import Replay, ReplayRule
from tests.features.tiny_log import DAY_MS
from tests.ranking.tiny_transfer import DIM, SPACE_ID

BLOCKS = frozenset({"memory", "pairs"})
RULE = ReplayRule(max_pairs=7, item_memory_length=3)


def spec_of(tiny: LogDataset) -> AssemblySpec:
    return AssemblySpec.for_vertical(tiny.schema, "home", dim=DIM, blocks=BLOCKS)


def state_in_store(
    tiny: LogDataset, log: TransferLog, user: int, items: IntArray, at_ms: int
) -> RequestState:
    spec = spec_of(tiny)
    store = VectorStore(
        MemoryStore(),
        space_id=SPACE_ID,
        dim=DIM,
        dtype="int4",
        memory_length=spec.memory_length,
        hard_ttl_ms=spec.hard_ttl_ms,
        max_pairs=RULE.max_pairs,
        item_memory_length=RULE.item_memory_length,
    )
    rows = log.rows.take(log.rows.at_ms < at_ms)
    for part in np.array_split(np.argsort(rows.at_ms, kind="stable"), 3):
        add_rows(store, rows.take(part))
    stored = store.read_request(user, items)
    return RequestState.from_store(stored, tiny.items, similarity_feature="kind")


def add_rows(store: VectorStore, rows: TransferRows) -> None:
    bought = rows.take(rows.kinds == RowKind.ENGAGEMENT)
    store.add_memory(bought.user_keys, bought.at_ms, item_keys=bought.item_keys, z=bought.z())
    shown = rows.take(rows.kinds == RowKind.IMPRESSION)
    store.add_pairs(shown.user_keys, shown.item_keys, at_ms=shown.at_ms, z=shown.z())
    store.add_item_vectors(shown.item_keys, shown.at_ms, user_keys=shown.user_keys, z=shown.z())


def inputs_of(
    tiny: LogDataset, state: RequestState, items: IntArray, at_ms: int
) -> dict[str, np.ndarray]:
    spec = spec_of(tiny)
    n = len(items)
    found = assemble(
        spec,
        tiny.items,
        user_codes=np.zeros(len(spec.user_features), dtype=np.int64),
        item_keys=items,
        context_codes=np.zeros((n, len(spec.context_features)), dtype=np.int64),
        numeric=np.zeros((n, len(spec.numeric_features)), dtype=np.float32),
        at_ms=at_ms,
        state=state,
    )
    return found.inputs


@pytest.mark.parametrize("day", [0, 3, 9, 19])
def test_replayed_state_gives_exactly_the_inputs_of_a_store_with_the_same_rows(
    tiny: LogDataset, transfer: TransferLog, day: int
) -> None:
    items = np.concatenate([tiny.items.keys[::2], [999]])
    replay = Replay(transfer, tiny.items, spec_of(tiny), RULE)
    at_ms = tiny.splits.vm_train[0] + day * DAY_MS + 3_600_000 + 3 * 60_000

    for user in (0, 3, 4, 77):
        replayed = inputs_of(tiny, replay.state(user, items, at_ms=at_ms), items, at_ms)
        state = state_in_store(tiny, transfer, user, items, at_ms)
        stored = inputs_of(tiny, state, items, at_ms)

        for name, array in stored.items():
            np.testing.assert_array_equal(replayed[name], array, err_msg=f"{name}, user {user}")


def test_the_order_of_the_logs_rows_changes_nothing(
    tiny: LogDataset, transfer: TransferLog
) -> None:
    # Of rows with the same user, item and moment the last counts, so those stay as they are.
    order = np.argsort(-transfer.rows.at_ms, kind="stable")
    turned = replace(transfer, rows=transfer.rows.take(order))

    one, other = (build_examples(tiny, log, "home") for log in (transfer, turned))

    for side in ("user_side", "row_side"):
        for name, array in getattr(one, side).items():
            np.testing.assert_array_equal(getattr(other, side)[name], array, err_msg=name)


def test_a_rows_own_request_is_never_part_of_its_state(
    tiny: LogDataset, transfer: TransferLog
) -> None:
    at_ms = int(tiny.impressions.between(*tiny.splits.vm_train).at_ms[0])
    replay = Replay(transfer, tiny.items, spec_of(tiny), RULE)

    at_request = replay.state(0, tiny.items.keys, at_ms=at_ms)
    after = replay.state(0, tiny.items.keys, at_ms=at_ms + 1)

    assert not len(at_request.pairs.item_keys)
    assert len(after.pairs.item_keys)


def test_a_logging_delay_hides_what_the_store_could_not_have_yet(
    tiny: LogDataset, transfer: TransferLog
) -> None:
    late = Replay(transfer, tiny.items, spec_of(tiny), ReplayRule(logging_delay_ms=2 * DAY_MS))
    prompt = Replay(transfer, tiny.items, spec_of(tiny), ReplayRule())
    at_ms = tiny.splits.tune[0]

    delayed = late.state(1, tiny.items.keys, at_ms=at_ms)
    shifted = prompt.state(1, tiny.items.keys, at_ms=at_ms - 2 * DAY_MS + 1)

    assert not isinstance(delayed.memory, Missing)
    assert not isinstance(shifted.memory, Missing)
    np.testing.assert_array_equal(delayed.memory.at_ms, shifted.memory.at_ms)
    assert delayed.memory.at_ms[0] <= at_ms - 2 * DAY_MS
    assert delayed.pairs.at_ms.max() <= at_ms - 2 * DAY_MS


def test_rows_of_a_request_share_one_user_side(examples: VerticalExamples) -> None:
    num_requests = int(examples.request_index[-1]) + 1

    assert num_requests == len(np.unique(np.stack([examples.user_keys, examples.at_ms]), axis=1).T)
    for name, array in examples.user_side.items():
        assert len(array) == num_requests, name
    assert set(examples.user_side) == USER_SIDE


def test_labels_and_teacher_probabilities_are_those_of_the_same_impression(
    tiny: LogDataset, transfer: TransferLog, examples: VerticalExamples
) -> None:
    rows = transfer.rows.take(transfer.rows.kinds == 0)
    shown = tiny.impressions.between(tiny.splits.vm_train[0], tiny.splits.test[1])
    p_by_id = dict(zip(rows.example_ids.tolist(), rows.p["click"], strict=True))

    label_by_id = dict(zip(shown.example_ids.tolist(), shown.labels["click"].tolist(), strict=True))

    ids = examples.example_ids.tolist()

    assert sorted(ids) == sorted(shown.example_ids.tolist())
    np.testing.assert_array_equal(examples.p_f[:, 0], [p_by_id[i] for i in ids])
    np.testing.assert_array_equal(examples.labels[:, 0], [label_by_id[i] for i in ids])


def test_a_log_without_some_impressions_is_refused(tiny: LogDataset, transfer: TransferLog) -> None:
    short = replace(transfer, rows=transfer.rows.take(np.arange(5, len(transfer.rows))))

    with pytest.raises(DataError, match="5 are missing"):
        build_examples(tiny, short, "home")


def test_a_log_of_another_encoder_is_refused(tiny: LogDataset, transfer: TransferLog) -> None:
    other = replace(transfer, meta=replace(transfer.meta, encoder_id="f" * 16))

    with pytest.raises(DataError, match="encoder_id"):
        build_examples(tiny, other, "home")
