"""Writing and reading vectors of a space, on both backends."""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features import keys
from features.arrays import FloatArray
from features.errors import CodecError, StoreError, StoreUnavailable
from features.memory import snap
from features.packed import Missing, MissingReason, VectorBlob
from features.store import MemoryStore, Newest, Store, Swap, open_store
from features.vectorstore import VectorStore
from tests.features.vectors import SPACE, draw_z

USER, HOUR_MS = 5, 3_600_000
LEVELS = np.arange(-8, 8, dtype=np.float32) / 8


@pytest.fixture(scope="module", params=["memory://", "local"])
def shared_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    try:
        opened = open_store(request.param, timeout_ms=5000)
    except StoreUnavailable as error:
        pytest.skip(str(error))
    yield opened
    opened.close()


@pytest.fixture
def store(shared_store: Store) -> Store:
    shared_store.flush()
    return shared_store


@pytest.fixture
def vectors(store: Store) -> VectorStore:
    return vectors_in(store)


def vectors_in(store: Store) -> VectorStore:
    return VectorStore(
        store,
        space_id=SPACE,
        dim=4,
        dtype="int4",
        memory_length=3,
        hard_ttl_ms=HOUR_MS,
        max_pairs=3,
        item_memory_length=2,
    )


def grid_z(n: int, seed: int = 0) -> FloatArray:
    """Give vectors that packing does not change."""
    return np.random.default_rng(seed).choice(LEVELS, (n, 4))


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def test_what_was_written_is_what_a_request_reads(vectors: VectorStore) -> None:
    z = grid_z(3)
    vectors.add_memory(USER, ints(10, 30, 20), item_keys=ints(1, 3, 2), z=z)
    vectors.add_pairs(USER, ints(1, 2), at_ms=ints(40, 50), z=z[:2])
    vectors.add_item_vectors(ints(2, 9), ints(60, 70), user_keys=ints(USER, 6), z=z[1:])
    vectors.store.put({keys.user_features_key(USER): b"{}"})

    found = vectors.read_request(USER, ints(1, 2, 9, 2))

    assert isinstance(found.memory, VectorBlob)
    assert found.memory.at_ms.tolist() == [30, 20, 10]
    assert found.memory.keys.tolist() == [3, 2, 1]
    np.testing.assert_array_equal(found.memory.z, z[[1, 2, 0]])
    assert (found.pairs.item_keys.tolist(), found.pairs.at_ms.tolist()) == ([2, 1], [50, 40])
    np.testing.assert_array_equal(found.pairs.z, z[[1, 0]])
    assert found.user_aggregate is not None
    assert found.user_aggregate[1] == 50
    np.testing.assert_array_equal(found.user_aggregate[0], snap(z[:2].mean(0)[None], "int4")[0])
    assert found.item_aggregates[1].tolist() == [-1, 60, 70, 60]
    np.testing.assert_array_equal(found.item_aggregates[0], [[0] * 4, z[1], z[2], z[1]])
    assert (found.profile, found.num_refused) == (b"{}", {})


