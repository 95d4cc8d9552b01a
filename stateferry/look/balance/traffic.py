"""How much work each key makes: as a person says, or by what changed between two savepoints.

| traffic | of a key |
|---|---|
| rates | the number that a file says, such as records an hour |
| changes | 1 if the key is new, or any of its rows is another one than in an earlier savepoint of the job, else 0 |
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flinkstate.basics.array_types import Hashes
from flinkstate.errors import UsageError
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import FlinkType
from flinkstate.values.value_of_text import bytes_of_text
from stateferry.changes.key_hashes import key_lanes
from stateferry.look.balance.kernels import Weights
from stateferry.look.balance.key_weights import Keys, Traffic, measure_keys

# The sum of all rates fits into 64 bits with room to spare.
_MOST = 10**12


class Rates:
    """The rates in a file of lines, each a key as `stateferry dump` prints it, a tab, and a whole number.

    Of its `keys` so many were `met` in the savepoint; `last` is the text of the last one.
    """

    name = "rates"

    def __init__(self, path: str, key: FlinkType) -> None:
        rates: dict[bytes, int] = {}
        for number, line in enumerate(_lines(path), 1):
            text, tab, rate = line.rpartition("\t")
            if not tab or not rate.isdecimal() or int(rate) > _MOST:
                raise UsageError(
                    f"{path}, line {number}: expected a key, a tab and a whole number up to {_MOST}, found "
                    f"{line[:100]!r}"
                )
            data, self.last = bytes_of_text(key, text), text
            if data in rates:
                raise UsageError(f"{path}, line {number}: expected each key once, found {text[:100]!r} again")
            rates[data] = int(rate)
        if not rates:
            raise UsageError(f"{path}: expected lines of a key, a tab and its rate, found none")
        ends = np.cumsum([len(data) for data in rates])
        lanes, _ = key_lanes(np.frombuffer(b"".join(rates), np.uint8), np.append(0, ends[:-1]), ends)
        order = np.argsort(lanes)
        self._identities, self._rates = lanes[order], np.array(list(rates.values()), np.int64)[order]
        self.keys, self.met = len(rates), 0

    def of(self, key_group: int, keys: Keys) -> Weights:
        """Returns the rates of the keys; a key that the file doesn't have gets none."""
        found = _places(self._identities, keys.identities)
        self.met += int((found >= 0).sum())
        return np.where(found >= 0, self._rates[found], 0)


class Changes:
    """What has changed in an operator's keys since an earlier savepoint, which has the same max parallelism."""

    name = "changes"

    def __init__(self, earlier: Savepoint, operator: Operator) -> None:
        before = earlier.operator(operator.hex_id)
        if before.max_parallelism != operator.max_parallelism:
            raise UsageError(
                f"expected the earlier savepoint with max parallelism {operator.max_parallelism} for {operator.label}, "
                f"found {before.max_parallelism}: its keys are in other key groups"
            )
        contents = _KeyContents()
        measure_keys(earlier, before, "keys", traffic=contents, heaviest=0, most_keys=1)
        self._before = contents.by_group

    def of(self, key_group: int, keys: Keys) -> Weights:
        """Returns 1 for each key that is new or has changed."""
        identities, contents = self._before.get(key_group, (Keys.none().identities, Keys.none().contents))
        found = _places(identities, keys.identities)
        same = found >= 0
        same[same] = contents[found[same]] == keys.contents[same]
        return (~same).astype(np.int64)


class _KeyContents:
    """Keeps the keys of each key group with the hashes of their rows: 16 bytes for each key."""

    name = "contents"

    def __init__(self) -> None:
        self.by_group: dict[int, tuple[Hashes, Hashes]] = {}

    def of(self, key_group: int, keys: Keys) -> Weights:
        earlier = self.by_group.get(key_group, (Keys.none().identities, Keys.none().contents))
        identities, contents = (
            np.concatenate(both) for both in zip(earlier, (keys.identities, keys.contents), strict=True)
        )
        order = np.argsort(identities)
        self.by_group[key_group] = identities[order], contents[order]
        return np.zeros(len(keys), np.int64)


def traffic_of(
    savepoint: Savepoint, operator: Operator, rates: str | None, earlier: Savepoint | None
) -> Traffic | None:
    """Returns the traffic that was asked for: a file of rates, or the changes since an earlier savepoint."""
    if earlier is not None:
        return Changes(earlier, operator)
    for file in savepoint.open_files(operator) if rates is not None else ():
        return Rates(str(rates), file.header.key_serializer.type)
    return None


def _lines(path: str) -> list[str]:
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: expected a file of rates in UTF-8: {error}") from None
    return [line for line in text.split("\n") if line]


def _places(sorted_: Hashes, wanted: Hashes) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Returns where each of the wanted is among the sorted ones, -1 if it isn't."""
    if not len(sorted_):
        return np.full(len(wanted), -1)
    places = np.minimum(np.searchsorted(sorted_, wanted), len(sorted_) - 1)
    return np.where(sorted_[places] == wanted, places, -1)
