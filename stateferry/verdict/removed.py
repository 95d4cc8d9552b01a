"""Serializers that Flink 2 doesn't have any more: those of flink-scala. A header that names one can't be read."""

from __future__ import annotations

from flinkstate.hashing.java_hash import unstable_reason
from flinkstate.keyed.key_group_check import hash_is_certain
from flinkstate.scala.programs import null_of
from flinkstate.serializers.type_parts import has_scala, opaque_parts, with_parts
from flinkstate.serializers.type_text import type_text
from flinkstate.serializers.types import (
    SCALA_TRY,
    CaseClassType,
    EitherType,
    EnumType,
    FlinkType,
    MapType,
    OptionType,
    Scalar,
    TraversableType,
    simple_name,
)
from stateferry.verdict.journey import Journey, Part, Place
from stateferry.verdict.outcomes import Finding, Outcome

_SCALA = "org.apache.flink.api.scala."
_BEFORE = "before the upgrade, have the job move this state to types of Java, or start it without this state"


def finding_of(part: Part, journey: Journey) -> Finding | None:
    """Says whether the part has a serializer of Scala."""
    if not journey.upgrades:
        return None
    for snapshot in part.all_snapshots():
        if snapshot.class_name.startswith(_SCALA):
            return Finding(
                Outcome.REFUSED,
                f"its {part.place.value} has a serializer of flink-scala, {snapshot.class_name}, which Flink 2 has not",
                _advice(part),
                f"ClassNotFoundException: {snapshot.class_name}",
            )
    return None


def _advice(part: Part) -> str:
    """Says what to declare of the part; of a map of Flink's own the keys and the values have a line each."""
    whole, by_key = "operator/state", "operator/state.(key)"
    match part:
        case Part(Place.VALUE, MapType(key, value)):
            told = {by_key: key, whole: value}
        case Part(Place.KEY):
            told = {"operator/(key)": part.type}
        case _:
            told = {by_key if part.place is Place.USER_KEY or part.of_broadcast_keys else whole: part.type}
    told = {place: type_ for place, type_ in told.items() if has_scala(type_)}
    texts = [
        suggestion(type_, is_key=part.place is Place.KEY, is_user_key=place == by_key) for place, type_ in told.items()
    ]
    if part.place is Place.NAMESPACE or None in texts:
        return _BEFORE
    options = " and ".join(f"--declared '{place}=...'" for place in told)
    says = "which says as what the new job declares it" if len(told) == 1 else "which say as what it declares them"
    return (
        f"write the savepoint for Flink 2: stateferry run --to flink-2, with {options}, {says}, such as "
        f"{' and '.join(map(str, texts))}"
    )


def suggestion(type_: FlinkType, *, is_key: bool = False, is_user_key: bool = False) -> str | None:
    """Returns as what a new job may declare a value of flink-scala; None if it can't be rewritten.

    An operator's key (`is_key`) can be, if its hash in the new job is known, and a user key, if it has an order.
    """
    if not has_scala(type_) or opaque_parts(type_) or (is_key and (has_no_value(type_) or not _has_known_hash(type_))):
        return None
    parts = tuple(with_parts(type_))
    if any(isinstance(one, EitherType) and one.class_name == SCALA_TRY for one in parts):
        return None
    if is_user_key and any(isinstance(one, TraversableType) and not _has_order(one) for one in parts):
        return None
    text = _text(type_)
    return None if "\0" in text else text


def _has_order(type_: TraversableType) -> bool:
    """Java's sets and maps have none by which a job finds such a key again."""
    return not any(one in type_.builder for one in ("Map", "Set"))


def _has_known_hash(type_: FlinkType) -> bool:
    match type_:
        case CaseClassType(fields):
            return 0 < len(fields) <= 25 and all(map(_has_known_hash, fields))
        case EitherType(left, right):
            return _has_known_hash(left) and _has_known_hash(right)
        case TraversableType(element):
            return _has_order(type_) and _has_known_hash(element)
        case OptionType(value):
            return _has_known_hash(value)
    return type_ is Scalar.UNIT or (unstable_reason(type_) is None and hash_is_certain(type_))


def has_no_value(type_: FlinkType) -> bool:
    """Whether some value of flink-scala becomes null, which an Either of Flink's, or another Option's, doesn't hold."""
    return isinstance(type_, OptionType) or type_ is Scalar.UNIT


def may_become_one(type_: FlinkType) -> bool:
    """Whether two values of flink-scala may become equal ones, as None and Some(null) do.

    Of keys of a map, or elements of a set, Java would keep one.
    """
    return any(isinstance(one, OptionType) and null_of(one.value) is not None for one in with_parts(type_))


def _text(type_: FlinkType) -> str:
    """The text, with a zero for what can't be rewritten."""
    match type_:
        case OptionType(value) if has_no_value(value):
            # Flink's serializers have one null for both.
            return "\0"
        case OptionType(value):
            # A String has a null of its own.
            return _text(value) if value is Scalar.STRING else f"{_text(value)}?"
        case CaseClassType(fields) if 0 < len(fields) <= 25:
            return f"Tuple{len(fields)}<{', '.join(map(_text, fields))}>"
        case CaseClassType(fields):
            return f"Pojo<com.acme.Reading>({', '.join(f'f{n}' for n in range(len(fields)))})" if fields else "\0"
        case EitherType(left, right) if not (has_no_value(left) or has_no_value(right)):
            return f"Either<{_text(left)}, {_text(right)}>"
        case EnumType(class_name, ids=tuple()):
            return f"Enum<com.acme.{simple_name(class_name)}>"
        case TraversableType(CaseClassType((key, value))) if "Map" in type_.builder and not may_become_one(key):
            return f"Types.MAP<{_text(key)}, {_text(value).rstrip('?')}>"
        case TraversableType(element):
            return f"Types.LIST<{_text(element)}>"
        case Scalar.UNIT | Scalar.NOTHING:
            return "Void"
    return "\0" if has_scala(type_) else type_text(type_)
