"""Class tags and marks of values that Kryo wrote: which class an object has, and which earlier object it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.classfiles.type_arguments import takes_arguments, variables_of
from flinkstate.errors import RefusedError
from flinkstate.values.kryo_class_names import LISTS, MAPS, SETS
from flinkstate.values.kryo_input import KryoInput
from flinkstate.values.kryo_jobs import KryoArgument, KryoField, UnknownArgumentsError, kryo_fields

_DEEPEST = 64
_NO_JOB = JobClasses("", {})
_COLLECTIONS = frozenset((*LISTS, *SETS, *MAPS))
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
        # Whether the next object is in a field, what Kryo keeps of type arguments, and of which classes it had some.
        self._in_field = False
        self._kept: tuple[str, ...] = ()
        self._with_arguments: set[str] = set()

    def _referable(
        self, name: str, read: Callable[[Any, str], Any], *, may_be_null: bool, like: str = ""
    ) -> KryoObject | None:
        mark = self.varint()
        if mark == 0 and may_be_null:
            return None
        if mark != 1:
            is_kept = any(one.class_name for one in self._declared[:2]) and (like or name in _COLLECTIONS)
            if is_kept and not self.five and name not in _WITHOUT_ARGUMENTS:
                raise UnknownArgumentsError(
                    "a collection stands in a field with type arguments, and elsewhere: Kryo 2 can err"
                )
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

    def described(self, name: str) -> tuple[tuple[KryoField, ...], frozenset[str]]:
        """Returns the fields of the object that is read next, and what Kryo keeps of its type arguments."""
        job = self._job or _NO_JOB
        if not takes_arguments(name, job, five=self.five):
            return kryo_fields(name, job, five=self.five), frozenset()
        variables, left = variables_of(name, job, five=self.five)
        # Without type arguments of its own, Kryo can take it to have those that it has seen last.
        decisive = left if self._declared else variables
        has_seen = not decisive.isdisjoint(self._kept) or (bool(self._kept) and not variables)
        if has_seen or (name in self._with_arguments and not self._in_field and not self._declared):
            raise UnknownArgumentsError(f"which type arguments Kryo took an object of {name} to have is not known")
        if self._declared and not self.five:
            self._with_arguments.add(name)
        arguments = tuple(one.declared for one in self._declared)
        return kryo_fields(name, job, five=self.five, arguments=arguments), variables if arguments else frozenset()

    def nested(self, read: Callable[[], Any]) -> Any:
        """Reads parts of an object."""
        if self._depth == _DEEPEST:
            raise RefusedError(f"objects nested more than {_DEEPEST} deep")
        self._depth += 1
        around, self._arguments, self._declared = self._arguments, self._declared, ()
        self._in_field = False
        found = read()
        self._arguments = around
        self._in_field = False
        self._depth -= 1
        return found
