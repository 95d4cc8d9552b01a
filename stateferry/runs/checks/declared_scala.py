"""As what values of flink-scala are declared in the new job: `--declared`, held against what the savepoint has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import RefusedError, UsageError
from flinkstate.keyed.state import KeyedState
from flinkstate.kryo.job_pojos import known_type, stored_fields
from flinkstate.metadata.metadata import Operator
from flinkstate.scala.programs import compile_scala
from flinkstate.serializers.built_snapshots import snapshot_of
from flinkstate.serializers.type_parts import has_scala
from flinkstate.serializers.type_text import parse_type_text, type_text
from flinkstate.serializers.types import (
    FLINK_EITHER,
    SCALA_TRY,
    CaseClassType,
    EitherType,
    EnumType,
    FlinkType,
    ListType,
    MapType,
    NullableType,
    OptionType,
    PojoField,
    PojoType,
    Scalar,
    ScalaType,
    SetType,
    TraversableType,
    TupleType,
    children,
    type_name,
)
from stateferry.runs.checks.declarations import KEY, Declarations
from stateferry.verdict.field_in_class import field_in_class
from stateferry.verdict.removed import has_no_value, may_become_one, suggestion

_T = TypeVar("_T")
_TUPLES = "org.apache.flink.api.java.tuple."
_TOKEN = re.compile(r"\s*([\w.$\[\]]+|[<>(),:?])")
# The code by which Scala's compiler builds a collection: "implicitly[...CanBuildFrom[Map[...], ...]]".
_BUILDER = re.compile(r"CanBuildFrom\[([\w.]+)|([\w.]+)\.canBuildFrom")
_KIND = re.compile(r"^(java\.util|Types)\.")
_MOST_LEVELS = 32
_COLLECTIONS = ("List", "Collection", "Set", "Map")


def declared_scala(type_: FlinkType, path: str, declared: Declarations) -> FlinkType:
    """Returns as what values of flink-scala are written; adds a problem for those that it can't be known of."""
    if not has_scala(type_):
        return type_
    where = f"{declared.where(path)} has serializers of flink-scala, which Flink 2 has not"
    if (text := declared.texts.get(path)) is None:
        declared.problems.append(f"{where}: {what_to_say(type_, declared.operator.label, path)}")
        return type_
    try:
        found = as_told(type_, text)
    except (RefusedError, UsageError) as error:
        declared.problems.append(f"{where}: --declared {text!r}: {error}")
        return type_
    pojos = _pojos(found.source, found.made)
    problems = dict.fromkeys(one for source, pojo in pojos for one in _not_of_class(source, pojo, declared.job))
    declared.problems.extend(f"{where}: --declared {text!r}: {one}" for one in problems)
    return found


def as_told(type_: FlinkType, text: str) -> ScalaType:
    """Returns as what values of flink-scala are written if the new job declares them so; refuses what can't be."""
    source, made = _made(type_, parse_declared(text), nullable=False)
    found = ScalaType.of(source, made)
    compile_scala(found)
    snapshot_of(made)
    return found


def _pojos(source: FlinkType, made: FlinkType) -> Iterator[tuple[CaseClassType, PojoType]]:
    """Yields each case class that becomes a POJO, with that."""
    source = source.value if isinstance(source, OptionType) else source
    if not has_scala(source):
        return
    # A list by hint is nullable by itself, and once more with a question mark.
    while isinstance(made, NullableType):
        made = made.value
    old, new = children(source), children(made)
    match source, made:
        case CaseClassType(names=names), PojoType(fields=fields):
            yield source, made
            types = {one.name: one.type for one in fields}
            new = tuple(types[name] for name in names)
        case TraversableType(pair), MapType():
            old = children(pair)
    for part, other in zip(old, new, strict=True):
        yield from _pojos(part, other)


