"""What type arguments make of the fields of a class: each Kryo goes by them in its own way.

Both look at the type arguments of the field in which an object is, and take a type variable of its class for the class
that these say. A final one has no class tag then.

| | Kryo 2 | Kryo 5 |
|---|---|---|
| knows a type variable by | its name, in the class of the object alone | its class, in superclasses too |
| `class LongBox extends Box<Long>` | takes `T` for unknown | takes `T` for `Long` |
| an object in a collection | has no type arguments | has those that the field says for it |
| type arguments of type arguments | are left out | count in collections and in classes, but not behind a variable |
| a wildcard is | `Object` | its bound |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from flinkstate.classfiles.class_file import FINAL, PUBLIC, STATIC, SYNTHETIC, TRANSIENT, ClassFile, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.classfiles.signatures import ARRAY, JavaType, parse_class_signature, parse_type

_OBJECT = "java.lang.Object"
EITHER, OPTIONAL = "org.apache.flink.types.Either", "java.util.Optional"
ATOMIC_REFERENCE = "java.util.concurrent.atomic.AtomicReference"
_TUPLE = "org.apache.flink.api.java.tuple.Tuple"
# A type variable of which no class is known.
OPEN = JavaType("?")
# A type variable: the class that has it as a parameter, and its name.
_Variable = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TypedFields:
    """The fields of an object, each with its class and the type arguments for what is in it, as a Kryo takes them.

    `kept` is how many entries Kryo keeps of type variables while it is in the object.
    """

    fields: tuple[tuple[Member, JavaType], ...]
    kept: int = 0


def takes_arguments(name: str, job: JobClasses, *, five: bool) -> bool:
    """Whether the fields of the class may change with the type arguments of the field in which an object is."""
    if five:
        return name != OPTIONAL and bool(_hierarchy(name, job) or _variables_around(name, job))
    return bool(_parameters(name, job))


def variables_of(name: str, job: JobClasses, *, five: bool) -> tuple[frozenset[str], frozenset[str]]:
    """Returns as what Kryo knows the type variables of a class, and those that its type arguments may not say.

    Kryo 2 knows them by their names, Kryo 5 by the classes that have them. Both are empty if they are of a class or a
    method around the class.
    """
    if _variables_around(name, job):
        return frozenset(), frozenset()
    names = _parameters(name, job)
    if not five:
        used = frozenset(part for text in _signatures(name, job) for part in _variables(parse_type(text)))
        return used.union(names), used.difference(names)
    groups = _hierarchy(name, job)
    known, said = ({one for group in some for one in group} for some in (groups, groups[: len(names)]))
    return frozenset(of for of, _ in known), frozenset(of for of, _ in known - said)


def plain_fields(name: str, job: JobClasses, *, five: bool) -> TypedFields:
    """Returns the fields of an object for which there are no type arguments.

    Raises `ValueError` for a type that can't be read, or is an array of a class with type arguments.
    """
    return TypedFields(tuple(_fields(name, job, {} if five else None, {})))


@lru_cache(maxsize=4096)
def typed_fields(name: str, job: JobClasses, arguments: tuple[JavaType, ...], *, five: bool) -> TypedFields | None:
    """Returns the fields of an object in a field with type arguments; None if they don't say which those are."""
    known, names = tuple(one.name for one in arguments), _parameters(name, job)
    groups = _hierarchy(name, job)
    fits = len(names) <= len(known) and (len(known) <= len(groups) or not five)
    if not fits or OPEN.name in known or _variables_around(name, job):
        return None
    if not five and known[0] == name and _file(name, job).access & FINAL:
        # Kryo 2 takes what is in it for another object of the class, and reads any memory.
        return None
    if not five:
        return TypedFields(tuple(_fields(name, job, None, dict(zip(names, known, strict=False)))), 2 * len(names))
    variables = [one for group in groups for one in group]
    classes = [class_ for class_, group in zip(known, groups, strict=False) for _ in group]
    kept = dict(zip(variables, classes, strict=False))
    return TypedFields(tuple(_fields(name, job, kept, {})), 2 * len(classes))


