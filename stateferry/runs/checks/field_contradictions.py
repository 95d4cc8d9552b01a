"""What a person says of a field of a POJO, held against its class."""

from __future__ import annotations

from collections.abc import Iterator

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.kryo.job_pojos import descriptor_of, known_type
from flinkstate.kryo.places_in_maps import WIDER_THAN
from flinkstate.serializers.type_text import type_text
from flinkstate.serializers.types import MapType, Scalar
from stateferry.verdict.field_in_class import FieldInClass, field_in_class

# Their type arguments are those of keys and values.
_MAPS = tuple(f"java.util.{name}" for name in ("Map", "SortedMap", "HashMap", "LinkedHashMap", "TreeMap", "Hashtable"))


def contradiction(told: str, found: FieldInClass) -> str:
    """Says that a person declares a field otherwise than its class does."""
    return (
        f"--declared says {told}, and {found}. Leave it out: the class says it. If the new job declares it otherwise, "
        "give its jar first (--classes)"
    )


def other_map(told: MapType, class_name: str, field: str, job: JobClasses | None, *, widen: bool) -> Iterator[str]:
    """Yields a problem if a person tells numbers, texts or dates of a map in a field, and its class has other ones."""
    found = field_in_class(class_name, field, job)
    if found is None or not found.is_certain or len(found.type.arguments) != 2 or found.type.name not in _MAPS:
        return
    for part, argument in zip((told.key, told.value), found.type.arguments, strict=True):
        of_class = known_type(descriptor_of(argument.name))
        wider = WIDER_THAN.get(part, ()) if widen and isinstance(part, Scalar) else ()
        if isinstance(part, Scalar) and of_class is not None and of_class not in (part, *wider):
            yield f"--as says {type_text(told)}, and {found}: say the same, or leave it out if the maps have entries"
            return
