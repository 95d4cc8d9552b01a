"""Types in which no other types are: enums, values of fixed length, and those that only foreign code understands."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from flinkstate.classfiles.job_classes import JobClasses


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


@dataclass(frozen=True, slots=True)
class KryoType(OpaqueType):
    """A value that Kryo wrote, opaque to everything but `flinkstate.kryo`.

    `registrations` are in the order of their ids, the declared class first; `defaults` are the job's own serializers
    for classes and their subclasses, as (class, serializer). `classes` are those of the job, if they were given.
    `five` says whether Kryo 5 wrote the values, or Kryo 2, if that is known; `for_five` by which of the two they are
    to be read, if they are written for another Flink.
    """

    reason: str = "serialized by Kryo"
    registrations: tuple[KryoRegistration, ...] = ()
    defaults: tuple[tuple[str, str], ...] = ()
    classes: JobClasses | None = None
    five: bool | None = None
    for_five: bool = True
    raw_defaults: bytes = field(default=b"", compare=False, repr=False)

    @property
    def own_serializer(self) -> str | None:
        """The job's own serializer by which Kryo writes this class; None if it is one that Kryo or Flink has."""
        return next((part.serializer for part in self.registrations if part.class_name == self.class_name), None)

    def of_the_job(self, other: KryoType) -> KryoType:
        """Returns what the job that has the other type makes of this class, unless it is known already."""
        if self.registrations:
            return self
        ids = {part.class_name: part for part in other.registrations if part.class_name != other.class_name}
        first = ids.pop(self.class_name, KryoRegistration(self.class_name))
        return replace(other, class_name=self.class_name, registrations=(first, *ids.values()), classes=None)


def simple_name(class_name: str) -> str:
    """Returns `Reading` for `com.acme.Reading`, `com.acme.Job$Reading` and Scala's object `com.acme.Reading$`."""
    return class_name.rstrip("$").replace("$", ".").rsplit(".", 1)[-1]
