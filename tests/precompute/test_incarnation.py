"""Which store this is."""

from features.store import MemoryStore
from precompute.incarnation import store_incarnation


def test_a_store_keeps_its_incarnation_until_it_is_emptied() -> None:
    store = MemoryStore()
    first = store_incarnation(store)
    assert len(first) == 32
    assert store_incarnation(store) == first
    store.flush()
    assert store_incarnation(store) != first


def test_two_stores_have_different_incarnations() -> None:
    assert store_incarnation(MemoryStore()) != store_incarnation(MemoryStore())


def test_of_two_workers_that_name_a_store_at_once_the_first_one_counts() -> None:
    class Raced(MemoryStore):
        """Reads nothing the first time, as if the other worker had written just after."""

        has_read = False

        def read(self, keys, hashes=(), *, timeout_ms=None):
            if not self.has_read:
                self.has_read = True
                answer = super().read(keys, hashes)
                self.swap_first()
                return answer
            return super().read(keys, hashes)

        def swap_first(self) -> None:
            self.put({"precompute:incarnation": b"f" * 32})

    store = Raced()
    assert store_incarnation(store) == "f" * 32