def _fields(
    name: str, job: JobClasses, kept: dict[_Variable, str] | None, by_name: dict[str, str]
) -> Iterator[tuple[Member, JavaType]]:
    """Yields the fields; `kept` are the type variables of Kryo 5, None for Kryo 2, which has them `by_name`."""
    for declared_in in _chain(name, job):
        for member in written_members(_file(declared_in, job)):
            try:
                _expect_no_inner_class(member)
                type_ = _by_2(member, by_name) if kept is None else _by_5(member, declared_in, name, job, kept)
            except ValueError as error:
                raise ValueError(f"its field {member.name} has a type that isn't read: {error}") from None
            yield member, type_


def _expect_no_inner_class(member: Member) -> None:
    """Raises `ValueError` for `Outer<T>.Inner`: Kryo 5 takes it to have type arguments, finds none, and fails."""
    if ">." in (member.signature or ""):
        raise ValueError("a class inside of a class with type arguments")


def written_members(of: ClassFile) -> Iterator[Member]:
    """Yields the fields that Kryo writes of those that a class declares."""
    return (one for one in of.fields if not one.access & (STATIC | TRANSIENT | SYNTHETIC))


def _by_2(member: Member, by_name: dict[str, str]) -> JavaType:
    type_, plain = parse_type(member.signature or member.descriptor), parse_type(member.descriptor)
    if type_.variable:
        found = by_name.get(type_.variable)
        if found is None:
            return plain
        # Kryo 2 hands it on as the type argument of the object itself.
        return JavaType(found, (JavaType(found),))
    arguments = tuple(_argument_by_2(one, by_name) for one in _expect_class(type_).arguments)
    return JavaType(plain.name, arguments if arguments and arguments[0] != OPEN else ())


def _argument_by_2(type_: JavaType, by_name: dict[str, str]) -> JavaType:
    if type_.variable:
        found = by_name.get(type_.variable)
        return OPEN if found is None else JavaType(found)
    return JavaType(_OBJECT if type_.name == "*" and type_.bound != ARRAY else _expect_class(type_).name)


def _by_5(member: Member, declared_in: str, name: str, job: JobClasses, kept: dict[_Variable, str]) -> JavaType:
    type_, plain = parse_type(member.signature or member.descriptor), parse_type(member.descriptor)

    def class_of(variable: str) -> JavaType:
        found = _resolved((declared_in, variable), declared_in, name, job, is_first=True)
        known = found if isinstance(found, str) else kept.get(found)
        return OPEN if known is None else JavaType(known)

    def argument(one: JavaType) -> JavaType:
        if one.variable:
            return class_of(one.variable)
        if one.name == "*" and one.bound != ARRAY:
            bound = one.bound or JavaType(_OBJECT)
            return class_of(bound.variable) if bound.variable else JavaType(_expect_class(bound).name)
        return JavaType(_expect_class(one).name, parts(one))

    def parts(of: JavaType) -> tuple[JavaType, ...]:
        found = tuple(map(argument, of.arguments))
        return found if any(one != OPEN for one in found) else ()

    if type_.variable:
        found = class_of(type_.variable)
        return plain if found == OPEN else found
    return JavaType(plain.name, parts(_expect_class(type_)))


def _expect_class(type_: JavaType) -> JavaType:
    if type_.name == "*":
        raise ValueError("an array of a class with type arguments")
    return type_


def _resolved(
    variable: _Variable, declared_in: str, current: str, job: JobClasses, *, is_first: bool
) -> str | _Variable:
    """Returns the class that a subclass makes of a type variable, or the variable that stands for it there.

    As Kryo 5 does, it looks for the variable's name alone among the parameters of each superclass.
    """
    above = _above(current, job)
    if not above.arguments:
        return variable
    if above.name != declared_in:
        found = _resolved(variable, declared_in, above.name, job, is_first=False)
        if isinstance(found, str):
            return found
        variable = found
    names = _parameters(above.name, job)
    if variable[1] not in names:
        return variable
    argument = above.arguments[names.index(variable[1])]
    if not argument.variable:
        return _expect_class(argument).name
    return variable if is_first else (current, argument.variable)


@lru_cache(maxsize=1 << 16)
def _hierarchy(name: str, job: JobClasses) -> tuple[tuple[_Variable, ...], ...]:
    """The parameters of a class and its superclasses, each with those of superclasses to which it is handed on."""
    return tuple(
        tuple(_handed_on((current, parameter), job))
        for current in _chain(name, job)
        for parameter in _parameters(current, job)
    )


