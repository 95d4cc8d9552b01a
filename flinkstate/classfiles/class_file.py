"""One class file, as far as it says which fields and methods a class has.

| part | bytes |
|---|---|
| head | u32 `ca fe ba be`, u16 minor and major version |
| constants | u16 count + 1, each u8 kind and its content; kinds 5 and 6 count twice |
| class | u16 access, u16 its class, u16 superclass (0 none), u16 count and u16 interfaces |
| fields, methods | u16 count, each u16 access, name, descriptor, then attributes |
| attributes | u16 count, each u16 name, u32 length, content |
| `Code` | u16 depth of the stack, u16 count of variables, u32 length, the code, then more |
| `Signature` | u16, the constant with the generic type |
| `InnerClasses` | u16 count, each u16 class, the one around it, its name there, its access as the source has it |

All u16 but counts and access are numbers of constants. Names of classes have `/` for `.`.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass

from flinkstate.classfiles.signatures import parse_class_signature
from flinkstate.errors import DamagedError

PUBLIC, FINAL, STATIC, TRANSIENT, SYNTHETIC = 0x01, 0x10, 0x08, 0x80, 0x1000
INTERFACE, ABSTRACT, ENUM = 0x200, 0x400, 0x4000
AVRO_RECORD = "org.apache.avro.specific.SpecificRecordBase"
_MAGIC = 0xCAFEBABE
_TEXT, _CLASS, _STRING = 1, 7, 8
# An Avro class with more of them isn't one that Avro's compiler made.
_MOST_CHARACTERS = 1 << 22
# Of the constants that aren't read.
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
_WIDE = (5, 6)
CONSTRUCTOR = "<init>"
# Calls, and a static field, which may be a map that a superclass copies.
_CALLS = tuple(bytes([code]) for code in (0xB2, *range(0xB6, 0xBB)))
_TYPE_INFO = "Lorg/apache/flink/api/common/typeinfo/TypeInfo;"

# What `written_by_kryo` has, where it is other in another class.
_WRITTEN = (
    *("another superclass", "other interfaces of java.util", "other modifiers", "other constants", "other fields"),
    *("other use of Kryo's classes", "other type parameters"),
)


@dataclass(frozen=True, slots=True)
class Member:
    """A field or a method; `signature` is its generic type, if it has one."""

    name: str
    descriptor: str
    access: int
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class ClassFile:
    """A class, its names with dots.

    `declared` is its access as the source has it. `for_kryo` says whether it mentions classes of Kryo, which may change
    its bytes; `for_flink` the same of Flink's annotation `TypeInfo`. `differs` says what is other in a class of this
    name in another jar, of which Kryo would write other bytes, or which has another schema. `texts` are the strings in
    the code of a class that Avro's compiler made. `constructed_by_calls` says that a constructor may do more than set
    fields.
    """

    name: str
    superclass: str | None
    interfaces: tuple[str, ...]
    access: int
    fields: tuple[Member, ...]
    signature: str | None
    for_kryo: bool
    methods: tuple[Member, ...] = ()
    declared: int = 0
    for_flink: bool = False
    differs: str = ""
    texts: tuple[str, ...] = ()
    constructed_by_calls: bool = False

    @property
    def written_by_kryo(self) -> tuple[object, ...]:
        """What the bytes of its objects follow from, where Kryo writes them."""
        unwritten = STATIC | TRANSIENT | SYNTHETIC
        fields = {(one.name, one.descriptor, one.signature) for one in self.fields if not one.access & unwritten}
        access = self.access & (FINAL | INTERFACE | ABSTRACT | ENUM)
        interfaces = {one for one in self.interfaces if one.startswith("java.util.")}
        return self.superclass, interfaces, access, self.constants, fields, self.for_kryo, self._parameters

    @property
    def _parameters(self) -> object:
        """The names of its type parameters, and its superclass with type arguments."""
        with suppress(ValueError):
            return parse_class_signature(self.signature or "")
        return None

    def other_in(self, other: ClassFile) -> str:
        """Says what is other in a class of the same name, if Kryo writes other bytes of it or its schema is other."""
        both = zip(_WRITTEN, self.written_by_kryo, other.written_by_kryo, strict=True)
        found = [what for what, mine, its in both if mine != its]
        found += ["another schema"] if self.texts != other.texts else []
        return " and ".join(found)

    @property
    def constants(self) -> tuple[str, ...]:
        """The constants of an enum, in their order."""
        return tuple(field.name for field in self.fields if field.access & ENUM)


def parse_class(data: bytes, place: str) -> ClassFile:
    """Reads a class file; `place` names it in errors."""
    reader = _Reader(data, place)
    try:
        return reader.read()
    except (struct.error, IndexError):
        raise DamagedError("more bytes of a class file", "its end", offset=len(data), file=place) from None


class _Reader:
    def __init__(self, data: bytes, place: str) -> None:
        self._data, self._place, self._at = data, place, 0
        self._constants: list[str | int | None] = [None]
        self._strings: list[int] = []
        self._declared: dict[int, int] = {}
        # So many codes of calls a constructor has, of which some may be numbers.
        self._calls = 0

    def read(self) -> ClassFile:
        if self._number(">I") != _MAGIC:
            raise self._damaged("a class file", "other bytes", 0)
        self._number(">I")
        self._pool()
        texts = [one for one in self._constants if isinstance(one, str)]
        access, number = self._number(">H"), struct.unpack_from(">H", self._data, self._at)[0]
        name, superclass = self._class_name(), self._class_name()
        interfaces = tuple(self._class_name() or "" for _ in range(self._number(">H")))
        fields = tuple(self._member() for _ in range(self._number(">H")))
        methods = tuple(self._member() for _ in range(self._number(">H")))
        signature = self._attributes()
        if name is None:
            raise self._damaged("the name of a class", "none", self._at)
        if self._at != len(self._data):
            raise self._damaged("the end of a class file", f"{len(self._data) - self._at} more bytes", self._at)
        for_kryo = any(one.startswith("Lcom/esotericsoftware/") for one in texts)
        declared = self._declared.get(number, access)
        for_flink, in_code = _TYPE_INFO in texts, self._texts_of_code() if superclass == AVRO_RECORD else ()
        return ClassFile(
            *(name, superclass, interfaces, access, fields, signature, for_kryo, methods, declared, for_flink),
            texts=in_code,
            constructed_by_calls=self._calls > 1,
        )

    def _texts_of_code(self) -> tuple[str, ...]:
        found, total = [], 0
        for number in self._strings:
            text = self._constant(number, self._at)
            if not isinstance(text, str):
                raise self._damaged("the constant of a string", "another", self._at)
            total += len(text)
            if total > _MOST_CHARACTERS:
                return ()
            found.append(text)
        return tuple(found)

    def _pool(self) -> None:
        count = self._number(">H")
        while len(self._constants) < count:
            start, kind = self._at, self._number(">B")
            if kind == _TEXT:
                size = self._number(">H")
                # Java writes 0 and what is beyond 16 bits in its own way; no name that counts here has them.
                self._constants.append(self._bytes(size).decode("utf-8", "replace"))
            elif kind == _CLASS:
                self._constants.append(self._number(">H"))
            elif kind == _STRING:
                self._strings.append(self._number(">H"))
                self._constants.append(None)
            elif kind in _SIZES:
                self._bytes(_SIZES[kind])
                self._constants += [None] * (2 if kind in _WIDE else 1)
            else:
                raise self._damaged("the kind of a constant", f"{kind}", start)

    def _member(self) -> Member:
        access, name, descriptor = self._number(">H"), self._text(), self._text()
        return Member(name, descriptor, access, self._attributes(is_constructor=name == CONSTRUCTOR))

    def _attributes(self, *, is_constructor: bool = False) -> str | None:
        signature = None
        for _ in range(self._number(">H")):
            name, size = self._text(), self._number(">I")
            end = self._at + size
            if name == "Signature":
                signature = self._text()
            elif name == "Code" and is_constructor:
                self._number(">I")
                code = self._bytes(self._number(">I"))
                # A number in the code may look like one more.
                self._calls = max(self._calls, sum(map(code.count, _CALLS)))
            elif name == "InnerClasses":
                for _ in range(self._number(">H")):
                    number, _, _, access = (self._number(">H") for _ in range(4))
                    self._declared[number] = access
            if end > len(self._data) or (name == "Signature" and size != 2):
                raise self._damaged("an attribute that fits into the class file", f"{size} bytes", self._at)
            self._at = end
        return signature

    def _class_name(self) -> str | None:
        start, number = self._at, self._number(">H")
        if number == 0:
            return None
        named = self._constant(number, start)
        if not isinstance(named, int):
            raise self._damaged("the constant of a class", "another", start)
        text = self._constant(named, start)
        if not isinstance(text, str):
            raise self._damaged("the name of a class", "another constant", start)
        return text.replace("/", ".")

    def _text(self) -> str:
        start = self._at
        text = self._constant(self._number(">H"), start)
        if not isinstance(text, str):
            raise self._damaged("the constant of a name", "another", start)
        return text

    def _constant(self, number: int, start: int) -> str | int | None:
        if number >= len(self._constants):
            raise self._damaged(f"one of {len(self._constants)} constants", f"number {number}", start)
        return self._constants[number]

    def _number(self, form: str) -> int:
        (number,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(number)

    def _bytes(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise IndexError
        self._at += size
        return self._data[self._at - size : self._at]

    def _damaged(self, expected: str, found: str, offset: int) -> DamagedError:
        return DamagedError(expected, found, offset=offset, file=self._place)
