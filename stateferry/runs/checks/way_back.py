"""What the states of a savepoint of Flink 2 are for Flink 1, by `--to flink-1.20`.

Flink 1 gives a `Map`, `List`, `Set` or `Collection` to Kryo that Flink 2 stores by a serializer of its own. A `List`
and a `Collection` look alike in Flink 2, but not in Flink 1, so for these it has to be told which it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import UsageError
from flinkstate.keyed.state import KeyedState
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.built_snapshots import kryo_snapshot
from flinkstate.serializers.type_parts import kept_by_kryo, with_classes, with_kryo
from flinkstate.serializers.type_text import parse_type_text, type_text
from flinkstate.serializers.types import (
    FlinkType,
    KryoCollectionType,
    KryoType,
    NullableType,
    OpaqueType,
    Scalar,
    SetType,
    children,
    type_name,
)
from stateferry.runs.checks.declarations import Declarations
from stateferry.runs.checks.declared_collections import (
    collections_of_flink_2,
    names_of,
    open_places,
    with_places,
)
from stateferry.runs.checks.field_contradictions import contradiction
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.verdict.field_in_class import FieldInClass, field_in_class

# Types that Flink 1.20 has no serializers for.
_NOT_IN_FLINK_1 = (Scalar.VARIANT, Scalar.BITMAP)


@dataclass(frozen=True, slots=True)
class WayBack:
    """Makes states of Flink 1 of those of Flink 2; `kryo` has what the job has registered with Kryo.

    With `all_by_5` it is known that Kryo 5 wrote all that is by Kryo.
    """

    kryo: KryoType
    job: JobClasses | None
    all_by_5: bool

    @classmethod
    def of(cls, plan: MigrationPlan, source: Savepoint) -> WayBack:
        return cls(next(_kryos(source), None) or _of_no_registrations(), plan.job_classes, plan.all_by_kryo_5)

    def state(self, state: KeyedState, declared: Declarations) -> KeyedState:
        """Returns the state with collections that Kryo 2 is to write; adds a problem for each that can't be."""
        where = declared.where(state.name)
        if state.asynchronous:
            declared.problems.append(f"{where} is asynchronous (V2) state, which Flink 1.20 doesn't have")
            return state
        has_collections = state.value is not None and any(open_places(state.value, state.name, back=True))
        if state.value is not None:
            state = replace(state, value=self.type(state.value, state.name, declared))
        parts = (state.key, state.namespace, state.user_key, state.value)
        declared.problems.extend(
            f"{where}: {one}" for part in parts if part is not None for one in not_for_flink_1(part)
        )
        # A job that was upgraded may have values of Kryo 2 still, but not together with collections of Flink 2's own.
        told_apart = not (has_collections or self.all_by_5)
        return state.with_kryo(lambda kryo: _for_kryo_2(kryo, told_apart))

    def type(self, type_: FlinkType, path: str, declared: Declarations) -> FlinkType:
        """Returns the type with collections that Kryo 2 is to write; adds a problem for each that must be told."""
        by_path: dict[str, OpaqueType] = {}
        for place, part, of_pojo in open_places(type_, path, back=True):
            assert isinstance(part, NullableType)
            told, named = declared.texts.get(place), f"{declared.operator.label}/{place}"
            of_class = None if of_pojo is None else field_in_class(*of_pojo, self.job)
            text = told or (None if of_class is None else of_class.text)
            name = _declared(part, text, named, declared.problems)
            if told is not None:
                declared.problems.extend(_told_wrongly(part, told, named))
            if told and of_class and of_class.is_certain and _other_name(part, name, of_class):
                declared.problems.append(f"{declared.where(place)}: {contradiction(told, of_class)}")
            of_job = with_classes(part, self.job)
            assert isinstance(of_job, NullableType)
            by_path[place] = KryoCollectionType.of(self._kryo(name), of_job)
        return with_places(type_, path, by_path, back=True)

    def _kryo(self, name: str) -> KryoType:
        known = KryoType(f"java.util.{name}").of_the_job(self.kryo)
        return replace(known, classes=self.job, five=True, for_five=False)


def from_kryo_5(type_: FlinkType) -> FlinkType:
    """Returns the type whose parts by Kryo 5 are written for Kryo 2."""
    return with_kryo(type_, lambda kryo: _for_kryo_2(kryo, told_apart=False))


def _for_kryo_2(kryo: KryoType, told_apart: bool) -> KryoType:
    return replace(kryo, five=None if told_apart else True, for_five=False)


def not_for_flink_1(type_: FlinkType) -> Iterator[str]:
    """Yields what Flink 1.20 can't have of a type."""
    for one in collections_of_flink_2(type_):
        yield (f"Flink 1 gives the {type_name(one)} inside of its keys or values to Kryo, which is not rewritten there")
    for one in _parts(type_):
        if one in _NOT_IN_FLINK_1 or isinstance(one, SetType):
            yield f"Flink 1.20 has no serializer of {type_name(one)}"


def _parts(type_: FlinkType) -> Iterator[FlinkType]:
    """Yields the type and what is in it, but for what Kryo is to write."""
    if names_of(type_) or isinstance(type_, KryoCollectionType):
        return
    yield type_
    for child in children(type_):
        yield from _parts(child)


def _declared(part: NullableType, text: str | None, place: str, problems: list[str]) -> str:
    """The interface by which the job declares a collection."""
    names = names_of(part)
    declared = None if text is None else text.partition("<")[0].strip().removeprefix("java.util.")
    if declared is None and len(names) == 1:
        return names[0]
    if declared not in names:
        options = " or ".join(f"--declared '{place}={name}'" for name in names)
        found = "" if declared is None else f", and no {declared}"
        problems.append(
            f"state {place} is a {type_name(part)} by a serializer of Flink 2{found}. Flink 1 gives it to Kryo as "
            f"what the job declares: say {options}"
        )
        return names[0]
    return declared


def _other_name(part: NullableType, name: str, of_class: FieldInClass) -> bool:
    """Whether the class of a POJO has a collection of another name than a person says."""
    return of_class.name != name and of_class.name in names_of(part)


def _told_wrongly(part: NullableType, text: str, place: str) -> Iterator[str]:
    """Yields a problem if the type arguments that people give aren't those of the savepoint."""
    _, bracket, arguments = text.strip().partition("<")
    found = [type_text(one.value if isinstance(one, NullableType) else one) for one in children(part.value)]
    try:
        told = children(parse_type_text(f"Tuple{len(found)}<{arguments}")) if bracket else ()
    except UsageError as error:
        yield f"--declared {place}: {error}"
        return
    if bracket and [*map(type_text, told)] != found:
        yield f"--declared {place}={text}: the savepoint has {' and '.join(found)} in it"


def _kryos(source: Savepoint) -> Iterator[KryoType]:
    for operator in source.keyed_operators():
        for state in source.keyed_states(operator):
            for part in (state.key, state.user_key, state.value):
                yield from () if part is None else kept_by_kryo(part)


def _of_no_registrations() -> KryoType:
    found = kryo_snapshot("java.util.Map").type
    assert isinstance(found, KryoType)
    return found