def _handed_on(variable: _Variable, job: JobClasses) -> Iterator[_Variable]:
    yield variable
    above, current = _above(variable[0], job), variable
    while above.arguments:
        handed = [one.variable for one in above.arguments]
        if current[1] not in handed:
            return
        current = above.name, _parameters(above.name, job)[handed.index(current[1])]
        yield current
        above = _above(above.name, job)


def _variables_around(name: str, job: JobClasses) -> bool:
    """Whether fields have type variables of a class or method around the class."""
    for one in _chain(name, job):
        own = _parameters(one, job)
        signatures = [member.signature for member in written_members(_file(one, job)) if member.signature]
        if any(part not in own for text in signatures for part in _variables(parse_type(text))):
            return True
    return False


def _signatures(name: str, job: JobClasses) -> Iterator[str]:
    for one in _chain(name, job):
        yield from (member.signature for member in written_members(_file(one, job)) if member.signature)


def _variables(type_: JavaType) -> Iterator[str]:
    for part in type_.with_arguments():
        if part.variable:
            yield part.variable
        if part.bound is not None:
            yield from _variables(part.bound)


def _chain(name: str, job: JobClasses) -> Iterator[str]:
    current: str | None = name
    while current is not None and (found := _found(current, job)) is not None:
        yield current
        current = found.superclass


@lru_cache(maxsize=1 << 16)
def _declared(name: str, job: JobClasses) -> tuple[tuple[str, ...], JavaType]:
    """The names of the parameters of a class, and its superclass."""
    found = _found(name, job)
    above = "" if found is None else found.superclass or ""
    if found is None or found.signature is None:
        return (), JavaType(above)
    parameters, extended = parse_class_signature(found.signature)
    return parameters, JavaType(above, extended.arguments)


def _parameters(name: str, job: JobClasses) -> tuple[str, ...]:
    return _declared(name, job)[0]


def _above(name: str, job: JobClasses) -> JavaType:
    return _declared(name, job)[1]


def _found(name: str, job: JobClasses) -> ClassFile | None:
    return job.classes.get(name) or KNOWN_WITH_PARAMETERS.get(name)


def _file(name: str, job: JobClasses) -> ClassFile:
    found = _found(name, job)
    assert found is not None, name
    return found


def _known(name: str, parameters: tuple[str, ...], above: str, fields: dict[str, str]) -> ClassFile:
    bounds = "".join(f"{one}:Ljava/lang/Object;" for one in parameters)
    members = (Member(one, _descriptor(text), PUBLIC, text) for one, text in fields.items())
    access = PUBLIC | FINAL if name == OPTIONAL else PUBLIC
    superclass = parse_type(above).name
    return ClassFile(name, superclass, (), access, tuple(members), f"<{bounds}>{above}", for_kryo=False)


def _descriptor(signature: str) -> str:
    return "Ljava/lang/Object;" if signature.startswith("T") else f"{signature.partition('<')[0]};"


_LEFT, _RIGHT = (f"L{EITHER.replace('.', '/')}${side}<TL;TR;>;" for side in ("Left", "Right"))
_ABOVE = "Ljava/lang/Object;", f"L{EITHER.replace('.', '/')}<TL;TR;>;", f"L{_TUPLE.replace('.', '/')};"
# Classes of the JDK and of Flink: their type parameters, what they extend, and the types of their fields.
_KNOWN: dict[str, tuple[tuple[str, ...], str, dict[str, str]]] = {
    OPTIONAL: (("T",), _ABOVE[0], {"value": "TT;"}),
    ATOMIC_REFERENCE: (("V",), _ABOVE[0], {"value": "TV;"}),
    EITHER: (("L", "R"), _ABOVE[0], {}),
    f"{EITHER}$Left": (("L", "R"), _ABOVE[1], {"value": "TL;", "right": _RIGHT}),
    f"{EITHER}$Right": (("L", "R"), _ABOVE[1], {"value": "TR;", "left": _LEFT}),
    **{
        f"{_TUPLE}{arity}": (
            tuple(f"T{number}" for number in range(arity)),
            _ABOVE[2],
            {f"f{number}": f"TT{number};" for number in range(arity)},
        )
        for arity in range(1, 26)
    },
}
KNOWN_WITH_PARAMETERS = {name: _known(name, *described) for name, described in _KNOWN.items()}
