"""Collections by Kryo that Flink 2 may write with serializers of its own, and what a plan says of them.

A `Map`, `List`, `Set` or `Collection` is by Kryo 2 in Flink 1, however it is declared. Flink 2 has serializers for it
if it is declared with type arguments, by a `TypeHint` or in a field of a POJO, and gives it to Kryo 5 otherwise. No
savepoint says which it is; the class of a POJO says it of its fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from flinkstate.basics.did_you_mean import there_are
from flinkstate.classfiles.class_file import ENUM
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import RefusedError, UsageError
from flinkstate.kryo.job_pojos import collection_of_flink_2, descriptor_of, known_type, pojo_type, why_no_pojo
from flinkstate.kryo.known_class_parts import ENUMS
from flinkstate.kryo.reading import declared_reading
from flinkstate.kryo.to_flink_maps import of_the_job
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.type_parts import has_scala, with_classes, with_opaque
from flinkstate.serializers.type_text import parse_type_text, type_text
from flinkstate.serializers.types import (
    DeclaredKryoType,
    EnumType,
    FlinkType,
    KryoCollectionType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    OpaqueType,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    SetType,
    TupleType,
    children,
    numbered,
    simple_name,
    type_name,
)
from stateferry.changes.upgrade.nullable_maps import has_objects
from stateferry.runs.checks.declarations import KEY, Declarations
from stateferry.runs.checks.declared_scala import declared_scala
from stateferry.runs.checks.field_contradictions import contradiction
from stateferry.verdict.declarations import INTERFACES
from stateferry.verdict.field_in_class import field_in_class

# All objects of classes are Kryo's there.
_OBJECTS = re.compile(r"\b(Pojo|Enum)\s*<")
_PARTS = frozenset(
    (
        *(Scalar.BOOLEAN, Scalar.BYTE, Scalar.SHORT, Scalar.INTEGER, Scalar.LONG, Scalar.FLOAT, Scalar.DOUBLE),
        *(Scalar.CHARACTER, Scalar.STRING, Scalar.BIG_INTEGER, Scalar.BIG_DECIMAL, Scalar.DATE, Scalar.INSTANT),
        *(Scalar.SQL_DATE, Scalar.SQL_TIME, Scalar.SQL_TIMESTAMP),
    )
)


def declared_by_operator(declared: Mapping[str, str], source: Savepoint) -> dict[bytes, dict[str, str]]:
    """Returns how states are declared, by operator id and by `state` or `state.field`."""
    found: dict[bytes, dict[str, str]] = {}
    for name, text in declared.items():
        operator, state = _operator_and_state(name, source)
        of_states = found.setdefault(operator.id, {})
        if state in of_states:
            raise UsageError(f"--declared {name}: this state is there twice, by two names of its operator")
        of_states[state] = text
    return found


def _operator_and_state(name: str, source: Savepoint) -> tuple[Operator, str]:
    """The operator that is told, and the state or place in it. The names of both may have slashes."""
    ends = [index for index, sign in enumerate(name) if sign == "/"]
    for end in reversed(ends[1:]):
        try:
            return source.operator(name[:end]), name[end + 1 :]
        except UsageError:
            continue
    return source.operator(name[: ends[0]]), name[ends[0] + 1 :]


def declared_in_vain(
    declared: Mapping[str, str], values: Iterable[tuple[str, FlinkType]], operator: Operator, *, back: bool = False
) -> Iterator[str]:
    """Yields a problem for each name of which there is no collection whose serializer depends on the declaration.

    `values` are the types of values and elements, each with the name of its state.
    """
    open_ones = [path for name, type_ in values for path, _, _ in open_places(type_, name, back=back)]
    for name in declared:
        if name not in open_ones:
            by = "a serializer of Flink 2's own" if back else "Kryo"
            yield (
                f"--declared {operator.label}/{name}: operator {operator.label} has no Map, List, Set or Collection by "
                f"{by} of this name. {there_are(name, open_ones)}"
            )


# A path, what is there, and if it is a field of a POJO, the class and the name of the field.
Place = tuple[str, FlinkType, tuple[str, str] | None]


def open_places(
    type_: FlinkType, path: str, of_pojo: tuple[str, str] | None = None, *, back: bool = False
) -> Iterator[Place]:
    """Yields the collections whose serializer depends on the declaration, where this can be known.

    They are by Kryo or, on the way `back` to Flink 1, by Flink 2's own serializers.
    """
    if _is_open(type_, back) or (not back and has_scala(type_) and not isinstance(type_, MapType)):
        yield path, type_, of_pojo
        return
    match type_:
        case MapType(key, value) if not back and has_scala(type_):
            yield from open_places(key, f"{path}.{KEY}")
            yield from open_places(value, path)
        case ListType(element) | MapType(_, element):
            # The signature of a field says nothing of what its serializer has inside.
            yield from open_places(element, path, back=back)
        case PojoType(fields=fields):
            for one in fields:
                yield from open_places(one.type, f"{path}.{one.name}", (type_.class_name, one.name), back=back)
            for subclass in (one for one in type_.subclasses if isinstance(one, PojoType)):
                yield from open_places(subclass, f"{path}.{subclass.class_name}", back=back)
        case TupleType() | RowType():
            for name, part in numbered(type_.fields):
                yield from open_places(part, f"{path}.{name}", back=back)


def _is_open(type_: FlinkType, back: bool) -> bool:
    return bool(names_of(type_)) if back else isinstance(type_, KryoType) and type_.class_name in INTERFACES


def names_of(type_: FlinkType) -> tuple[str, ...]:
    """Returns as what a job may declare a collection that Flink 2 stores like this; nothing for other types."""
    match type_:
        case NullableType(MapType(NullableType(padding=0)), 0):
            return ("Map",)
        case NullableType(ListType(NullableType(padding=0)), 0):
            return ("List", "Collection")
        case NullableType(SetType(), 0):
            return ("Set",)
    return ()


def collections_of_flink_2(type_: FlinkType) -> Iterator[FlinkType]:
    """Yields the parts of a type that Flink 1 gives to Kryo, but for what Kryo is to write."""
    if names_of(type_):
        yield type_
    elif not isinstance(type_, KryoCollectionType):
        for child in children(type_):
            yield from collections_of_flink_2(child)


def declared_type(type_: FlinkType, path: str, declared: Declarations) -> FlinkType:
    """Returns the type with the collections that Flink 2 writes itself; adds a problem for each that is undecided."""
    if has_scala(type_):
        return declared_scala(type_, path, declared)
    by_path: dict[str, OpaqueType] = {}
    rest = list(interfaces_in(type_))
    for place, kryo, of_pojo in open_places(type_, path):
        assert isinstance(kryo, KryoType)
        rest.remove(kryo)
        by_path[place] = _stored(kryo, of_pojo, place, declared)
    declared.problems.extend(undecided(declared.where(path), one) for one in rest)
    return with_places(type_, path, by_path)


def undecided(where: str, one: KryoType) -> str:
    """Says that a collection's serializer in Flink 2 depends on a declaration that can't be known."""
    return (
        f"{where}: Flink 2 may have a serializer of its own for the {simple_name(one.class_name)} by Kryo inside of "
        "its keys or values, which is not rewritten there"
    )


def with_places(type_: FlinkType, path: str, by_path: Mapping[str, OpaqueType], *, back: bool = False) -> FlinkType:
    """Returns the type with what its open places are."""
    if _is_open(type_, back):
        return by_path.get(path, type_)
    match type_:
        case ListType(element):
            return ListType(with_places(element, path, by_path, back=back))
        case MapType(key, value):
            return MapType(key, with_places(value, path, by_path, back=back))
        case PojoType(fields=fields):
            made = (
                replace(one, type=with_places(one.type, f"{path}.{one.name}", by_path, back=back)) for one in fields
            )

            def of_subclass(one: FlinkType) -> FlinkType:
                if not isinstance(one, PojoType):
                    return one
                return with_places(one, f"{path}.{one.class_name}", by_path, back=back)

            registered = tuple(map(of_subclass, type_.registered_subclasses))
            others = tuple((name, of_subclass(one)) for name, one in type_.other_subclasses)
            return PojoType(type_.class_name, tuple(made), registered, others)
        case TupleType() | RowType():
            parts = (with_places(part, f"{path}.{name}", by_path, back=back) for name, part in numbered(type_.fields))
            return replace(type_, fields=tuple(parts))
    return type_


def interfaces_in(type_: FlinkType | None) -> Iterator[KryoType]:
    """Yields the parts of a type by Kryo whose serializer in Flink 2 depends on the declaration."""
    found: list[KryoType] = []

    def note(one: OpaqueType) -> OpaqueType:
        if isinstance(one, KryoType) and one.class_name in INTERFACES:
            found.append(one)
        return one

    if type_ is not None:
        with_opaque(type_, note)
    yield from found


def _stored(kryo: KryoType, of_pojo: tuple[str, str] | None, place: str, declared: Declarations) -> OpaqueType:
    """Returns how Flink 2 stores a collection: as a person says, or else the class; adds a problem if both differ."""
    text = declared.texts.get(place)
    found = None if of_pojo is None else field_in_class(*of_pojo, declared.job)
    if found is None or found.type.has_open_parts:
        return _declared(kryo, text, place, declared)
    try:
        made = collection_of_flink_2(found.member, found.class_name, replace(kryo, classes=declared.job))
        of_class = kryo if made is None else _collection(kryo, made, declared.job)
    except RefusedError as error:
        if text is not None:
            return _declared(kryo, text, place, declared)
        declared.problems.append(f"{declared.where(place)}: {error}")
        return kryo
    if text is None:
        return of_class
    told = _declared(kryo, text, place, declared)
    # A new job may have given the field type arguments.
    if found.is_certain and found.type.arguments and _made_by(told) != _made_by(of_class):
        declared.problems.append(f"{declared.where(place)}: {contradiction(text, found)}")
    return told


def _made_by(type_: OpaqueType) -> FlinkType | None:
    """The serializer of Flink 2's own, None if Kryo 5 writes the values."""
    return type_.made if isinstance(type_, KryoCollectionType) else None


