from hypothesis import given
from hypothesis import strategies as st

from flinkstate.hashing.hash_map import order_of_compute_if_absent, order_of_put, string_hash


class JavaHashMap:
    """Java's `HashMap` in plain Python: buckets of chained keys."""

    def __init__(self, capacity: int) -> None:
        self.buckets: list[list[str]] = [[] for _ in range(capacity)]

    def keys(self) -> list[str]:
        return [key for bucket in self.buckets for key in bucket]

    def bucket(self, key: str) -> list[str]:
        code = string_hash(key)
        return self.buckets[(code ^ code >> 16) % len(self.buckets)]

    def too_full(self) -> bool:
        return len(self.keys()) > 0.75 * len(self.buckets)

    def grow(self) -> None:
        old = self.keys()
        self.buckets = [[] for _ in range(2 * len(self.buckets))]
        for key in old:
            self.bucket(key).append(key)

    def put(self, key: str) -> None:
        if key not in self.bucket(key):
            self.bucket(key).append(key)
            if self.too_full():
                self.grow()

    def compute_if_absent(self, key: str) -> None:
        if self.too_full():
            self.grow()
        if key not in self.bucket(key):
            self.bucket(key).insert(0, key)


NAMES = st.text("abcdef-", min_size=1, max_size=4)


@given(st.lists(NAMES, max_size=120))
def test_compute_if_absent_orders_as_chained_buckets_do(calls: list[str]) -> None:
    reference = JavaHashMap(16)
    for call in calls:
        reference.compute_if_absent(call)
    assert order_of_compute_if_absent(calls) == reference.keys()


@given(st.lists(NAMES, max_size=60, unique=True))
def test_put_orders_as_chained_buckets_do(keys: list[str]) -> None:
    size = len(keys)
    capacity = 1
    while capacity < (size + 1 if size <= 2 else size / 0.75):
        capacity *= 2
    reference = JavaHashMap(capacity)
    for key in keys:
        reference.put(key)
    assert order_of_put(keys, size) == reference.keys()


def test_orders_that_a_jvm_gave() -> None:
    """`keySet()` of a `HashMap` after `computeIfAbsent` of thirteen names, each asked for once, or twice: it grew."""
    names = [f"state-{number * 7919}" for number in range(13)]
    once = [10, 9, 4, 1, 7, 6, 11, 2, 12, 8, 5, 3, 0]
    twice = [9, 4, 7, 12, 5, 3, 10, 1, 6, 11, 2, 8, 0]
    assert order_of_compute_if_absent(names) == [names[number] for number in once]
    assert order_of_compute_if_absent(names * 2) == [names[number] for number in twice]
