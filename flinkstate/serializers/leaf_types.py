"""Types in which no other types are: enums, values of fixed length, and those that only foreign code understands."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EnumType:
    """i32 number of the constant: its index in `names`, or for Scala's enumerations its number in `ids`."""

    class_name: str
    names: tuple[str, ...]
    ids: tuple[int, ...] | None = None

    @property
    def name_of(self) -> dict[int, str]:
        """The constants' names by their numbers."""
        return dict(zip(range(len(self.names)) if self.ids is None else self.ids, self.names, strict=True))


class AvroType:
    """Values by Flink's Avro serializer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AvroFixedType(AvroType):
    """`size` bytes."""

    class_name: str
    size: int


@dataclass(frozen=True, slots=True)
class OpaqueType:
    """A value that only foreign code understands: it can be copied but not split. `reason` says whose code it is."""

    class_name: str
    reason: str


@dataclass(frozen=True, slots=True)
class KryoRegistration:
    """A class that has an id in the values of a Kryo serializer, and the job's own serializer for it, if it has one.

    `raw` is how a header says so.
    """

    class_name: str
    serializer: str | None = None
    raw: bytes = field(default=b"", compare=False, repr=False)