def _declared(kryo: KryoType, text: str | None, place: str, declared: Declarations) -> OpaqueType:
    name = simple_name(kryo.class_name)
    where = declared.where(place)
    option = f"--declared '{declared.operator.label}/{place}="
    if text is None:
        arguments = "String, Long" if name == "Map" else "String"
        declared.problems.append(
            f"{where} is a {name} by Kryo. Flink 2 stores it as the job declares it: if by a TypeHint or as a field "
            f"with type arguments, say {option}{name}<{arguments}>', with those that it has; if by {name}.class, or "
            f"with type arguments that are wildcards or have type arguments themselves, {option}{name}'"
        )
        return kryo
    if text.strip() in (name, f"java.util.{name}"):
        return kryo
    try:
        return _made(name, text, kryo, has_pojos=declared.has_pojos)
    except (RefusedError, UsageError) as error:
        declared.problems.append(f"{where}: {error}")
        return kryo


def _made(name: str, text: str, kryo: KryoType, *, has_pojos: bool) -> OpaqueType:
    """Returns how Flink 2 stores a collection that is declared so."""
    inner = text.strip()
    head, _, arguments = inner.partition("<")
    if head.strip() not in (name, f"java.util.{name}") or not arguments.endswith(">"):
        raise UsageError(f"--declared: expected {name} or {name}<...>, found {text!r}")
    texts = _split(arguments[:-1])
    parts = [parse_type_text(part, with_sets=True) for part in texts]
    if len(parts) != (2 if name == "Map" else 1):
        raise UsageError(f"--declared: expected {2 if name == 'Map' else 1} type arguments, found {text!r}")
    if any(isinstance(part, MapType | ListType | SetType) for part in parts):
        return _by_kryo_5(name, texts, kryo)
    for part in parts:
        _expect_by_kryo(part, kryo, has_pojos=has_pojos)
    made: FlinkType
    if name == "Map":
        map_ = of_the_job(MapType(*parts), kryo, of_flink_2=True)
        made = MapType(NullableType(map_.key, 0), map_.value)
    elif name == "Set":
        made = of_the_job(SetType(parts[0]), kryo, of_flink_2=True)
    else:
        made = ListType(NullableType(of_the_job(ListType(parts[0]), kryo, of_flink_2=True).element, 0))
    return _collection(kryo, NullableType(made, 0), kryo.classes)


