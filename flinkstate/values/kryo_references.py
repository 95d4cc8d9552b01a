"""Class tags and marks of values that Kryo wrote: which class an object has, and which earlier object it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import RefusedError
from flinkstate.values.kryo_input import KryoInput
from flinkstate.values.kryo_jobs import KryoArgument

_DEEPEST = 64
# One object may stand in several places. Written out, all may have so many times the bytes of the value.
_MOST_GROWTH, _FREE_GROWTH = 64, 1 << 20
# Kryo 2 has serializers for these that the type arguments of a field don't get to.
_WITHOUT_ARGUMENTS = (
    "java.util.Arrays$ArrayList",
    *(f"java.util.Collections${how}{what}" for how in ("Empty", "Singleton") for what in ("List", "Map", "Set")),
)


@dataclass(frozen=True, slots=True)
class KryoObject:
    """An object with its class. Its parts are such objects too, or None for null.

    The parts of lists, sets and arrays of objects are a list, of maps a list of pairs, of tuples a tuple, of the job's
    own classes, rows and Either its fields by name. All else is as `java_values` has it.

    `like` is the class of the JDK as which Kryo writes a collection or map of the job's own.
    """

    class_name: str
    value: Any
    like: str = field(default="", repr=False)

    @property
    def form(self) -> str:
        """The class as which Kryo writes it."""
        return self.like or self.class_name


@dataclass(slots=True)
class _Known:
    """An object that may be referred to; `made` when it has been read, with the weight that it has written out."""

    class_name: str
    made: KryoObject | None = None
    weight: int = 0


class KryoReferences(KryoInput):
    """The classes and objects of one value: `classes` have ids, `own` are those with a serializer of the job.

    `job` are the job's own classes, if they are known.
    """

    def __init__(
        self,
        five: bool,
        classes: Mapping[int, str],
        own: Mapping[str, str],
        job: JobClasses | None,
        data: bytes,
        position: int,
        limit: int,
    ) -> None:
        super().__init__(five, data, position, limit)
        self._classes, self._own, self._job = classes, own, job
        self._most = _MOST_GROWTH * self.left + _FREE_GROWTH
        self._names: list[str] = []
        self._objects: list[_Known] = []
        self._depth = self._weight = 0
        # The type arguments of the field whose object is read next, and of the object whose parts are read.
        self._declared: tuple[KryoArgument, ...] = ()
        self._arguments: tuple[KryoArgument, ...] = ()

    def _referable(
        self, name: str, read: Callable[[Any, str], Any], *, may_be_null: bool, like: str = ""
    ) -> KryoObject | None:
        mark = self.varint()
        if mark == 0 and may_be_null:
            return None
        if mark != 1:
            if self._declared and not self.five and name not in _WITHOUT_ARGUMENTS:
                raise RefusedError("a collection stands in a field with type arguments, and elsewhere: Kryo 2 can err")
            number = self.expect(mark - 2, range(len(self._objects)), "a reference to an earlier object")
            known = self._objects[number]
            if known.class_name != name:
                raise self.damaged(f"a reference to a {name}", f"a {known.class_name}")
            if known.made is None:
                raise RefusedError("an object contains itself")
            self._again(known.weight)
            return known.made
        known = _Known(name)
        self._objects.append(known)
        begin = self.position + self._weight
        known.made = KryoObject(name, read(self, like or name), like)
        known.weight = self.position + self._weight - begin + 1
        return known.made

    def _again(self, weight: int) -> None:
        """Counts what needs no bytes of its own."""
        self._weight += weight
        if self._weight > self._most:
            raise RefusedError("one object stands so often in a value that it would grow beyond all measure")

    def _class(self) -> str | None:
        tag = self.varint()
        if tag == 0:
            return None
        if tag > 1:
            if tag - 2 not in self._classes:
                scala = "with flink-scala on the job's class path, Kryo 2 has such ids for Scala's classes"
                raise self.damaged("the id of a class", f"{tag - 2} ({scala})")
            return self._classes[tag - 2]
        number = self.expect(self.varint(), range(len(self._names) + 1), "the number of a class's name")
        if number == len(self._names):
            self._names.append(self.string(is_name=True))
        return self._names[number]

    def nested(self, read: Callable[[], Any]) -> Any:
        """Reads parts of an object."""
        if self._depth == _DEEPEST:
            raise RefusedError(f"objects nested more than {_DEEPEST} deep")
        self._depth += 1
        around, self._arguments, self._declared = self._arguments, self._declared, ()
        found = read()
        self._arguments = around
        self._depth -= 1
        return found
