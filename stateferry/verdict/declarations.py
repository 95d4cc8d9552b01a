"""Declarations for which the two lines choose different serializers: Map, List, Set and Collection.

By a `TypeHint`, or as a field of a POJO, Flink 1 gives them to Kryo and Flink 2 to serializers of its own. By a class,
such as `Map.class`, or without type arguments, both give them to Kryo. No savepoint says which it was.
"""

from __future__ import annotations

from flinkstate.serializers.snapshot_classes import LIST_SNAPSHOT, MAP_SNAPSHOT, TTL_SNAPSHOT
from flinkstate.serializers.type_parts import with_parts
from flinkstate.serializers.types import FlinkType, KryoType, PojoType, simple_name
from stateferry.verdict.journey import Journey, Part
from stateferry.verdict.outcomes import Finding, Outcome

_REWRITE = "write the savepoint for Flink 2: stateferry run --to flink-2, with --declared for this state"
_REWRITE_POJO = (
    "write the savepoint for Flink 2: stateferry run --to flink-2, with --classes for the job's jar, which says how "
    "fields of POJOs are declared, or with --declared for each of them"
)
_AROUND = {
    TTL_SNAPSHOT: "TtlStateFactory$TtlSerializer",
    LIST_SNAPSHOT: "ListSerializer",
    MAP_SNAPSHOT: "MapSerializer",
}
INTERFACES = frozenset(f"java.util.{name}" for name in ("Map", "List", "Set", "Collection"))


def finding_of(part: Part, journey: Journey, by_class: Finding) -> Finding | None:
    """Says whether the declaration has another serializer in Flink 2; `by_class` is what becomes of it else."""
    found = _declared(part.type)
    if not journey.upgrades or found is None:
        return None
    name = simple_name(found.class_name)
    what = f"its {part.place.value} is" if isinstance(part.type, KryoType) else f"in its {part.place.value} there is"
    reason = (
        f"{what} a {name} by Kryo. Declared by a TypeHint or as a field with type arguments, Flink 2 has a serializer "
        f"of its own for it, and refuses Kryo's. Declared as {name}.class or without type arguments, or with type "
        "arguments of the elements themselves, it is by Kryo 5"
    )
    if by_class.outcome.breaks:
        reason += f": then {by_class.reason}"
    if by_class.or_else is not None:
        reason += f". Or it {by_class.or_else.value}"
    outcome = None if by_class.outcome is Outcome.RESTORES else by_class.outcome
    in_pojo = any(isinstance(one, PojoType) for one in with_parts(part.type))
    return Finding(Outcome.REFUSED, reason, _REWRITE_POJO if in_pojo else _REWRITE, _exception(part), outcome)


def _declared(type_: FlinkType) -> KryoType | None:
    kryos = (one for one in with_parts(type_) if isinstance(one, KryoType))
    return next((one for one in kryos if one.class_name in INTERFACES), None)


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
