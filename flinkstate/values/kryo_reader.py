"""Reads a value that Kryo 2 (Flink 1.x) or Kryo 5 (Flink 2.x) wrote, object by object.

A value is a class tag, a reference mark, the object.

| part | bytes |
|---|---|
| class tag | `00` null; varint id + 2 of a class with an id; or `01`, varint name id, and the name if that id is new |
| mark | `01` a new object, which gets the next number; varint n + 2: object n once more. Boxed primitives have none |
| LocalDateTime | Kryo 2: mark, date, mark, time. Kryo 5: date, time |
| primitive array | varint n + 1, the elements |
| array of objects | varint n + 1, each a mark (`00` null) and the object |
| list, set | Kryo 2: varint n, each with class tag, mark. Kryo 5: varint n + 1 with a flag in bit 7 of its first byte.
  Without it the same follows. With it: the class tag of all; then, unless it is a `List.of`, whether some are null
  (then each has a mark, `00` null); each without tag. The tag `00` says that all are null |
| Arrays.asList | Kryo 2: varint n, a class tag, each with class tag and mark |
| map | varint n (Kryo 5: n + 1), then each key and value, with class tag and mark |
| TreeMap, TreeSet | the comparator (with class tag and mark, `00` none), then as above; of Kryo 5 behind the count |
| singletonList, singletonMap | the element, the key and the value; emptyList, emptyMap: nothing |
| Either | the other side, which is null, and the value, each with class tag and mark |
| Row | a map of its fields by their names, an array of them, the RowKind with a mark alone, their positions by names |
| Tuple | its fields, in the order of their names (f10 before f2), with class tag and mark |
| what is declared of a final class | a mark (`00` null; boxed ones too) and the object, without class tag.
  In a `Map.of` of Kryo 5 a mark as usual |

`kryo_input` has the bytes of all other classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flinkstate.classfiles.class_file import FINAL, ClassFile
from flinkstate.errors import RefusedError
from flinkstate.values.java_values import LocalDateTime, RowKind
from flinkstate.values.kryo_class_names import (
    AS_LIST,
    COMPARATORS,
    EITHER_SIDES,
    GSON_MAP,
    INTEGER,
    LISTS,
    LOCAL_DATE,
    LOCAL_TIME,
    MAPS,
    MAPS_OF,
    MAPS_WITHOUT_NULL,
    NATURAL_ORDER,
    OBJECT_ARRAY,
    ROW,
    ROW_KIND,
    SETS,
    SKIP_LIST,
    SORTED_SETS,
    STRING,
    UTIL,
    WITHOUT_NULL,
)
from flinkstate.values.kryo_jobs import (
    FINAL_CLASSES,
    KryoArgument,
    KryoField,
    collection_of,
    compares,
    enum_of,
)
from flinkstate.values.kryo_references import KryoObject, KryoReferences

_BOXED = frozenset(
    f"java.lang.{name}" for name in ("Integer", "Long", "Short", "Byte", "Boolean", "Character", "Float", "Double")
)


class KryoReader(KryoReferences):
    """Reads one value, of Kryo 5 or of Kryo 2."""

    def whole(self) -> KryoObject | None:
        """Returns the object that takes up all bytes."""
        found = self.object()
        if self.left:
            raise self.damaged("the end of a value that Kryo wrote", f"{self.left} more bytes")
        return found

    def object(self) -> KryoObject | None:
        """Reads a class tag, a mark unless the class is boxed, and the object."""
        name = self._class()
        return None if name is None else self._marked(name, may_be_null=False)

    def _marked(self, name: str, *, may_be_null: bool) -> KryoObject | None:
        read, like = _READERS.get(name), ""
        if read is None and self._job is not None and name in self._job.classes and name not in self._own:
            if (enum := enum_of(name, self._job)) is not None:
                return self._constant(name, enum, may_be_null=may_be_null)
            like = collection_of(name, self._job) or ""
            read = _READERS.get(like, KryoReader.fields)
        read = read or self._array(name)
        if name in self._own or read is None:
            by = f", as the job gave Kryo {self._own[name]} for them" if name in self._own else ""
            raise RefusedError(f"{name} (serialized by Kryo): its values can be copied, but not decoded{by}")
        if name in _BOXED:
            if may_be_null and not self.expect(self.varint(), range(2), "a mark 0 or 1"):
                return None
            return KryoObject(name, read(self, name))
        return self._referable(name, read, may_be_null=may_be_null, like=like)

    def _array(self, name: str) -> _Read | None:
        """What reads an array of a class; its elements have class tags if there may be subclasses."""
        component = name.removeprefix("[L").removesuffix(";")
        if name != f"[L{component};":
            return None
        found = None if self._job is None else self._job.classes.get(component)
        if component in FINAL_CLASSES or (found is not None and found.access & FINAL):
            return _array_of(component)
        return None if found is None else _READERS[OBJECT_ARRAY]

    def _constant(self, name: str, enum: ClassFile, *, may_be_null: bool) -> KryoObject | None:
        """Reads a constant of an enum, which in Kryo 5 can't be referred to."""
        if not self.five:
            found = self._referable(name, lambda reader, _: reader.constant(enum.constants), may_be_null=may_be_null)
            return found and KryoObject(enum.name, found.value)
        if may_be_null and not self.expect(self.varint(), range(2), "a mark 0 or 1"):
            return None
        return KryoObject(enum.name, self.constant(enum.constants))

    def constant(self, constants: tuple[str, ...]) -> str:
        return constants[self.expect(self.varint() - 1, range(len(constants)), "the number of a constant")]

    def fields(self, name: str) -> dict[str, KryoObject | None]:
        """Reads the fields of an object."""
        described, variables = self.described(name)
        around, self._kept = self._kept, (*self._kept, *variables)
        found: dict[str, KryoObject | None] = self.nested(lambda: {one.name: self._field(one) for one in described})
        self._kept = around
        return found

    def _field(self, field: KryoField) -> KryoObject | None:
        if field.primitive:
            return KryoObject(field.primitive, _READERS[field.primitive](self, field.primitive))
        self._in_field = True
        return self._part(field.objects, may_be_null=True)

    def _part(self, declared: KryoArgument, *, may_be_null: bool) -> KryoObject | None:
        """Reads an object whose class is declared; without a class tag if that is final."""
        self._declared = declared.arguments
        found = self._marked(declared.class_name, may_be_null=may_be_null) if declared.class_name else self.object()
        self._declared = ()
        return found

    def _declared_part(self, number: int) -> KryoArgument:
        """What is declared of the parts of the collection that is read now."""
        if number >= len(self._arguments):
            return _UNDECLARED
        found = self._arguments[number]
        return found if self.five else KryoArgument(found.class_name)

    def elements(self, name: str) -> list[KryoObject | None]:
        """Reads the elements of a list or set."""
        holds_null, declared = name not in WITHOUT_NULL, self._declared_part(0)
        if not self.five:
            if name in SORTED_SETS:
                self.comparator()
            number = self.varint()
            if name == AS_LIST:
                self._class()
            elif declared.class_name:
                return self._of_declared_class(number, declared, may_be_null=True)
            return self._tagged(number, holds_null)[0]
        number, is_flagged = self.flagged() if holds_null or not declared.class_name else (self.varint(), False)
        if name in SORTED_SETS:
            self.comparator()
        if declared.class_name:
            return self._of_declared_class(number - 1, declared, may_be_null=is_flagged)
        if not is_flagged:
            found, classes = self._tagged(number - 1, holds_null)
            if found and len(classes) < 2:
                raise self.damaged("elements of two classes in a list that doesn't say the class of all", "one class")
            return found
        return self._of_one_class(self.count(number - 1, 0), holds_null)

    def _of_declared_class(self, number: int, declared: KryoArgument, *, may_be_null: bool) -> list[KryoObject | None]:
        return [self._part(declared, may_be_null=may_be_null) for _ in range(self.count(number))]

    def _tagged(self, number: int, holds_null: bool) -> tuple[list[KryoObject | None], set[str]]:
        """Reads elements, and their classes. Constants of an enum count as classes: with bodies they are."""
        arguments = self._declared_part(0).arguments
        found: list[KryoObject | None] = []
        classes: set[str] = set()
        for _ in range(self.count(number)):
            self._declared = arguments
            name = self._class()
            one = None if name is None else self._marked(name, may_be_null=False)
            self._declared = ()
            found.append(one)
            if one is not None and name is not None:
                is_enum = enum_of(name, self._job) is not None
                classes.add(f"{one.class_name} {one.value}" if is_enum else name)
        if None in found and not holds_null:
            raise self.damaged("a list without null", "null")
        return found, classes

    def _of_one_class(self, number: int, holds_null: bool) -> list[KryoObject | None]:
        name = self._class()
        if number == 0 or (name is None and not holds_null):
            raise self.damaged("at least one element of a list that says the class of all", "none")
        if name is None:
            # Nothing is stored of them.
            self._again(number)
            return [None] * number
        self.count(number)
        some_null = holds_null and self.expect(self.byte(), range(2), "whether a list has nulls, 0 or 1") == 1
        of_class = KryoArgument(name, self._declared_part(0).arguments)
        return [self._part(of_class, may_be_null=some_null) for _ in range(number)]

    def pairs(self, name: str) -> list[tuple[KryoObject | None, KryoObject | None]]:
        """Reads the entries of a map."""
        is_sorted = name == "java.util.TreeMap" or (self.five and name == SKIP_LIST)
        takes_null = is_sorted and not self.five and self.comparator()
        number = self.varint() - self.five
        if is_sorted and self.five:
            takes_null = self.comparator()
        key, value = self._declared_part(0), self._declared_part(1)
        # Kryo 5 has no mark of null in a `Map.of` whose types are declared.
        marked = not (self.five and name in MAPS_OF)
        found = [
            (self._part(key, may_be_null=marked), self._part(value, may_be_null=marked))
            for _ in range(self.count(number, 2))
        ]
        has_no_null_key = (is_sorted and not takes_null) or name in ("java.util.EnumMap", GSON_MAP)
        never_null = 2 if name in MAPS_WITHOUT_NULL else 1 if has_no_null_key else 0
        if any(None in pair[:never_null] for pair in found):
            raise self.damaged(f"a {name} without null", "null")
        return found

    def comparator(self) -> bool:
        """Reads a comparator; returns whether it is one of the job's, which may take null."""
        name = self._class()
        if name is None:
            return False
        if name not in COMPARATORS and (name in self._own or not compares(name, self._job)):
            raise RefusedError(f"sorted by a comparator that can't be read: {name}")
        read = {NATURAL_ORDER: _natural_order}.get(name, _nothing if name in COMPARATORS else KryoReader.fields)
        if self.five and name == NATURAL_ORDER:
            # An enum has no mark in Kryo 5.
            read(self, name)
        else:
            self._referable(name, read, may_be_null=False)
        return name not in COMPARATORS

    def row(self) -> dict[str, KryoObject | None]:
        """Reads a Row of Flink."""
        by_name = self._map_in_field(STRING, "")
        fields = self.object()
        if fields is not None and fields.class_name != OBJECT_ARRAY:
            raise self.damaged("the fields of a Row", f"a {fields.class_name}")
        kind = self._constant_of(ROW_KIND, tuple(one.name for one in RowKind))
        return {
            "fieldByName": by_name,
            "fieldByPosition": fields,
            "kind": kind,
            "positionByName": self._map_in_field(STRING, INTEGER),
        }

    def _constant_of(self, name: str, constants: tuple[str, ...]) -> KryoObject:
        """Reads a constant that isn't null, of an enum that is known."""
        if self.five:
            self.expect(self.varint(), range(1, 2), "a mark 1")
            return KryoObject(name, self.constant(constants))
        found = self._referable(name, lambda reader, _: reader.constant(constants), may_be_null=False)
        assert found is not None
        return found

    def _map_in_field(self, key: str, value: str) -> KryoObject | None:
        """Reads a map with objects of final classes, which have no class tags. Their names are "" where they have."""
        name = self._class()
        if name is None:
            return None
        if name not in ("java.util.HashMap", "java.util.LinkedHashMap"):
            raise self.damaged("a map of a Row", f"a {name}")
        if not self.five and self._data[self.position : self.position + 1] != b"\1":
            # Kryo 2 keeps the type arguments for the next map then.
            raise RefusedError("one map stands in two rows")

        def entries(reader: KryoReader, _: str) -> list[tuple[KryoObject | None, KryoObject | None]]:
            number = reader.count(reader.varint() - reader.five, 2)
            return [(reader.of_class(key), reader.of_class(value)) for _ in range(number)]

        return self._referable(name, lambda reader, _: reader.nested(lambda: entries(reader, name)), may_be_null=False)

    def of_class(self, name: str) -> KryoObject | None:
        """Reads an object of a class that isn't said; "" if it is."""
        return self._marked(name, may_be_null=True) if name else self.object()

    def side(self, name: str) -> dict[str, KryoObject | None]:
        """Reads an Either of Flink."""
        own = EITHER_SIDES[name]
        found = self.fields(name)
        other = next(one for one in found if one != "value")
        return {own: found["value"]} | ({} if found[other] is None else {other: found[other]})

    def array(self, name: str) -> list[KryoObject | None]:
        return [self._marked(name, may_be_null=True) for _ in range(self.count(self.varint() - 1))]

    def primitives(self, read: Callable[[KryoReader], Any]) -> list[Any]:
        return [read(self) for _ in range(self.count(self.varint() - 1))]

    def date_time(self) -> LocalDateTime:
        if self.five:
            return LocalDateTime(self.date(), self.time())
        parts = [self._referable(name, _READERS[name], may_be_null=False) for name in (LOCAL_DATE, LOCAL_TIME)]
        date, time = (part.value for part in parts if part is not None)
        return LocalDateTime(date, time)

    def expect_first_constant(self) -> None:
        self.expect(self.varint(), range(1, 2), "the only constant of an enum")


