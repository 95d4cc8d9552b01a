"""What the job has registered with Kryo, which the header of each Kryo serializer lists."""

from __future__ import annotations

from flinkstate.serializers.types import KryoType, with_parts
from stateferry.verdict.journey import Journey, Part
from stateferry.verdict.outcomes import Finding, Outcome

_AVRO = "org.apache.avro.generic.GenericData$Array"
_PLACEHOLDER = "org.apache.flink.api.java.typeutils.runtime.kryo.Serializers$DummyAvroKryoSerializerClass"
# Flink registers a default serializer for it itself.
_THROWABLE = "java.lang.Throwable"


def finding_of(part: Part, journey: Journey) -> Finding | None:
    """Says whether a registration keeps Flink 2 from reading the header, or may do so."""
    if not journey.upgrades:
        return None
    for kryo in with_parts(part.type):
        if isinstance(kryo, KryoType):
            for registration in kryo.registrations:
                if registration.serializer in (None, _PLACEHOLDER):
                    continue
                if registration.class_name == _AVRO:
                    return _with_avro(part)
                return _own(part, registration.class_name, str(registration.serializer))
            for class_name, serializer in kryo.defaults:
                if class_name != _THROWABLE:
                    return _own(part, class_name, serializer)
    return None


def _with_avro(part: Part) -> Finding:
    return Finding(
        Outcome.REFUSED,
        f"its {part.place.value} has a serializer by Kryo, and flink-avro, which the job had beside it, registered a "
        "serializer of Flink 1 with Kryo",
        "under Flink 1, take a savepoint of a job without flink-avro on its class path, or move this state to "
        "serializers of Flink first",
        f"IllegalStateException: Missing value for the key '{_AVRO}'",
    )


def _own(part: Part, class_name: str, serializer: str) -> Finding:
    return Finding(
        Outcome.UNKNOWN,
        f"its {part.place.value} is by Kryo, to which the job gave a serializer of its own, {serializer} for "
        f"{class_name}: only that code knows what it writes with Kryo 5",
        "restore the savepoint in a test with the new job, and compare its values",
    )
