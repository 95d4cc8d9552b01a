"""Which types can't be user keys of a `MapState`: equal ones may have other bytes, by which RocksDB finds a row."""

from __future__ import annotations

import re

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.kryo.subclasses import is_collection
from flinkstate.serializers.type_parts import with_parts
from flinkstate.serializers.types import FlinkType, KryoType, MappingType, SetType, TraversableType, type_name

# In Scala's code that makes a collection, what comes before and behind the collection's own name.
_AROUND_SCALA_COLLECTION = re.compile(r"^.*?BuildFrom\[|\[.*$", re.DOTALL)


def why_no_user_key(key: FlinkType, job: JobClasses | None) -> str | None:
    """Returns why a job may not find a row of such a user key again; None if nothing in it is a reason."""
    found = next((what for part in with_parts(key) if (what := _of_several_forms(part, job)) is not None), None)
    if found is None:
        return None
    return (
        f"its user keys have a {found}: RocksDB finds a row by the bytes of its user key, and equal keys of this kind "
        "may have others. Have the job use a user key such as a String, a sorted list or a tuple first; until then the "
        "map stays a blob"
    )


def _of_several_forms(part: FlinkType, job: JobClasses | None) -> str | None:
    """Returns what a part is called if its elements may come in another order, or be in a collection of another class.

    Flink reads a set and a map into a hash table of another size, which has another order.
    """
    if isinstance(part, KryoType):
        return f"{part.class_name} by Kryo" if is_collection(part.class_name, part.classes or job) else None
    if isinstance(part, TraversableType):
        name = _AROUND_SCALA_COLLECTION.sub("", part.builder).rpartition(".")[2]
        return type_name(part) if "Set" in name or "Map" in name else None
    return type_name(part) if isinstance(part, SetType | MappingType) else None
