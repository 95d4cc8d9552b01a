"""From which Flink to which one, and which parts of a state the rules look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import FlinkType
from stateferry.verdict.versions import Line


@dataclass(frozen=True, slots=True)
class Journey:
    """The Flink that wrote a savepoint, and the one that is to restore it.

    `all_by_kryo_5` says of a savepoint of Flink 2 that its job was never upgraded from Flink 1 without a rewrite.
    """

    source: Line
    target: Line
    all_by_kryo_5: bool = False

    @property
    def stays(self) -> bool:
        """Whether both are of the same line."""
        return self.source is self.target

    @property
    def by_one_kryo(self) -> bool:
        """Whether it is known that one Kryo wrote all values of the savepoint."""
        return self.source is Line.ONE or self.all_by_kryo_5

    @property
    def upgrades(self) -> bool:
        """Whether it goes from Flink 1 to Flink 2."""
        return (self.source, self.target) == (Line.ONE, Line.TWO)


class Place(Enum):
    """Where in a state a serializer's values stand; the value is the name for people."""

    KEY = "key"
    NAMESPACE = "namespace"
    USER_KEY = "user key"
    VALUE = "value"
    ELEMENT = "element"

    @property
    def is_key(self) -> bool:
        """Whether Flink finds state by these bytes."""
        return self in (Place.KEY, Place.NAMESPACE, Place.USER_KEY)


@dataclass(frozen=True, slots=True)
class Part:
    """A type at a place of a state, with the snapshots of the serializers that the header has there.

    The keys of a broadcast state are in its elements.
    """

    place: Place
    type: FlinkType
    snapshots: tuple[SerializerSnapshot, ...] = ()
    of_broadcast_keys: bool = False

    def all_snapshots(self) -> Iterator[SerializerSnapshot]:
        """Yields the snapshots and all that are in them."""
        todo = list(self.snapshots)
        while todo:
            snapshot = todo.pop()
            yield snapshot
            todo += snapshot.nested