def _not_of_class(source: CaseClassType, pojo: PojoType, job: JobClasses | None) -> Iterator[str]:
    """Yields what people say of a POJO's fields and its class doesn't, and which fields can't hold what they get.

    No savepoint says their names, and Flink leaves out the value of a field that the class hasn't, without an error.
    """
    if job is None or pojo.class_name not in job.classes:
        yield f"which fields {pojo.class_name} has is not known: give the new job's jar, too: --classes new-job.jar"
        return
    fields = {field.name: field.descriptor for field, _ in stored_fields(pojo.class_name, job)}
    if fields.keys() != {one.name for one in pojo.fields}:
        yield f"{pojo.class_name} has other fields: {', '.join(fields) or 'none'}"
        return
    parts = dict(zip(source.names, source.fields, strict=True))
    for one in pojo.fields:
        made = one.type.value if isinstance(one.type, NullableType) else one.type
        what, stored = f"the field {one.name} of {pojo.class_name}", known_type(fields[one.name])
        if stored is not None and stored != made:
            yield f"{what} is {type_name(stored)}, and not {type_name(made)}"
        elif len(fields[one.name]) == 1 and isinstance(parts[one.name], OptionType | NullableType):
            yield f"{what} is of a primitive type, which can't be null: declare it as {type_name(made)}"
        elif stored is None and (found := field_in_class(pojo.class_name, one.name, job)) and not found.may_be(made):
            yield f"{what} is {found.text} in the jar, and not {type_name(made)}"


def what_to_say(type_: FlinkType, operator: str, path: str) -> str:
    """Says how values of this type become values of Flink's own serializers."""
    is_key = path == KEY
    text = suggestion(type_, is_key=is_key, is_user_key=path.endswith(f".{KEY}"))
    if text is None:
        return (
            "they are not rewritten. Let the job, under Flink 1.20, move the state to types of Java, and take a "
            "savepoint then"
        )
    more = ", or with Pojo<com.acme.Reading>(name, total) for a case class, and the new job's jar in --classes"
    more = more if "Tuple" in text and not is_key else ""
    return f"say as what the new job declares it, such as --declared '{operator}/{path}={text}'{more}"


def namespaces_from_scala(states: Iterable[KeyedState], operator: Operator) -> Iterator[str]:
    """Yields a problem for each state with namespaces by serializers of flink-scala, which are not rewritten."""
    for state in states:
        if has_scala(state.namespace):
            yield (
                f"state {state.name} of operator {operator.label} has namespaces by serializers of flink-scala, which "
                "Flink 2 has not: they are not rewritten. Let the job, under Flink 1.20, move the state to types of "
                "Java, and take a savepoint then"
            )


@dataclass(frozen=True, slots=True)
class Declared:
    """A type as people write it: `Pojo<com.acme.Reading>(name, total: Long)`, `Map<String, Long>`, `Long?`."""

    name: str
    arguments: tuple[Declared, ...] = ()
    fields: tuple[tuple[str, Declared | None], ...] = ()
    nullable: bool = False

    def __str__(self) -> str:
        inner = f"<{', '.join(map(str, self.arguments))}>" if self.arguments else ""
        return f"{self.name}{inner}{'?' if self.nullable else ''}"


def parse_declared(text: str) -> Declared:
    """Returns the type that the text names."""
    parser = _Parser(text)
    found = parser.type(0)
    if parser.rest():
        raise UsageError(f"expected the end behind the type, found {parser.rest()!r}")
    return found


@dataclass(slots=True)
class _Parser:
    text: str
    position: int = field(default=0, init=False)

    def rest(self) -> str:
        return self.text[self.position :].strip()

    def _take(self, *tokens: str) -> str:
        """Takes the next token if it is one of these; any name if none are given."""
        match = _TOKEN.match(self.text, self.position)
        if match is None or (match[1] not in tokens if tokens else match[1] in "<>(),:?"):
            return ""
        self.position = match.end()
        return match[1]

    def type(self, level: int) -> Declared:
        name = self._take()
        if not name or level > _MOST_LEVELS:
            raise UsageError(f"expected a type, found {self.rest() or 'the end'!r}")
        arguments = self._list("<", ">", lambda: self.type(level + 1))
        fields = self._list("(", ")", lambda: self._field(level))
        return Declared(name, arguments, fields, bool(self._take("?")))

    def _list(self, first: str, last: str, read: Callable[[], _T]) -> tuple[_T, ...]:
        if not self._take(first):
            return ()
        found = [read()]
        while self._take(","):
            found.append(read())
        if not self._take(last):
            raise UsageError(f"expected {last}, found {self.rest() or 'the end'!r}")
        return tuple(found)

    def _field(self, level: int) -> tuple[str, Declared | None]:
        name = self._take()
        return name, (self.type(level + 1) if self._take(":") else None)