def test_an_empty_store_reads_as_a_request_that_could_not_be_read(vectors: VectorStore) -> None:
    found, unread = vectors.read_request(USER, ints(1, 2)), vectors.unread(2)

    assert found.memory == unread.memory == Missing(MissingReason.ABSENT)
    assert found.user_aggregate is unread.user_aggregate is None
    assert found.profile is unread.profile is None
    assert found.num_refused == unread.num_refused == {}
    assert found.pairs.z.shape == unread.pairs.z.shape == (0, 4)
    for got, expected in zip(found.item_aggregates, unread.item_aggregates, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_request_is_one_round_trip_and_reads_only_the_blocks_asked_for() -> None:
    class Counted(MemoryStore):
        asked: list[tuple[list[str], list[str]]]

        def read(self, keys, hashes=(), *, timeout_ms=None):  # type: ignore[no-untyped-def]
            self.asked.append((list(keys), list(hashes)))
            return super().read(keys, hashes)

    store = Counted()
    for blocks in ({"memory", "pairs"}, {"memory"}, {"pairs"}, set[str]()):
        store.asked = []
        replace(vectors_in(store), blocks=frozenset(blocks)).read_request(USER, ints(1, 2))
        assert len(store.asked) == 1
        names, hashes = store.asked[0]
        assert (len(names), len(hashes)) == ((5, 1) if "pairs" in blocks else (2, 0))
    with pytest.raises(ValueError, match="blocks"):
        replace(vectors_in(store), blocks=frozenset({"pair"}))


def test_bytes_of_another_space_owner_or_format_are_refused_and_counted(
    vectors: VectorStore,
) -> None:
    z, store = grid_z(1), vectors.store
    other_space = replace(vectors, space_id="f" * 16)
    other_space.add_memory(USER, ints(10), item_keys=ints(1), z=z)
    data = store.read([keys.memory_key(USER, "f" * 16)]).values[0]
    assert data is not None
    store.put({keys.memory_key(USER, SPACE): data})
    vectors.add_item_vectors(ints(8), ints(10), user_keys=ints(USER), z=z)
    mean = store.read([keys.item_aggregate_key(8, SPACE)]).values[0]
    assert mean is not None
    store.put({keys.item_aggregate_key(7, SPACE): mean, keys.user_aggregate_key(USER, SPACE): b"x"})

    found = vectors.read_request(USER, ints(7, 8))

    assert found.memory == Missing(MissingReason.SPACE)
    assert found.item_aggregates[1].tolist() == [-1, 10]
    reasons = (MissingReason.SPACE, MissingReason.OWNER, MissingReason.BAD_MAGIC)
    assert found.num_refused == dict.fromkeys(reasons, 1)


def test_a_pair_under_another_items_field_is_refused(vectors: VectorStore) -> None:
    vectors.add_pairs(USER, ints(1), at_ms=10, z=grid_z(1))
    key = keys.pairs_key(USER, SPACE)
    value = vectors.store.read([], [key]).hashes[0][b"1"]
    vectors.store.put_newest(
        [Newest(key=key, field=field, value=value) for field in ("2", "01", "x")]
    )

    found = vectors.read_request(USER, ints(1, 2))

    assert found.pairs.item_keys.tolist() == [1]
    assert found.num_refused == {MissingReason.OWNER: 3}


def test_late_events_of_a_full_memory_are_told(vectors: VectorStore) -> None:
    first = vectors.add_memory(USER, ints(10, 20, 30, 40), item_keys=ints(1, 2, 3, 4), z=grid_z(4))
    late = vectors.add_memory(USER, ints(15, 35), item_keys=ints(5, 6), z=grid_z(2))

    assert first.is_held.tolist() == [False, True, True, True]
    assert late.is_held.tolist() == [False, True]


def test_a_late_pair_is_told_and_changes_nothing(vectors: VectorStore) -> None:
    old, new = grid_z(1, seed=1), grid_z(1, seed=2)
    assert vectors.add_pairs(USER, ints(1), at_ms=30, z=new).is_held.tolist() == [True]

    assert vectors.add_pairs(USER, ints(1), at_ms=20, z=old).is_held.tolist() == [False]

    np.testing.assert_array_equal(vectors.read_request(USER, ints(1)).pairs.z, new)


def test_the_newest_pairs_of_a_user_stay_and_make_the_aggregate(vectors: VectorStore) -> None:
    z = grid_z(5)
    vectors.add_pairs(USER, ints(1, 2, 3, 4, 5), at_ms=ints(50, 20, 40, 10, 30), z=z)

    found = vectors.read_request(USER, ints(1))

    assert found.pairs.item_keys.tolist() == [1, 3, 5]
    assert found.user_aggregate is not None
    expected = snap(z[[0, 2, 4]].mean(axis=0, keepdims=True), "int4")[0]
    np.testing.assert_array_equal(found.user_aggregate[0], expected)


def test_vectors_too_old_beside_the_newest_are_not_in_an_aggregate(vectors: VectorStore) -> None:
    z = grid_z(2)
    vectors.add_item_vectors(7, ints(1000, 1001 + HOUR_MS), user_keys=ints(1, 2), z=z)

    found = vectors.read_request(USER, ints(7))

    np.testing.assert_array_equal(found.item_aggregates[0], z[1:])


def test_unreadable_bytes_in_the_way_of_a_write_are_replaced_and_counted(
    vectors: VectorStore,
) -> None:
    vectors.store.put({keys.memory_key(USER, SPACE): b"garbage"})

    written = vectors.add_memory(USER, ints(10), item_keys=ints(1), z=grid_z(1))

    assert written.num_refused == {MissingReason.BAD_MAGIC: 1}
    assert isinstance(vectors.read_request(USER, ints(1)).memory, VectorBlob)


def contents(store: Store) -> list[object]:
    """Give all bytes that these tests may have written."""
    users, items = range(4), range(5)
    plain = [f(user, SPACE) for user in users for f in (keys.memory_key, keys.user_aggregate_key)]
    plain += [
        f(item, SPACE) for item in items for f in (keys.item_memory_key, keys.item_aggregate_key)
    ]
    reply = store.read(plain, [keys.pairs_key(user, SPACE) for user in users])
    return [reply.values, reply.hashes]


def write_all(vectors: VectorStore, rows: list[tuple[int, int, int]]) -> None:
    """Write one vector a row of (user, item, time); it depends on the row alone."""
    if not rows:
        return
    users, items, at_ms = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    z = np.stack([grid_z(1, seed=hash(row) % 1000)[0] for row in rows])
    vectors.add_memory(users, at_ms, item_keys=items, z=z)
    vectors.add_pairs(users, items, at_ms=at_ms, z=z)
    vectors.add_item_vectors(items, at_ms, user_keys=users, z=z)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_order_batches_and_repeats_leave_the_same_bytes(
    store: Store, data: st.DataObject
) -> None:
    row = st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(1, 9))
    rows = data.draw(st.lists(row, min_size=1, max_size=14))
    stream = data.draw(st.permutations(rows)) + data.draw(st.lists(st.sampled_from(rows)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    vectors = vectors_in(store)
    store.flush()
    write_all(vectors, sorted(rows))
    expected = contents(store)
    store.flush()

    for start, stop in itertools.pairwise([0, *cuts, len(stream)]):
        write_all(vectors, stream[start:stop])

    assert contents(store) == expected


def test_writers_side_by_side_leave_what_one_writer_leaves(vectors: VectorStore) -> None:
    rng = np.random.default_rng(3)
    rows = [(int(u), int(i), t) for t, (u, i) in enumerate(rng.integers(0, 4, (60, 2)), start=1)]
    write_all(vectors, rows)
    expected = contents(vectors.store)
    vectors.store.flush()
    errors: list[StoreError] = []

    def write(part: list[tuple[int, int, int]]) -> None:
        try:
            for start in range(0, len(part), 5):
                write_all(vectors, part[start : start + 5])
        except StoreError as error:
            errors.append(error)

    writers = [threading.Thread(target=write, args=(rows[i::4],)) for i in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert errors == []
    assert contents(vectors.store) == expected


def test_two_vectors_for_one_event_leave_the_same_bytes_in_any_order(vectors: VectorStore) -> None:
    # They differ by less than a level in the first value, the other way round than in the second.
    one = np.array([[0.12, 0.5, 0, 0]], dtype=np.float32)
    other = np.array([[0.13, 0.25, 0, 0]], dtype=np.float32)

    def write(*batches: FloatArray) -> list[object]:
        vectors.store.flush()
        for z in batches:
            n = len(z)
            vectors.add_memory(1, np.full(n, 10), item_keys=np.full(n, 2), z=z)
        return contents(vectors.store)

    expected = write(one)
    assert write(one, other) == write(other, one) == expected
    assert write(np.concatenate([one, other])) == write(np.concatenate([other, one])) == expected


def test_a_replay_writes_nothing() -> None:
    class Watched(MemoryStore):
        swaps: list[Swap]

        def swap(self, swaps):  # type: ignore[no-untyped-def]
            self.swaps.extend(swaps)
            return super().swap(swaps)

    store = Watched()
    rows = [(1, 2, 3), (1, 3, 4), (2, 2, 5)]
    store.swaps = []
    write_all(vectors_in(store), rows)
    assert store.swaps

    store.swaps = []
    write_all(vectors_in(store), rows)
    assert store.swaps == []


def test_losing_every_race_is_an_error_that_names_the_owner() -> None:
    class Contended(MemoryStore):
        def swap(self, swaps):  # type: ignore[no-untyped-def]
            return [False] * len(swaps)

    with pytest.raises(StoreError, match=r"races for the keys of \[5\]"):
        vectors_in(Contended()).add_memory(USER, ints(10), item_keys=ints(1), z=grid_z(1))


def test_keys_expire_after_the_hard_limit_each_at_its_own_moment() -> None:
    now_ms = 0
    store = MemoryStore(clock_ms=lambda: now_ms)
    vectors = replace(vectors_in(store), ttl_jitter_frac=0.5)
    users = np.arange(50, dtype=np.int64)
    vectors.add_memory(users, np.full(50, 10), item_keys=users, z=grid_z(50))
    vectors.add_pairs(USER, ints(1), at_ms=10, z=grid_z(1))

    def num_alive(at: int) -> int:
        nonlocal now_ms
        now_ms = at
        return sum(
            isinstance(vectors.read_request(int(u), ints()).memory, VectorBlob) for u in users
        )

    alive = [num_alive(int(HOUR_MS * part)) for part in (0.999, 1.1, 1.25, 1.4, 1.5)]

    assert alive == sorted(alive, reverse=True)
    assert (alive[0], alive[-1]) == (50, 0)
    assert len(set(alive)) == 5
    assert contents(store)[1] == [{}] * 4


def test_vectors_of_another_dim_are_not_written(vectors: VectorStore) -> None:
    with pytest.raises(CodecError, match=r"expected z \(1, 4\), got \(1, 5\)"):
        vectors.add_memory(USER, ints(10), item_keys=ints(1), z=draw_z(1, 5))


def test_writing_nothing_does_nothing(vectors: VectorStore) -> None:
    none, z = ints(), draw_z(0, 4)

    assert vectors.add_memory(USER, none, item_keys=none, z=z).is_held.shape == (0,)
    assert vectors.add_pairs(none, none, at_ms=none, z=z).is_held.shape == (0,)
    assert vectors.add_item_vectors(none, none, user_keys=none, z=z).is_held.shape == (0,)
