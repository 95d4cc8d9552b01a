"""The state of a small job, night after night, of which every entry is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flinkstate.reading.entries import read_entries
from flinkstate.reading.reader import Savepoint
from tests.support.legacy_states import NEW, LegacyState

Entries = dict[tuple[str, str], int]

_CUSTOMERS = 60
_ITEMS = 4


@dataclass(frozen=True, slots=True)
class Orders:
    """Each night a few customers have bought more, one is new and one is gone; a third has been moved by the job."""

    night: int = 1

    @property
    def entries(self) -> Entries:
        """What the job holds, whichever state it is in."""
        return {
            (f"customer-{customer}", f"item-{item}"): self._total(customer, item)
            for customer in self._customers()
            for item in range(_ITEMS)
        }

    @property
    def stored(self) -> int:
        """As how many entries of Flink's: a map by Kryo is one, a key that the job has moved has a flag."""
        moved = sum(_is_moved(customer) for customer, item in self.entries if item == "item-0")
        return len({customer for customer, _ in self.entries}) - moved + moved * (_ITEMS + 1)

    def write(self, folder: Path) -> None:
        blobs: dict[str, tuple[dict[str, object], int]] = {}
        rows: dict[str, dict[str, tuple[object, int]]] = {}
        for (customer, item), total in self.entries.items():
            if _is_moved(customer):
                rows.setdefault(customer, {})[item] = (total, 0)
            else:
                blobs.setdefault(customer, ({}, 0))[0][item] = total
        LegacyState(blobs, rows, dict.fromkeys(rows, 0), checkpoint_id=self.night).write(str(folder))

    def _customers(self) -> Iterator[int]:
        yield from range(self.night, self.night + _CUSTOMERS)

    def _total(self, customer: int, item: int) -> int:
        bought_more = customer % 7 == 0
        return 1000 * customer + item + (100_000 * self.night if bought_more else 0)


def entries_of(savepoint: Path) -> Entries:
    """What is in the new state of a savepoint, each entry once."""
    opened = Savepoint.open(str(savepoint))
    operator = opened.operator("main")
    found: Entries = {}
    for entry in read_entries(opened, operator, opened.state(operator, NEW)):
        name = (str(entry.key), str(entry.user_key))
        assert name not in found
        assert isinstance(entry.value, int)
        found[name] = entry.value
    return found


def _is_moved(customer: str) -> bool:
    return int(customer.removeprefix("customer-")) % 3 == 0
