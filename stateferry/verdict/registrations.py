"""What the job has registered with Kryo, which the header of each Kryo serializer lists."""

from __future__ import annotations

from flinkstate.serializers.built_snapshots import AVRO_ARRAY, is_of_avro
from flinkstate.serializers.type_parts import with_parts
from flinkstate.serializers.types import KryoType
from stateferry.verdict.journey import Journey, Part
from stateferry.verdict.outcomes import Finding, Outcome

# Flink registers a default serializer for it itself.
_THROWABLE = "java.lang.Throwable"


def finding_of(part: Part, journey: Journey, *, is_rewritten: bool) -> Finding | None:
    """Says whether a registration keeps Flink 2 from reading the header, or may do so.

    Where the part is rewritten for Flink 2, that of flink-avro is too.
    """
    if not journey.upgrades:
        return None
    kryos = [one for one in with_parts(part.type) if isinstance(one, KryoType)]
    # Whatever else the job has registered, Flink 2 refuses the header then.
    if not is_rewritten and any(is_of_avro(one) for kryo in kryos for one in kryo.registrations):
        return _with_avro(part)
    for kryo in kryos:
        for registration in kryo.registrations:
            if registration.serializer is not None and registration.class_name != AVRO_ARRAY:
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
        "stateferry run --to flink-2",
        f"IllegalStateException: Missing value for the key '{AVRO_ARRAY}'",
    )


def _own(part: Part, class_name: str, serializer: str) -> Finding:
    return Finding(
        Outcome.UNKNOWN,
        f"its {part.place.value} is by Kryo, to which the job gave a serializer of its own, {serializer} for "
        f"{class_name}: only that code knows what it writes with Kryo 5",
        "restore the savepoint in a test with the new job, and compare its values",
    )
