"""Serializers that Flink 2 doesn't have any more: those of flink-scala. A header that names one can't be read."""

from __future__ import annotations

from stateferry.verdict.journey import Journey, Part
from stateferry.verdict.outcomes import Finding, Outcome

_SCALA = "org.apache.flink.api.scala."


def finding_of(part: Part, journey: Journey) -> Finding | None:
    """Says whether the part has a serializer of Scala."""
    if not journey.upgrades:
        return None
    for snapshot in part.all_snapshots():
        if snapshot.class_name.startswith(_SCALA):
            return Finding(
                Outcome.REFUSED,
                f"its {part.place.value} has a serializer of flink-scala, {snapshot.class_name}, which Flink 2 has not",
                "before the upgrade, have the job move this state to types of Java, or start it without this state",
                f"ClassNotFoundException: {snapshot.class_name}",
            )
    return None