# The type of the source, with the names of its fields, and as what it is written.
_Both = tuple[FlinkType, FlinkType]


def _made(source: FlinkType, declared: Declared | None, *, nullable: bool) -> _Both:
    """Holds what people say against the source; `nullable`: the new serializer around it has a flag for null."""
    if not has_scala(source):
        return source, _as_it_is(source, declared)
    match source:
        case OptionType(value):
            return _option(value, declared, nullable=nullable)
        case CaseClassType():
            return _case_class(source, declared)
        case EitherType(class_name=name) if name != SCALA_TRY:
            return _either(source, declared)
        case EnumType(names=names):
            if declared is None or declared.name != "Enum" or len(declared.arguments) != 1 or declared.nullable:
                raise UsageError(
                    f"expected Enum<com.acme.{source.class_name.rpartition('.')[2].strip('$')}>, an enum "
                    f"of Java for the enumeration {source.class_name}"
                )
            return source, EnumType(declared.arguments[0].name, names)
        case TraversableType():
            return _collection(source, declared)
        case Scalar.UNIT | Scalar.NOTHING:
            if declared not in (None, Declared("Void")):
                raise UsageError(f"expected Void, found {declared}")
            return source, Scalar.VOID
    raise RefusedError(f"a {type_name(source)} is not rewritten")


def _made_plainly(source: FlinkType, declared: Declared | None) -> _Both:
    """As `_made`, where there is no flag for null."""
    return _made(source, declared, nullable=False)


def _as_it_is(source: FlinkType, declared: Declared | None) -> FlinkType:
    """What isn't Scala's stays: what people say must be the same."""
    if declared is not None and (declared.nullable or type_text(parse_type_text(str(declared))) != type_text(source)):
        raise UsageError(f"expected {type_text(source)}, which stays as it is, found {declared}")
    return source


def _option(value: FlinkType, declared: Declared | None, *, nullable: bool) -> _Both:
    if has_no_value(value):
        what = "an Option" if isinstance(value, OptionType) else "a Unit"
        raise RefusedError(f"an Option of {what} is not rewritten, because Flink has one null for both")
    has_declared_null = declared is not None and declared.nullable
    inner, made = _made(value, replace(declared, nullable=False) if declared is not None else None, nullable=False)
    if has_declared_null or (declared is None and not nullable):
        made = made if nullable else NullableType(made, 0)
    elif not nullable and made is not Scalar.STRING and not isinstance(made, NullableType):
        found = f"by Flink's NullableSerializer, found {declared}"
        raise UsageError(f"expected {declared}?, which has a null for None, {found}")
    return OptionType(inner), made


def _either(source: EitherType, declared: Declared | None) -> _Both:
    if no_null := [type_name(one) for one in (source.left, source.right) if has_no_value(one)]:
        raise RefusedError(f"a {no_null[0]} in an Either is not rewritten, because Flink's Either holds no null")
    arguments: tuple[Declared | None, ...] = (declared.arguments if declared is not None else ()) or (None, None)
    if (declared is not None and (declared.name != "Either" or declared.nullable)) or len(arguments) != 2:
        raise UsageError(f"expected Either<...> with two types, found {declared}")
    (left, made), (right, other) = map(_made_plainly, (source.left, source.right), arguments)
    return replace(source, left=left, right=right), EitherType(made, other, FLINK_EITHER)


