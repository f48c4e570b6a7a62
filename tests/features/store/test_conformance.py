"""What every backend does, the same on each of them."""

import itertools
import threading
import time
from collections.abc import Callable

import pytest

from features.errors import StoreError, StoreUnavailable
from features.packed import newest_at
from features.store import Newest, Store, Swap
from tests.features.vectors import pair_bytes


def wait_until(is_true: Callable[[], bool]) -> None:
    for _ in range(500):
        if is_true():
            return
        time.sleep(0.01)
    pytest.fail("did not happen within 5 s")


def only(store: Store, key: str) -> bytes | None:
    return store.read([key]).values[0]


def test_values_come_back_in_the_order_asked_for_with_gaps_for_missing_keys(store: Store) -> None:
    store.put({"a": b"1", "b": b"2", "c": b""})

    assert store.read(["c", "nothing", "a", "b", "a"]).values == [b"", None, b"1", b"2", b"1"]


def test_bytes_come_back_as_they_were_written(store: Store) -> None:
    every_byte = bytes(range(256)) + b"\r\n$-1\r\n\x00\xff"
    store.put({"a": every_byte})

    assert only(store, "a") == every_byte


def test_one_read_gives_keys_and_whole_hashes(store: Store) -> None:
    store.put({"a": b"1"})
    one, two = pair_bytes(10), pair_bytes(20)
    store.put_newest([Newest(key="h", field="1", value=one), Newest(key="h", field="2", value=two)])

    reply = store.read(["a"], ["none", "h"])

    assert reply.values == [b"1"]
    assert reply.hashes == [{}, {b"1": one, b"2": two}]


def test_an_empty_read_is_an_empty_reply(store: Store) -> None:
    reply = store.read([], [])

    assert (reply.values, reply.hashes) == ([], [])


def test_a_hash_read_as_a_value_is_nothing(store: Store) -> None:
    store.put_newest([Newest(key="h", field="1", value=pair_bytes(10))])

    assert only(store, "h") is None


def test_a_swap_needs_the_content_it_expects(store: Store) -> None:
    store.put({"a": b"1"})

    done = store.swap(
        [
            Swap(key="a", expected=b"other", value=b"2"),
            Swap(key="a", expected=None, value=b"2"),
            Swap(key="gone", expected=b"1", value=b"2"),
            Swap(key="new", expected=None, value=b"3"),
            Swap(key="a", expected=b"1", value=b"4"),
        ]
    )

    assert done == [False, False, False, True, True]
    assert store.read(["a", "gone", "new"]).values == [b"4", None, b"3"]


def test_an_empty_value_is_not_the_same_as_none_in_a_swap(store: Store) -> None:
    store.put({"a": b""})

    assert store.swap([Swap(key="a", expected=None, value=b"1")]) == [False]
    assert store.swap([Swap(key="a", expected=b"", value=b"1")]) == [True]


def test_a_swap_repeated_is_done(store: Store) -> None:
    swap = Swap(key="a", expected=None, value=b"1")

    assert store.swap([swap]) == store.swap([swap]) == [True]


