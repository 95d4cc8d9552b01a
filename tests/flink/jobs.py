"""The description of a job that the Java side understands: what it holds, and how Flink runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class State:
    """One keyed state. ``type`` is an expression like ``Map{0-9}<String,Long?>``; see ``Kinds.java`` for its grammar.

    ``ttl`` is ``stamped`` (timestamps drawn and known), ``config`` (Flink's own TTL in force) or absent; ``share`` is
    the part of the keys, in the order in which they are drawn, that has the state. ``java`` is a line of Java that
    declares it; then ``type`` only says how its values are shown.
    """

    name: str
    type: str
    kind: str = "VALUE"
    ttl: str | None = None
    ttl_millis: int = 30 * 86_400_000
    update: str = "OnCreateAndWrite"
    namespace: str | None = None
    namespaces: int = 1
    share: tuple[float, float] = (0.0, 1.0)
    java: str | None = None


@dataclass(frozen=True)
class Timers:
    """So many timers of each sort per key and namespace: event time, processing time long past, and far ahead."""

    event: int = 0
    processing: int = 0
    far: int = 0
    service: str = "user-timers"
    namespace: str | None = None
    share: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class OperatorState:
    """State of no key; ``mode`` is ``SPLIT``, ``UNION`` or ``BROADCAST`` (then ``elements`` counts whole maps)."""

    name: str
    type: str
    mode: str = "SPLIT"
    elements: int = 10


@dataclass(frozen=True)
class Operator:
    """One operator: ``keyed``, ``plain`` (no keys), or one of Flink's own: ``window``, ``interval-join``,
    ``window-join``, ``co-process``, ``sink`` (fed with elements), ``source``.

    ``raw_keyed`` and ``raw_elements``: what it writes by itself, in some of its key groups and of no key.
    """

    uid: str
    type: str = "keyed"
    name: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    key: str | None = None
    keys: int = 0
    states: tuple[State, ...] = ()
    timers: Timers | None = None
    operator_states: tuple[OperatorState, ...] = ()
    function: str = "reduce"
    assigner: str = "tumbling"
    finished: int = 0
    asynchronous: bool = False
    raw_keyed: bool = False
    raw_elements: int = 0


@dataclass(frozen=True)
class Job:
    """A job: what it holds, and how Flink runs it.

    With ``rounds`` its keyed state is overwritten, deleted and cleared so many times, with a checkpoint in between,
    until all of it is what it is to be.
    """

    operators: tuple[Operator, ...]
    seed: int = 1
    parallelism: int = 3
    max_parallelism: int | None = 128
    backend: str = "rocksdb"
    snappy: bool = False
    inline_threshold: int = 20480
    registered: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    rounds: int = 0
