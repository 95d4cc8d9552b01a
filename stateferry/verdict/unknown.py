"""What no rule can know: serializers of other people's code, and bytes that an operator writes by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from flinkstate.metadata.metadata import Operator
from flinkstate.serializers.leaf_types import AvroOpaqueType
from flinkstate.serializers.type_parts import with_parts
from flinkstate.serializers.types import KryoType, OpaqueType, PrimitiveArrayType, Scalar
from stateferry.basics.quantities import noun
from stateferry.verdict.journey import Part
from stateferry.verdict.outcomes import Finding, Outcome, StateVerdict

TRY_IT = "restore the savepoint in a test with the new job, and compare its values"

_CEP = "org.apache.flink.cep.nfa."
# What flink-cep keeps beside its events: Flink 1.20 and 2.3 describe it by the same bytes, of which these are the
# SHA-256, and a pattern of the one goes on in the other.
_CEP_SNAPSHOTS = {
    _CEP + "NFAStateSerializerSnapshot": "5581889db692354bf4e8dd3d63b98b63711a25d64e5de884d651dddc674e57c6",
    _CEP + "sharedbuffer.NodeId$NodeIdSerializer$NodeIdSerializerSnapshot": (
        "85fada49b4f1b1d58d24ab62c45e5e60a47c84a4070795985b268475881700f7"
    ),
    _CEP + "sharedbuffer.SharedBufferNodeSerializerSnapshotV2": (
        "2c43618cd6b8fc7873fde5b936c172e09b2bec5e1961bd0edb429e2444ede1be"
    ),
}


def finding_of(part: Part) -> Finding | None:
    """Says whether a part has a serializer that isn't one of Flink's that are known."""
    for one in with_parts(part.type):
        if isinstance(one, OpaqueType) and not isinstance(one, KryoType | AvroOpaqueType) and not _is_of_cep(one, part):
            return Finding(
                Outcome.UNKNOWN,
                f"its {part.place.value} has {one.class_name}, {one.reason}: only the code of that serializer knows "
                "what it reads",
                TRY_IT,
            )
    return None


def _is_of_cep(type_: OpaqueType, part: Part) -> bool:
    """Whether flink-cep has the same serializer in both lines."""
    found = [one.raw for one in part.all_snapshots() if one.class_name == type_.class_name]
    known = _CEP_SNAPSHOTS.get(type_.class_name)
    return bool(found) and all(hashlib.sha256(raw).hexdigest() == known for raw in found)


def of_bytes(part: Part) -> Finding | None:
    """Says of operator state that is stored as bytes that its operator made them."""
    if part.type != PrimitiveArrayType(Scalar.BYTE):
        return None
    return Finding(
        Outcome.UNKNOWN,
        "its elements are bytes that the operator itself makes, as sources and sinks do: only its code knows what it "
        "reads",
        f"look into the release notes of the connector, and {TRY_IT}",
    )


def of_undescribed(operator: Operator, states: Mapping[str, str]) -> Iterator[StateVerdict]:
    """Yields what can't be told of states, given by name with their mode, that no file describes."""
    for name, mode in states.items():
        finding = Finding(Outcome.UNKNOWN, "_metadata lists it, and the file with it doesn't describe it", TRY_IT)
        yield StateVerdict(operator.hex_id, operator.label, name, mode, "", finding)


def of_operator(operator: Operator) -> Iterator[StateVerdict]:
    """Yields what can't be told of an operator's coordinator and of what it writes by itself."""
    kinds = []
    if operator.coordinator is not None:
        kinds.append(("(coordinator)", "COORDINATOR", operator.coordinator.size))
    raw = [one for task in operator.subtasks for one in (task.raw_operator, task.raw_keyed) if one is not None]
    if raw:
        kinds.append(("(raw state)", "RAW", sum(one.stream.size for one in raw)))
    for name, kind, size in kinds:
        finding = Finding(
            Outcome.UNKNOWN, f"{size:,} {noun(size, 'byte')} that only the operator's own code understands", TRY_IT
        )
        yield StateVerdict(operator.hex_id, operator.label, name, kind, "bytes", finding)
