"""Declarations for which the two lines choose different serializers: Map, List, Set and Collection.

By a `TypeHint`, or as a field of a POJO, Flink 1 gives them to Kryo and Flink 2 to serializers of its own. By a class,
such as `Map.class`, or without type arguments, both give them to Kryo. No savepoint says which it was; of a field, the
class of the POJO says it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import RefusedError
from flinkstate.kryo.job_pojos import collection_of_flink_2
from flinkstate.serializers.snapshot_classes import LIST_SNAPSHOT, MAP_SNAPSHOT, TTL_SNAPSHOT
from flinkstate.serializers.type_parts import with_parts
from flinkstate.serializers.types import FlinkType, KryoType, PojoType, children, simple_name
from stateferry.verdict.field_in_class import FieldInClass, field_in_class
from stateferry.verdict.journey import Journey, Part
from stateferry.verdict.kryo_values import CANNOT_REWRITE
from stateferry.verdict.outcomes import Finding, Outcome

_REWRITE = "write the savepoint for Flink 2: stateferry run --to flink-2, with --declared for this state"
_REWRITE_POJO = (
    "write the savepoint for Flink 2: stateferry run --to flink-2, with --classes for the job's jar, which says how "
    "fields of POJOs are declared, or with --declared for each of them"
)
_REWRITE_FIELD = "write the savepoint for Flink 2: stateferry run --to flink-2, with --classes for the job's jar"
_AROUND = {
    TTL_SNAPSHOT: "TtlStateFactory$TtlSerializer",
    LIST_SNAPSHOT: "ListSerializer",
    MAP_SNAPSHOT: "MapSerializer",
}
INTERFACES = frozenset(f"java.util.{name}" for name in ("Map", "List", "Set", "Collection"))


@dataclass(frozen=True, slots=True)
class _Declared:
    """A collection, and the field in which it is, if its class is known; `by_kryo_5` says as what Flink 2 stores it."""

    kryo: KryoType
    field: FieldInClass | None = None
    by_kryo_5: bool | None = None

    @property
    def order(self) -> int:
        """What decides first: one that Flink 2 refuses, then one of which nobody knows that."""
        return (False, None, True).index(self.by_kryo_5)


def finding_of(
    part: Part, journey: Journey, by_class: Finding, job: JobClasses | None = None, *, at_once: bool = False
) -> Finding | None:
    """Says whether the declaration has another serializer in Flink 2; `by_class` is what becomes of it else.

    `job` are the classes of the job that is to start. `at_once`: Flink reads the values before it compares serializers.
    """
    found = min(_collections(part.type, job), key=lambda one: one.order, default=None)
    if not journey.upgrades or found is None or found.by_kryo_5:
        return None
    name = simple_name(found.kryo.class_name)
    what = f"its {part.place.value} is" if isinstance(part.type, KryoType) else f"in its {part.place.value} there is"
    if found.by_kryo_5 is False:
        why = "Flink 2 has a serializer of its own for it, and refuses Kryo's"
        reason = f"{what} a {name} by Kryo, and {found.field}: {why}"
        or_else = Outcome.FAILS if at_once and by_class.outcome is not Outcome.RESTORES else None
        return Finding(Outcome.REFUSED, reason, _advice(by_class, _REWRITE_FIELD), _exception(part), or_else)
    reason = (
        f"{what} a {name} by Kryo. Declared by a TypeHint or as a field with type arguments, Flink 2 has a serializer "
        f"of its own for it, and refuses Kryo's. Declared as {name}.class or without type arguments, or with some that "
        "are wildcards or have type arguments themselves, it is by Kryo 5"
    )
    if by_class.outcome.breaks:
        reason += f": then {by_class.reason}"
    if by_class.or_else is not None:
        reason += f". Or it {by_class.or_else.value}"
    outcome = None if by_class.outcome is Outcome.RESTORES else by_class.outcome
    in_pojo = any(isinstance(one, PojoType) for one in with_parts(part.type))
    advice = _advice(by_class, _REWRITE_POJO if in_pojo else _REWRITE)
    return Finding(Outcome.REFUSED, reason, advice, _exception(part), outcome)


def _advice(by_class: Finding, advice: str) -> str:
    """Returns the advice to have a run write the values, unless that would refuse what is in them."""
    return by_class.advice if by_class.advice.startswith(CANNOT_REWRITE) else advice


def _collections(type_: FlinkType, job: JobClasses | None) -> Iterator[_Declared]:
    """Yields the collections in a type whose serializer depends on the declaration."""
    if isinstance(type_, KryoType):
        if type_.class_name in INTERFACES:
            yield _Declared(type_)
        return
    if not isinstance(type_, PojoType):
        for child in children(type_):
            yield from _collections(child, job)
        return
    for one in type_.fields:
        if isinstance(one.type, KryoType) and one.type.class_name in INTERFACES:
            yield _of_field(one.type, field_in_class(type_.class_name, one.name, job), job)
        else:
            yield from _collections(one.type, job)
    for subclass in type_.registered_subclasses:
        yield from _collections(subclass, job)
    # Flink compares none of the others at the start.
    for _, subclass in type_.other_subclasses:
        yield from (_Declared(one.kryo, by_kryo_5=one.by_kryo_5 or None) for one in _collections(subclass, job))


def _of_field(kryo: KryoType, found: FieldInClass | None, job: JobClasses | None) -> _Declared:
    if found is None or not found.is_certain or found.type.name != kryo.class_name:
        return _Declared(kryo)
    try:
        made = collection_of_flink_2(found.member, found.class_name, replace(kryo, classes=job))
    except RefusedError:
        return _Declared(kryo)
    return _Declared(kryo, found, made is None)


def _exception(part: Part) -> str:
    new = "PojoSerializer" if isinstance(part.type, PojoType) else "NullableSerializer"
    old = "PojoSerializer" if isinstance(part.type, PojoType) else "KryoSerializer"
    if not isinstance(part.type, PojoType | KryoType):
        new = old = "..."
    for one in part.snapshots:
        # Of a list or a map as a state, and of values with timestamps, the serializer around is compared.
        new, old = (_AROUND.get(one.class_name, name) for name in (new, old))
    if part.place.value == "key":
        return (
            f"StateMigrationException: The new key serializer ({new}) must be compatible with the previous key "
            f"serializer ({old})"
        )
    return (
        f"StateMigrationException: The new state serializer ({new}) must not be incompatible with the old state "
        f"serializer ({old})"
    )