def _expect_by_kryo(part: FlinkType, kryo: KryoType, *, has_pojos: bool) -> None:
    """Refuses a class told as Kryo's for which Flink has a serializer."""
    name, job = part.class_name if isinstance(part, KryoType) else "", kryo.classes
    known = None if job is None else job.classes.get(name)
    instead = known_type(descriptor_of(name)) if name else None
    if known is not None and known.access & ENUM and not known.for_flink:
        instead = EnumType(name, known.constants)
    elif known is not None and has_pojos:
        try:
            instead = pojo_type(name, kryo, of_flink_2=True)
        except RefusedError as error:
            assert job is not None
            if job.superclasses(name)[-1] == "java.lang.Object" and why_no_pojo(name, job) is None:
                raise RefusedError(
                    f"--declared says Kryo<{name}>, but Flink takes it for a POJO, which isn't written here: {error}"
                ) from None
    elif name in ENUMS:
        raise RefusedError(
            f"--declared says Kryo<{name}>, but Flink has a serializer for enums, and isn't given those of the JDK here"
        )
    if instead is not None:
        raise RefusedError(f"--declared says Kryo<{name}>, but Flink has a serializer for it: say {type_text(instead)}")


def _collection(kryo: KryoType, made: FlinkType, job: JobClasses | None) -> KryoCollectionType:
    """Returns a collection by Kryo that becomes one of Flink 2's own."""
    assert isinstance(made, NullableType)
    for part in children(made.value):
        one = part.value if isinstance(part, NullableType) else part
        if one not in _PARTS and not isinstance(one, PrimitiveArrayType) and not has_objects(one):
            what = "numbers, texts, dates and arrays, Pojo<...>, Enum<...> and Kryo<...>"
            raise RefusedError(f"a {type_name(made)}: only {what} are rewritten inside of it")
    found = with_classes(made, job)
    assert isinstance(found, NullableType)
    return KryoCollectionType.of(kryo, found)


def _by_kryo_5(name: str, texts: list[str], kryo: KryoType) -> KryoType:
    """Returns the serializer of a collection whose type arguments have type arguments, which Flink gives to Kryo 5.

    So Flink doesn't need to know them, but what is said of the values is held against them all the same.
    """
    parts = [parse_type_text(_OBJECTS.sub("Kryo<", one), with_sets=True) for one in texts]
    told = MapType(*parts) if name == "Map" else SetType(*parts) if name == "Set" else ListType(*parts)
    whole = of_the_job(ListType(told), kryo, of_flink_2=True).element
    assert isinstance(whole, MapType | ListType | SetType)
    found = DeclaredKryoType.of(kryo, whole)
    declared_reading(found)
    return found


def _split(arguments: str) -> list[str]:
    """Splits at the commas that are in no brackets."""
    found, depth = [""], 0
    for one in arguments:
        depth += (one == "<") - (one == ">")
        if one == "," and depth == 0:
            found.append("")
        else:
            found[-1] += one
    return found