def test_writers_that_swap_and_retry_lose_nothing(store: Store) -> None:
    def append(name: bytes) -> None:
        for i in range(40):
            while True:
                held = only(store, "log")
                mine = (held or b"") + b"%s%d," % (name, i)
                if store.swap([Swap(key="log", expected=held, value=mine)]) == [True]:
                    break

    writers = [threading.Thread(target=append, args=(name,)) for name in (b"a", b"b", b"c")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    entries = (only(store, "log") or b"").strip(b",").split(b",")
    assert sorted(entries) == sorted(
        b"%s%d" % (n, i) for n in (b"a", b"b", b"c") for i in range(40)
    )


@pytest.mark.parametrize("field", [None, "7"])
@pytest.mark.parametrize("order", list(itertools.permutations([30, 20, 10, 25])))
@pytest.mark.parametrize("split", [1, 2, 4])
def test_the_newest_vector_stays_in_any_order_and_any_batches(
    store: Store, order: tuple[int, ...], split: int, field: str | None
) -> None:
    writes = [Newest(key="k", field=field, value=pair_bytes(at)) for at in order]

    for start in range(0, len(writes), split):
        store.put_newest(writes[start : start + split])

    reply = store.read(["k"]).values[0] if field is None else store.read([], ["k"]).hashes[0][b"7"]
    assert reply is not None
    assert newest_at(reply) == 30


def test_a_write_says_whether_it_was_newest(store: Store) -> None:
    ats = [("1", 30), ("2", 10), ("1", 20), ("2", 11), ("1", 31)]
    in_hash = [Newest(key="h", field=field, value=pair_bytes(at)) for field, at in ats]
    plain = [Newest(key=f"k{field}", field=None, value=pair_bytes(at)) for field, at in ats]

    assert store.put_newest(in_hash) == [True, True, False, True, True]
    assert store.put_newest(plain) == [True, True, False, True, True]


@pytest.mark.parametrize("field", [None, "7"])
def test_an_equal_time_writes_again(store: Store, field: str | None) -> None:
    first, second = pair_bytes(30, seed=1), pair_bytes(30, seed=2)
    for value in (first, second):
        assert store.put_newest([Newest(key="k", field=field, value=value)]) == [True]

    found = only(store, "k") if field is None else store.read([], ["k"]).hashes[0][b"7"]
    assert found == second != first


@pytest.mark.parametrize("at_ms", [-5, 0, 2**40, 1_764_580_000_123])
def test_times_that_differ_by_a_millisecond_are_told_apart(store: Store, at_ms: int) -> None:
    def put(at: int) -> list[bool]:
        return store.put_newest([Newest(key="k", field=None, value=pair_bytes(at))])

    assert [put(at_ms), put(at_ms - 1), put(at_ms + 1)] == [[True], [False], [True]]


@pytest.mark.parametrize("held", [b"", b"text", b"GEMV\x02" + b"\x7f" * 60, b"GEMV\x01"])
def test_bytes_that_are_no_vector_give_way_to_a_vector_and_not_the_reverse(
    store: Store, held: bytes
) -> None:
    store.put({"k": held})
    vector = Newest(key="k", field=None, value=pair_bytes(30))

    assert store.put_newest([vector]) == [True]
    assert store.put_newest([Newest(key="k", field=None, value=held)]) == [False]
    assert only(store, "k") == vector.value


def test_trimming_keeps_the_newest_fields_and_the_larger_field_of_a_tie(store: Store) -> None:
    ats = {"1": 10, "2": 40, "3": 20, "4": 20, "5": 30}
    store.put_newest(
        [Newest(key="h", field=field, value=pair_bytes(at)) for field, at in ats.items()]
    )

    assert store.trim_newest(["h", "none"], max_fields=3) == [2, 0]
    assert set(store.read([], ["h"]).hashes[0]) == {b"2", b"5", b"4"}
    assert store.trim_newest(["h"], max_fields=3) == [0]


def test_values_are_gone_after_their_time_to_live_and_stay_without_one(store: Store) -> None:
    vector = pair_bytes(30)
    store.put({"put": b"1"}, ttl_ms=30)
    store.swap([Swap(key="swap", expected=None, value=b"1", ttl_ms=30)])
    store.put_newest(
        [
            Newest(key="newest", field=None, value=vector, ttl_ms=30),
            Newest(key="hash", field="1", value=vector, ttl_ms=30),
            Newest(key="stays", field="1", value=vector),
        ]
    )
    store.put({"kept": b"1"})

    wait_until(lambda: store.read(["put", "swap", "newest"], ["hash"]).values == [None] * 3)
    wait_until(lambda: store.read([], ["hash"]).hashes == [{}])
    assert store.read(["kept"], ["stays"]).values == [b"1"]
    assert store.read([], ["stays"]).hashes == [{b"1": vector}]


def test_a_late_vector_does_not_prolong_a_life(store: Store) -> None:
    store.put_newest([Newest(key="h", field="1", value=pair_bytes(30), ttl_ms=400)])
    store.put_newest([Newest(key="h", field="1", value=pair_bytes(20), ttl_ms=3_600_000)])

    wait_until(lambda: store.read([], ["h"]).hashes == [{}])


def test_a_write_prolongs_the_life_of_its_key(store: Store) -> None:
    store.put({"a": b"1", "gone": b"1"}, ttl_ms=400)
    store.swap([Swap(key="a", expected=b"1", value=b"2", ttl_ms=3_600_000)])

    wait_until(lambda: only(store, "gone") is None)
    assert only(store, "a") == b"2"


def test_deleting_counts_what_was_there_and_removes_hashes_too(store: Store) -> None:
    store.put({"a": b"1"})
    store.put_newest([Newest(key="h", field="1", value=pair_bytes(30))])

    assert store.delete(["a", "h", "nothing"]) == 2
    assert store.delete(["a", "h"]) == 0
    assert store.read(["a"], ["h"]).values == [None]
    assert store.delete([]) == 0


def test_flushing_removes_everything(store: Store) -> None:
    store.put({"a": b"1", "b": b"2"})

    store.flush()

    assert store.read(["a", "b"]).values == [None, None]


def test_a_value_where_a_hash_belongs_is_an_error_and_the_store_goes_on(store: Store) -> None:
    store.put({"a": b"1"})

    for act in (
        lambda: store.read([], ["a"]),
        lambda: store.put_newest([Newest(key="a", field="1", value=pair_bytes(30))]),
    ):
        with pytest.raises(StoreError) as caught:
            act()
        assert not isinstance(caught.value, StoreUnavailable), "waiting would not help"
    assert only(store, "a") == b"1"


def test_a_store_in_use_answers_a_ping_and_a_closed_one_does_not(store: Store) -> None:
    assert store.ping(timeout_ms=5000)

    store.close()

    assert not store.ping(timeout_ms=5000)
    with pytest.raises(StoreUnavailable, match="closed"):
        store.read(["a"])
