"""Entries that go to other key groups, by files of many senders."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flinkstate.errors import DamagedError
from flinkstate.files.sequential_file import SequentialFile
from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.max_parallelism_change import GroupedEntries
from flinkstate.writing.operator_rewrite import Layout
from stateferry.changes import exchange_receiver, max_parallelism_exchange
from stateferry.changes.exchange_receiver import ExchangeReceiver
from stateferry.changes.max_parallelism_exchange import Directory, Exchange
from stateferry.demo import DemoState, write_demo_savepoint
from tests.support.rewriting import rewrite

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


RECEIVERS = (KeyGroupRange(0, 4), KeyGroupRange(5, 5), KeyGroupRange(6, GROUPS - 1))


def exchange_of(folder: Path, senders: int, receivers: Sequence[KeyGroupRange] = RECEIVERS) -> Exchange:
    return Exchange(Location.of(str(folder)), "driver", senders, len(receivers))


def send_all(
    sent: Exchange, entries: Iterable[Iterator[GroupedEntries]], receivers: Sequence[KeyGroupRange] = RECEIVERS
) -> None:
    """Does what the senders and the driver do."""
    with Directory(sent) as directory:
        for number, one in enumerate(entries):
            bounds = max_parallelism_exchange.send(sent.file(number), one, [receiver.end for receiver in receivers])
            assert sent.file(number).size() == bounds[-1]
            directory.add(bounds)


def received(sent: Exchange) -> None:
    for number, key_groups in enumerate(RECEIVERS):
        with ExchangeReceiver(sent, number) as received:
            for group in key_groups:
                list(received.entries(group))


@pytest.mark.matrix(most=8)
@pytest.mark.part
@pytest.mark.parametrize("at_once", [1, 5000, 64 << 20])
@pytest.mark.parametrize("small", [0, 64 << 20])
@pytest.mark.parametrize("senders", [0, 1, 5, 200])
def test_what_was_sent_arrives_by_key_group_and_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, small: int, senders: int
) -> None:
    monkeypatch.setattr(exchange_receiver, "_SMALL", small)
    for module, name in (
        (max_parallelism_exchange, "_AT_ONCE"),
        (max_parallelism_exchange, "_WRITTEN_AT_ONCE"),
        (exchange_receiver, "_AT_ONCE"),
    ):
        monkeypatch.setattr(module, name, at_once)
    monkeypatch.setattr(max_parallelism_exchange, "_BLOCK", 64)
    chosen = random.Random(senders)
    sent, truth, lasts = exchange_of(tmp_path, senders), Sent(), Sent()
    send_all(sent, (remembered(some_entries(chosen, chosen.randrange(20)), truth, lasts) for _ in range(senders)))
    found, found_lasts = Sent(), Sent()
    for number, key_groups in enumerate(RECEIVERS):
        with ExchangeReceiver(sent, number) as arrived:
            for group in key_groups:
                states = []
                for state, data, last_start in arrived.entries(group):
                    found[group, state] = found.get((group, state), b"") + data.tobytes()
                    found_lasts[group, state] = data[last_start:].tobytes()
                    states.append(state)
                assert states == sorted(states)
    assert found == truth
    assert found_lasts == lasts


@pytest.mark.parametrize("name", ["000001-driver", "directory-driver"])
def test_each_wrong_byte_is_damage_and_so_is_a_file_that_was_cut(tmp_path: Path, name: str) -> None:
    chosen, file = random.Random(1), tmp_path / name
    sent = exchange_of(tmp_path, 3)
    send_all(sent, (some_entries(chosen, 3) for _ in range(3)))
    received(sent)
    whole = file.read_bytes()
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(DamagedError, match=rf"{file}.*, offset \d+: expected .*, found (others|another)"):
            received(sent)
    for cut in (0, 5, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:cut])
        with pytest.raises(DamagedError, match=rf"{file}, offset \d+: expected \d+ more bytes, found the end"):
            received(sent)
    file.unlink()
    with pytest.raises(DamagedError, match=f"{file}: expected a file, found none"):
        received(sent)


@dataclass(slots=True)
class Reads:
    """How often files of the exchange were read, how many bytes, and how many files were opened."""

    number: int = 0
    size: int = 0
    opened: int = 0


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    counted, open_, readinto = Reads(), Location.open, SequentialFile.readinto

    def counting_open(file: Location) -> Any:
        counted.opened += 1
        return open_(file)

    def counting_readinto(file: SequentialFile, buffer: Any) -> int | None:
        got = readinto(file, buffer)
        counted.number += 1
        counted.size += got or 0
        return got

    monkeypatch.setattr(Location, "open", counting_open)
    monkeypatch.setattr(SequentialFile, "readinto", counting_readinto)
    return counted


def one_entry_for(groups: Iterable[int]) -> Iterator[GroupedEntries]:
    """Of two states, ten bytes for each key group."""
    for state in range(2):
        there = np.array(list(groups))
        bounds = np.arange(len(there) + 1) * 10
        yield GroupedEntries(state, np.zeros(bounds[-1], np.uint8), there, bounds, bounds[:-1])


def size_of(sent: Exchange) -> int:
    return sum(file.size() for file in (*map(sent.file, range(sent.senders)), sent.directory))


def test_receivers_read_each_byte_once_and_each_pair_costs_two_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: Reads
) -> None:
    monkeypatch.setattr(max_parallelism_exchange, "_BLOCK", 64)
    monkeypatch.setattr(exchange_receiver, "_MOST_OPEN", 1000)
    groups, senders = 400, 160
    receivers = tuple(KeyGroupRange(first, first + 3) for first in range(0, groups, 4))
    sent = exchange_of(tmp_path, senders, receivers)
    send_all(sent, (one_entry_for(range(groups)) for _ in range(senders)), receivers)
    for number, key_groups in enumerate(receivers):
        with ExchangeReceiver(sent, number) as arrived:
            for group in key_groups:
                assert sum(len(data) for _, data, _ in arrived.entries(group)) == 2 * senders * 10
    assert reads.size == size_of(sent)
    # The directory has three blocks. A sender's index is one read, and so are the parcels for a receiver.
    assert reads.number == len(receivers) * (3 + 2 * senders)
    assert reads.opened == len(receivers) * (1 + senders)


def test_a_receiver_that_holds_only_a_part_in_memory_reads_no_more_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: Reads
) -> None:
    monkeypatch.setattr(exchange_receiver, "_AT_ONCE", 20_000)
    monkeypatch.setattr(max_parallelism_exchange, "_AT_ONCE", 20_000)
    groups, senders = 50, 300
    sent = exchange_of(tmp_path, senders, (KeyGroupRange(0, groups - 1),))
    send_all(sent, (one_entry_for(range(groups)) for _ in range(senders)), (KeyGroupRange(0, groups - 1),))
    with ExchangeReceiver(sent, 0) as arrived:
        for group in range(groups):
            assert sum(len(data) for _, data, _ in arrived.entries(group)) == 2 * senders * 10
    # 300,000 bytes in portions of 20,000: each of 15 is read in 15 parts from the temporary file.
    assert reads.number < 1 + 2 * senders + 2 + 16 * 16
    assert reads.size < 3 * size_of(sent)


def test_a_sender_that_has_nothing_for_a_receiver_costs_it_nothing(tmp_path: Path, reads: Reads) -> None:
    """As when max parallelism is doubled: what is in an old key group goes to two of the new ones."""
    senders = 100
    receivers = tuple(KeyGroupRange(number, number) for number in range(2 * senders))
    sent = exchange_of(tmp_path, senders, receivers)
    send_all(sent, (one_entry_for((number, number + senders)) for number in range(senders)), receivers)
    for number in range(len(receivers)):
        with ExchangeReceiver(sent, number) as arrived:
            assert len(list(arrived.entries(number))) == 2
    assert reads.size == size_of(sent)
    assert reads.number == len(receivers) * 3
    assert reads.opened == len(receivers) * 2


def test_a_sender_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> Iterator[GroupedEntries]:
        yield from some_entries(random.Random(1), 3)
        raise DamagedError("more", "the end")

    sent = exchange_of(tmp_path, 1)
    with pytest.raises(DamagedError):
        send_all(sent, [failing()])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_new_savepoint_is_the_same_however_little_is_held_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = str(tmp_path / "source")
    write_demo_savepoint(source, DemoState(200, 20, 0.5, None, 1, parallelism=3, max_parallelism=16, seed=1))
    written = []
    for name in ("plenty", "little"):
        if name == "little":
            for module in (max_parallelism_exchange, exchange_receiver):
                monkeypatch.setattr(module, "_AT_ONCE", 3000)
            monkeypatch.setattr(exchange_receiver, "_SMALL", 64 << 20)
        rewrite(Savepoint.open(source), str(tmp_path / name), Layout(max_parallelism=23))
        files = (tmp_path / name).iterdir()
        written.append({file.name: file.read_bytes() for file in files if file.name != "_metadata"})
    plenty, little = written
    assert len(plenty) >= 3
    assert plenty == little
