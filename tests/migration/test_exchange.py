"""Entries that go to other key groups, by files of many senders."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stateferry.errors import DamagedError
from stateferry.key_groups import KeyGroupRange
from stateferry.migration import exchange
from stateferry.migration.exchange import Arrivals
from stateferry.savepoint.rehash import GroupedEntries
from stateferry.savepoint.storage import Location

GROUPS = 12
# By key group and state.
Sent = dict[tuple[int, int], bytes]


def some_entries(chosen: random.Random, count: int) -> Iterator[GroupedEntries]:
    """Of three states, each for a few key groups, in one buffer that is used again."""
    buffer = np.empty(4096, np.uint8)
    for _ in range(count):
        groups = sorted(chosen.sample(range(GROUPS), chosen.randint(1, 4)))
        sizes = [chosen.randint(1, 300) for _ in groups]
        bounds = np.cumsum([0, *sizes])
        lasts = [int(start) + chosen.randrange(size) for start, size in zip(bounds, sizes, strict=False)]
        buffer[: bounds[-1]] = np.frombuffer(chosen.randbytes(int(bounds[-1])), np.uint8)
        yield GroupedEntries(
            chosen.randrange(3), buffer[: bounds[-1]], np.array(groups), bounds.astype(np.int64), np.array(lasts)
        )


def remembered(
    entries: Iterator[GroupedEntries], sent: Sent, lasts: dict[tuple[int, int], bytes]
) -> Iterator[GroupedEntries]:
    for one in entries:
        for place, group in enumerate(one.key_groups.tolist()):
            start, end = int(one.bounds[place]), int(one.bounds[place + 1])
            key = (group, one.state)
            sent[key] = sent.get(key, b"") + one.data[start:end].tobytes()
            lasts[key] = one.data[int(one.last_starts[place]) : end].tobytes()
        yield one


@pytest.mark.part
@pytest.mark.parametrize("at_once", [1, 5000, 64 << 20])
@pytest.mark.parametrize("senders", [0, 1, 5, 200])
def test_what_was_sent_arrives_by_key_group_and_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, senders: int
) -> None:
    monkeypatch.setattr(exchange, "_AT_ONCE", at_once)
    chosen = random.Random(senders)
    files, truth, lasts = [], Sent(), Sent()
    for number in range(senders):
        files.append(Location.of(str(tmp_path / f"{number}")))
        size = exchange.send(files[-1], remembered(some_entries(chosen, chosen.randrange(20)), truth, lasts))
        assert files[-1].size() == size
    found, found_lasts = Sent(), Sent()
    for key_groups in (KeyGroupRange(0, 4), KeyGroupRange(5, GROUPS - 1)):
        with Arrivals(files, key_groups) as arrivals:
            for group in key_groups:
                states = []
                for state, data, last_start in arrivals.entries(group):
                    found[group, state] = found.get((group, state), b"") + data.tobytes()
                    found_lasts[group, state] = data[last_start:].tobytes()
                    states.append(state)
                assert states == sorted(states)
    assert found == truth
    assert found_lasts == lasts


def test_a_file_whose_index_was_cut_or_garbled_is_damage(tmp_path: Path) -> None:
    file, chosen = Location.of(str(tmp_path / "file")), random.Random(1)
    exchange.send(file, some_entries(chosen, 3))
    whole = (tmp_path / "file").read_bytes()
    count = int.from_bytes(whole[-8:], "little")
    index = len(whole) - 8 - 40 * count
    lies = [whole[:-8] + (1 << 40).to_bytes(8, "little"), whole[:-8] + b"\xff" * 8]
    lies += [whole[:cut] for cut in (0, 5, index, len(whole) - 1)]
    lies += [whole[:20] + whole[21:]]
    for parcel in range(count):
        # Where it starts, where it ends, and where the last of its entries begins.
        for place in range(index + 40 * parcel + 16, index + 40 * (parcel + 1), 8):
            wrong = (number.to_bytes(8, "little", signed=True) for number in (-1, 1 << 40, len(whole)))
            lies += [whole[:place] + number + whole[place + 8 :] for number in wrong]
    for lie in lies:
        (tmp_path / "file").write_bytes(lie)
        with (
            pytest.raises(DamagedError, match=r"file, offset \d+: expected (an index of|parcels one after another)"),
            Arrivals([file], KeyGroupRange(0, GROUPS - 1)),
        ):
            pass


def test_a_sender_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> Iterator[GroupedEntries]:
        yield from some_entries(random.Random(1), 3)
        raise DamagedError("more", "the end")

    with pytest.raises(DamagedError):
        exchange.send(Location.of(str(tmp_path / "file")), failing())
    assert list(tmp_path.iterdir()) == []
