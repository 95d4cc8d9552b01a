"""Measures what a change of max parallelism costs: for each byte, and for each sender and receiver on a large cluster.

python -m benchmarks.exchanging send|receive FOLDER    # what the processes that are measured do
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.executing import execute
from benchmarks.measuring import Comparison, Execution, Scale, Subject, expect, in_memory
from benchmarks.native_nights import Timed
from benchmarks.sections import ENTRIES_PER_KEY, NOW
from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import KeyGroupRange, ranges
from flinkstate.writing.max_parallelism_change import GroupedEntries
from stateferry.changes.exchange_receiver import ExchangeReceiver
from stateferry.changes.max_parallelism_exchange import Directory, Exchange, send
from stateferry.demo import MAIN_STATE, NEW_MAIN_STATE, OPERATOR, DemoState, write_demo_savepoint
from stateferry.runs.checks.plan_check import open_source, planned, resolve
from stateferry.steps import rescale

SENDERS = RECEIVERS = 1000
MAX_PARALLELISM = 32_000
# Of the one entry that each sender has for each key group.
ENTRY = 32


def send_all(exchange: Exchange) -> None:
    """Does what senders and driver do if each sender has an entry for each key group."""
    last_key_groups = [one.end for one in ranges(MAX_PARALLELISM, exchange.receivers)]
    bounds = np.arange(MAX_PARALLELISM + 1) * ENTRY
    data = np.zeros(bounds[-1], np.uint8)
    entries = GroupedEntries(0, data, np.arange(MAX_PARALLELISM), bounds, bounds[:-1])
    with Directory(exchange) as directory:
        for sender in range(exchange.senders):
            directory.add(send(exchange.file(sender), [entries], last_key_groups))


def receive_all(exchange: Exchange) -> dict[str, int]:
    """Receives all entries; returns the number of reads and of bytes that this process has read meanwhile."""
    receivers = ranges(MAX_PARALLELISM, exchange.receivers)
    _receive(exchange, 0, receivers[0])  # reads kernels and modules as well, so it doesn't count
    before = _io()
    for receiver, key_groups in enumerate(receivers):
        _receive(exchange, receiver, key_groups)
    return {name: count - before[name] for name, count in _io().items()}


def _receive(exchange: Exchange, receiver: int, key_groups: KeyGroupRange) -> None:
    with ExchangeReceiver(exchange, receiver) as received:
        got = sum(len(data) for key_group in key_groups for _, data, _ in received.entries(key_group))
    expect(got, exchange.senders * len(key_groups) * ENTRY, "bytes of entries")


def _io() -> dict[str, int]:
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return {"reads": int(lines["syscr"]), "bytes": int(lines["rchar"])}


def measure(scale: Scale, senders: int = SENDERS, receivers: int = RECEIVERS) -> Iterator[Comparison]:
    """Writing new files at the same max parallelism and at another one, and the exchange of a large cluster."""
    yield from _rescaling(scale)
    folder, log = scale.folder / "exchange", scale.folder / "exchanging.log"
    folder.mkdir()
    command = [sys.executable, "-m", "benchmarks.exchanging"]
    numbers = [str(folder), str(senders), str(receivers)]
    sent = execute([*command, "send", *numbers], log)
    received = execute([*command, "receive", *numbers], log)
    counted = json.loads(log.read_text().splitlines()[-1])
    pairs = senders * receivers
    yield Comparison(f"{senders:,} senders, an entry for each of {MAX_PARALLELISM:,} key groups", (sent,))
    what = f"{counted['reads'] / pairs:.2f} reads and {counted['bytes'] / pairs:,.0f} bytes for each sender"
    yield Comparison(f"{receivers:,} receivers: {what}", (received,))
    shutil.rmtree(folder)


def _rescaling(scale: Scale) -> Iterator[Comparison]:
    source = scale.folder / "source"
    write_demo_savepoint(
        str(source), DemoState(scale.keys, ENTRIES_PER_KEY, 0, None, NOW, parallelism=2, max_parallelism=128, seed=1)
    )
    for what, changed in (("same max parallelism", {}), ("max parallelism 300", {"max_parallelism": 300})):
        executions = [_rescaled(scale.folder, source, changed) for _ in range(1 + scale.rounds)]
        yield Comparison(f"rescale of {scale.keys * ENTRIES_PER_KEY:,} entries: {what}", tuple(executions[1:]))
    shutil.rmtree(source)


def _rescaled(folder: Path, source: Path, changed: dict[str, Any]) -> Execution:
    """The tasks of such a step in this process; the seconds by the clock are those of the processor."""
    home = str(folder / "home")
    state = {"legacy": MAIN_STATE, "new": NEW_MAIN_STATE, "no_flag": True}
    values = {"source": str(source), "target": str(folder / "target"), "home": home, "run_id": "only", "now": NOW}
    plan = planned({**values, "no_timers": True, "operators": [{"operator": OPERATOR, "states": [state]}], **changed})
    workers, target = Timed(), folder / "staged"
    in_memory(source)
    rescale.alone(workers, resolve(plan, open_source(plan)), str(target), Location.of(str(folder / "on-its-way")))
    shutil.rmtree(target)
    cpu = sum(workers.cpu.values())
    return Execution(cpu, cpu, 0)


SUBJECT = Subject("A change of max parallelism, on one core, without Spark", measure)


if __name__ == "__main__":
    of_all = Exchange(Location.of(sys.argv[2]), "driver", int(sys.argv[3]), int(sys.argv[4]))
    if sys.argv[1] == "send":
        send_all(of_all)
    else:
        sys.stdout.write(f"{json.dumps(receive_all(of_all))}\n")
