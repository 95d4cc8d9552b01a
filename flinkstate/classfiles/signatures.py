"""Types as class files have them: `I`, `Ljava/lang/String;`, `[J`, `Ljava/util/List<Ljava/lang/Long;>;`.

A class has a signature if it or its superclass has types in brackets: `<T:Ljava/lang/Object;>LBox<TT;>;`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JavaType:
    """A type by the name that `Class.getName()` gives (`java.lang.String`, `[J`, `int` as `I`), and its type arguments.

    A wildcard has the name `*`, with its bound if it has one; an array of a class with type arguments or open parts has
    the same name, with the bound `[`. A type variable has the name `T`, and is `variable`.
    """

    name: str
    arguments: tuple[JavaType, ...] = ()
    variable: str = ""
    bound: JavaType | None = None

    @property
    def has_open_parts(self) -> bool:
        """Whether a wildcard or a type variable occurs."""
        return any(part.name in ("*", "T") for part in self.with_arguments())

    @property
    def is_its_own_argument(self) -> bool:
        """Whether its only type argument is its class, as Kryo 2 has it for the class of a type variable."""
        return self.arguments == (JavaType(self.name),)

    def with_arguments(self) -> Iterator[JavaType]:
        """Yields the type, and all types in its arguments."""
        yield self
        for part in self.arguments:
            yield from part.with_arguments()


# The bound of an array of which no class says what is in it.
ARRAY = JavaType("[")


def parse_type(text: str) -> JavaType:
    """Reads a descriptor or the signature of a field. Raises `ValueError` if it isn't one."""
    found, end = _type(text, 0, 0)
    if end != len(text):
        raise ValueError(f"not a type of a field: {text!r}")
    return found


def parse_class_signature(text: str) -> tuple[tuple[str, ...], JavaType]:
    """Reads the names of a class's type parameters, and its superclass. Raises `ValueError` if that isn't one."""
    names, at = [], 0
    if text.startswith("<"):
        at = 1
        while not text.startswith(">", at):
            bounds = text.index(":", at)
            names.append(text[at:bounds])
            at = bounds
            while text.startswith(":", at):
                # Before an interface that bounds it there may be no class.
                at = at + 1 if text.startswith("::", at) else _type(text, at + 1, 0)[1]
        at += 1
    return tuple(names), _type(text, at, 0)[0]


def _type(text: str, at: int, level: int) -> tuple[JavaType, int]:
    if level > 64 or at >= len(text):
        raise ValueError(f"not a type of a field: {text!r}")
    match text[at]:
        case "L":
            return _class(text, at + 1, level)
        case "[":
            inner, end = _type(text, at + 1, level + 1)
            named = len(inner.name) > 1 and not inner.name.startswith("[")
            if inner.has_open_parts or inner.arguments:
                return JavaType("*", bound=ARRAY), end
            return JavaType(f"[L{inner.name};" if named else f"[{inner.name}"), end
        case "T":
            end = text.index(";", at)
            return JavaType("T", variable=text[at + 1 : end]), end + 1
        case "*":
            return JavaType("*"), at + 1
        case "+" | "-":
            bound, end = _type(text, at + 1, level + 1)
            return JavaType("*", bound=bound), end
        case kind if kind in "ZBCSIJFD":
            return JavaType(kind), at + 1
    raise ValueError(f"not a type of a field: {text!r}")


def _class(text: str, at: int, level: int) -> tuple[JavaType, int]:
    name = ""
    arguments: tuple[JavaType, ...] = ()
    start = at
    while True:
        if at >= len(text):
            raise ValueError(f"not a type of a field: {text!r}")
        if text[at] in "<;.":
            name += text[start:at]
        if text[at] == ";":
            return JavaType(name.replace("/", "."), arguments), at + 1
        if text[at] == ".":
            # A class inside a class with type arguments.
            name, start = f"{name}$", at + 1
        if text[at] == "<":
            found: list[JavaType] = []
            at += 1
            while at < len(text) and text[at] != ">":
                argument, at = _type(text, at, level + 1)
                found.append(argument)
            arguments, start = tuple(found), at + 1
        at += 1
