"""Writes a subtask's timers as a job that keeps them on the heap has them, in the layout of `heap_timers.py`.

Flink restores them from the raw keyed state of a savepoint too, though it writes them into checkpoints alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.header import VALUE_SERIALIZER, BackendKind, KeyedHeader, StateMeta
from flinkstate.keyed.heap_timers import MAGIC, SORTS, VERSION, name_of
from flinkstate.keyed.key_group_check import TIMER_TIMESTAMP
from flinkstate.serializers.binary import ByteWriter


def timers_of(header: KeyedHeader) -> dict[int, StateMeta]:
    """The states of timers, by their ids."""
    return {number: meta for number, meta in enumerate(header.states) if meta.kind is BackendKind.PRIORITY_QUEUE}


class HeapTimersWriter:
    """The timers of the states, by their ids; key groups in ascending order, in each its states in any order."""

    def __init__(
        self, write: Callable[[bytes], None], states: Mapping[int, StateMeta], key_groups: KeyGroupRange, prefix: int
    ) -> None:
        self._write, self._prefix, self._left = write, prefix, list(key_groups)[::-1]
        self._position, self.offsets = 0, list[int]()
        ids = {meta.name: number for number, meta in states.items()}
        self._services = [
            (service, meta, [ids[name_of(sort, service)] for sort in SORTS])
            for meta in states.values()
            if (service := meta.name.removeprefix(name_of(SORTS[0], ""))) != meta.name
        ]
        self._timers: dict[int, list[bytes]] = {number: [] for number in states}

    @property
    def states(self) -> Collection[int]:
        return self._timers.keys()

    def add(self, state: int, rows: Buffer) -> None:
        """Adds timers as rows of a section: the key group, the timestamp with its sign bit flipped, key and namespace.

        Of a row, its key has its length before it, and no value behind it.
        """
        data, at = rows.tobytes(), 0
        while at < len(data):
            first, at = at + 4 + self._prefix, at + 4 + int.from_bytes(data[at : at + 4], "big")
            self._complete(int.from_bytes(data[first - self._prefix : first], "big"))
            stamp = bytes((data[first] ^ 0x80,)) + data[first + 1 : first + TIMER_TIMESTAMP]
            self._timers[state].append(data[first + TIMER_TIMESTAMP : at] + stamp)
            at += 4

    def close(self) -> None:
        """Writes the key groups that are left."""
        while self._left:
            self._write_group()

    def _complete(self, key_group: int) -> None:
        while self._left and self._left[-1] < key_group:
            self._write_group()

    def _write_group(self) -> None:
        self._left.pop()
        self.offsets.append(self._position)
        writer = ByteWriter().raw(MAGIC.to_bytes(4, "big", signed=True)).i32(VERSION).i32(len(self._services))
        for service, meta, states in self._services:
            described = meta.serializer(VALUE_SERIALIZER)
            assert described is not None
            writer.utf(service)
            for part in described.nested:
                writer.raw(part.raw)
            for timers in (self._timers[state] for state in states):
                writer.i32(len(timers)).raw(b"".join(timers))
                timers.clear()
        data = writer.bytes()
        self._write(data)
        self._position += len(data)