_Read = Callable[[KryoReader, str], Any]


def _tuple(arity: int) -> _Read:
    def read(reader: KryoReader, name: str) -> tuple[KryoObject | None, ...]:
        found = reader.fields(name)
        return tuple(found[f"f{number}"] for number in range(arity))

    return read


def _array_of(component: str) -> _Read:
    return lambda reader, _: reader.nested(lambda: reader.array(component))


def _primitives(read: Callable[[KryoReader], Any]) -> _Read:
    return lambda reader, _: reader.primitives(read)


def _one(read: Callable[[KryoReader], Any]) -> _Read:
    return lambda reader, _: read(reader)


def _natural_order(reader: KryoReader, _: str) -> None:
    reader.expect_first_constant()


def _nothing(_: KryoReader, __: str) -> None:
    return


_UNDECLARED = KryoArgument("")

_NUMBERS: dict[str, Callable[[KryoReader], Any]] = {
    "Integer": KryoReader.integer,
    "Long": KryoReader.long,
    "Short": lambda reader: reader.unpack("h"),
    "Byte": KryoReader.signed_byte,
    "Boolean": KryoReader.boolean,
    "Character": lambda reader: chr(reader.unpack("H")),
    "Float": lambda reader: reader.floating("f", 0x7FC00000),
    "Double": lambda reader: reader.floating("d", 0x7FF8000000000000),
}
_READERS: dict[str, _Read] = {
    **{f"java.lang.{name}": _one(read) for name, read in _NUMBERS.items()},
    "java.lang.String": _one(lambda reader: reader.string()),
    "java.math.BigInteger": _one(KryoReader.big_integer),
    "java.math.BigDecimal": _one(KryoReader.big_decimal),
    **dict.fromkeys(("java.util.Date", "java.sql.Date", "java.sql.Time"), _one(KryoReader.positive_long)),
    "java.sql.Timestamp": _one(KryoReader.timestamp),
    LOCAL_DATE: _one(KryoReader.date),
    LOCAL_TIME: _one(KryoReader.time),
    "java.time.LocalDateTime": _one(KryoReader.date_time),
    "java.time.Instant": _one(KryoReader.instant),
    "java.util.UUID": _one(KryoReader.uuid),
    "[B": _one(lambda reader: reader.take(reader.count(reader.varint() - 1))),
    **{
        f"[{code}": _primitives(_NUMBERS[name])
        for code, name in zip(
            "IJSZCFD", ("Integer", "Long", "Short", "Boolean", "Character", "Float", "Double"), strict=True
        )
    },
    **{f"[Ljava.lang.{name};": _array_of(f"java.lang.{name}") for name in (*_NUMBERS, "String")},
    **dict.fromkeys((*LISTS, *SETS), lambda reader, name: reader.nested(lambda: reader.elements(name))),
    **dict.fromkeys(MAPS, lambda reader, name: reader.nested(lambda: reader.pairs(name))),
    **{f"{UTIL}Collections$Empty{name}": lambda reader, _: reader.nested(list) for name in ("List", "Set", "Map")},
    **{
        f"{UTIL}Collections$Singleton{name}": lambda reader, _: reader.nested(lambda: [reader.object()])
        for name in ("List", "Set")
    },
    "java.util.Collections$SingletonMap": lambda reader, _: reader.nested(lambda: [(reader.object(), reader.object())]),
    **{f"org.apache.flink.api.java.tuple.Tuple{arity}": _tuple(arity) for arity in range(1, 26)},
    **dict.fromkeys(EITHER_SIDES, KryoReader.side),
    ROW: lambda reader, _: reader.nested(reader.row),
    OBJECT_ARRAY: lambda reader, _: reader.nested(
        lambda: [reader.object() for _ in range(reader.count(reader.varint() - 1))]
    ),
}
