"""The maps of a state by Kryo in words: their type, which Kryo wrote them, and what an upgraded job reads."""

from __future__ import annotations

from flinkstate.kryo.found_classes import FoundClasses
from stateferry.basics.quantities import noun

# Flink 2 writes _metadata of this version or a later one, Flink 1 of earlier ones.
OF_FLINK_2 = 5


def maps_line(type_name: str, found: FoundClasses) -> str:
    """Returns `Map<String,Long> by Kryo 2, in all 1,204,112 maps`, and how many of these are null or empty."""
    alike = found.kryo.get("either", 0)
    by = {f"Kryo {kryo}": count for kryo in ("2", "5") if (count := found.kryo.get(kryo, 0))}
    counts = {name: f" ({count:,} {noun(count, 'map')})" if len(by) > 1 else "" for name, count in by.items()}
    which = " and ".join(map("".join, counts.items())) or "Kryo 2 or 5"
    special = [
        f"{count:,} {what}"
        for count, what in (
            (alike, "that both Kryos write alike"),
            (found.null_maps, "null"),
            (found.empty_maps, "empty"),
        )
        if count
    ]
    more = f" ({', '.join(special)})" if special else ""
    return f"{type_name} by {which}, in all {found.maps:,} {noun(found.maps, 'map')}{more}"


def upgrade_note(state: str, found: FoundClasses, *, of_flink_2: bool) -> str | None:
    """Returns what a job of Flink 2 reads of maps that Kryo 2 wrote before its upgrade; None if there are none."""
    old = found.kryo.get("2", 0)
    if not old or not (of_flink_2 or found.kryo.get("5")):
        return None
    return (
        f"{old:,} {noun(old, 'map')} of {state} {noun(old, 'is', 'are')} by Kryo 2, from before the job's upgrade to "
        "Flink 2. A job of Flink 2 reads such a map without one of its entries, an empty one and a TreeMap as null, "
        "and other doubles, floats and lists; no error says so. This run reads them as they were written"
    )