def _case_class(source: CaseClassType, declared: Declared | None) -> _Both:
    count = len(source.fields)
    if declared and declared.name == f"Tuple{count}" and not declared.fields and not declared.nullable and count:
        arguments = declared.arguments or (None,) * count
        if len(arguments) != count:
            raise UsageError(f"expected {count} types in {declared}")
        both = tuple(map(_made_plainly, source.fields, arguments))
        made: FlinkType = TupleType(tuple(new for _, new in both), f"{_TUPLES}Tuple{count}")
        return replace(source, fields=tuple(old for old, _ in both)), made
    is_pojo = declared is not None and declared.name == "Pojo" and len(declared.arguments) == 1
    name = declared.arguments[0].name if declared and is_pojo else None
    if declared is None or name is None or declared.nullable or len(declared.fields) != count or not count:
        wanted = "Tuple" + str(count) if 0 < count <= 25 else "Tuple1 to Tuple25"
        raise UsageError(
            f"expected {wanted}, or Pojo<com.acme.Reading>(...) with the names of {count} fields in the order of the "
            f"case class, for {source.class_name}, found {declared}"
        )
    names = tuple(name for name, _ in declared.fields)
    if len(set(names)) != count or not all(names):
        raise UsageError(f"expected {count} different names of fields in Pojo<{name}>(...)")
    both = tuple(_made(part, one, nullable=True) for part, (_, one) in zip(source.fields, declared.fields, strict=True))
    fields = sorted(
        (PojoField(one, new, declared_in=name) for one, (_, new) in zip(names, both, strict=True)),
        key=lambda one: one.name,
    )
    return replace(source, fields=tuple(old for old, _ in both), names=names), PojoType(name, tuple(fields))


def _collection(source: TraversableType, declared: Declared | None) -> _Both:
    if declared is None or declared.nullable or _KIND.sub("", declared.name).capitalize() not in _COLLECTIONS:
        raise UsageError(
            f"expected List<...>, Set<...> or Map<...>, or Types.LIST<...> or Types.MAP<...>, found {declared}"
        )
    by_hint = not declared.name.startswith("Types.")
    kind = _KIND.sub("", declared.name).capitalize()
    if by_hint and any(one.arguments and one.name not in ("Pojo", "Enum") for one in declared.arguments):
        raise UsageError(
            f"Flink 2 gives a {kind} whose type arguments have type arguments to Kryo: declare it by "
            f"Types.{'LIST' if kind != 'Map' else 'MAP'}, and say so here"
        )
    found = _BUILDER.search(source.builder)
    scala = "" if found is None else (found[1] or found[2]).rpartition(".")[2]
    if kind in ("Set", "Map") and kind not in scala:
        raise RefusedError(f"a {kind} is made of a {kind} of Scala alone, not of a {scala or 'collection'}")
    if kind == "Map":
        return _map(source, declared.arguments or (None, None), by_hint=by_hint)
    (argument,) = declared.arguments or (None,)
    if kind == "Set":
        _expect_different(source.element, f"a Set of {type_name(source.element)}")
    inner, element = _made(source.element, argument, nullable=by_hint or kind == "Set")
    made: FlinkType = ListType(NullableType(element, 0) if by_hint else element)
    if kind == "Set":
        made = SetType(element)
    return replace(source, element=inner), NullableType(made, 0) if by_hint else made


def _map(source: TraversableType, arguments: tuple[Declared | None, ...], *, by_hint: bool) -> _Both:
    pair = source.element
    if not isinstance(pair, CaseClassType) or len(pair.fields) != 2 or len(arguments) != 2:
        raise UsageError("expected Map<...> with two types, for a collection of pairs")
    _expect_different(pair.fields[0], f"a Map with keys of {type_name(pair.fields[0])}")
    key, made_key = _made(pair.fields[0], arguments[0], nullable=by_hint)
    value, made_value = _made(pair.fields[1], arguments[1], nullable=True)
    inner = replace(source, element=replace(pair, fields=(key, value)))
    made = MapType(NullableType(made_key, 0) if by_hint else made_key, made_value)
    return inner, NullableType(made, 0) if by_hint else made


def _expect_different(type_: FlinkType, what: str) -> None:
    """Refuses elements of a Set and keys of a Map of which Java would keep one of two."""
    if may_become_one(type_):
        raise RefusedError(
            f"{what} is not rewritten, because None and Some(null) become one null in it, and an entry would be lost: "
            "say Types.LIST<...>, which keeps both"
        )
