"""Which fields of values are maps, so that a run can take them out: `--field`."""

from __future__ import annotations

from dataclasses import replace

from flinkstate.classfiles.class_file import FINAL, Member
from flinkstate.classfiles.plain_classes import collection_class, expect_plain
from flinkstate.classfiles.signatures import parse_type
from flinkstate.errors import RefusedError
from flinkstate.kryo.job_pojos import stored_fields
from flinkstate.serializers.type_parts import map_of
from flinkstate.serializers.types import FlinkType, KryoType, PojoType

_ALSO_MAPS = ("java.util.Hashtable", "java.util.Properties")


def map_fields(type_: FlinkType | None) -> tuple[str, ...]:
    """Returns the fields of a POJO, or of objects by Kryo if their class is known, that are maps.

    Those by Kryo are by what their classes are called, and those of the job's classes by what these extend. An object
    that Kryo doesn't write by its fields, such as one that is a map itself, has none there.
    """
    match type_:
        case PojoType(fields=fields):
            return tuple(one.name for one in fields if map_of(one.type) is not None or _is_map(one.type))
        case KryoType(class_name, classes=classes) if classes is not None and class_name in classes.classes:
            try:
                expect_plain(classes, classes.superclasses(class_name), dict(type_.defaults))
            except RefusedError:
                return ()
            members = (member for member, _ in stored_fields(class_name, classes))
            return tuple(sorted(one.name for one in members if _is_taken_out(one, type_)))
    return ()


def _is_taken_out(member: Member, kryo: KryoType) -> bool:
    """Whether a field of an object by Kryo is a map; one of the job's classes is read if it isn't final or generic."""
    name = parse_type(member.descriptor).name
    known = None if kryo.classes is None else kryo.classes.classes.get(name)
    is_read = known is None or (member.signature is None and not known.access & FINAL)
    return is_read and _is_map(replace(kryo, class_name=name))


def _is_map(type_: FlinkType) -> bool:
    """Whether a value by Kryo is a map, by its class."""
    if not isinstance(type_, KryoType):
        return False
    name, classes = type_.class_name, type_.classes
    if classes is not None and name in classes.classes:
        try:
            name = collection_class(classes, classes.superclasses(name), dict(type_.defaults)) or ""
        except RefusedError:
            return False
    return name.endswith("Map") or name in _ALSO_MAPS
