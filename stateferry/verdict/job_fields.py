"""Which classes of the job both Kryos write alike, by the fields that their class files have.

Kryo writes such a class by its fields. Seen with real Flink: `int`, `long`, `byte`, `boolean` and what `kryo_classes`
lists as alike, such as String, are written alike; floating-point numbers, `short`, `char`, enums, and the JDK's classes
that it lists as different are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.kryo import kernel_codes as codes
from flinkstate.kryo.job_parts import JobPart, JobTable, job_table
from flinkstate.serializers.types import KryoType
from stateferry.verdict.kryo_classes import ALIKE, SMALL_ARRAYS, difference, is_single

_ALIKE = (codes.INTEGER, codes.LONG, codes.BYTE, codes.BOOLEAN)
_OTHERS = (codes.FLOAT, codes.DOUBLE, codes.SHORT, codes.CHARACTER)
_BOXED = tuple(
    f"java.lang.{name}" for name in ("Integer", "Long", "Short", "Byte", "Boolean", "Character", "Float", "Double")
)
_NO_JOB = JobTable({}, {}, {})


def written_alike(kryo: KryoType, class_name: str) -> bool | None:
    """Whether both Kryos write each object of the class alike, apart from objects in it whose class a tag says.

    None if that isn't known.
    """
    return None if kryo.classes is None else _alike(_table(kryo.classes, kryo.defaults), class_name, ())


def has_no_references(kryo: KryoType, class_name: str) -> bool:
    """Whether no object can stand twice in one of the class, where Kryo would write a reference.

    That is so if all that is in it is known, and no two objects are of one class. Kryo never refers to a boxed number,
    and equal constants of an enum are always one object.
    """
    job = _NO_JOB if kryo.classes is None else _table(kryo.classes, kryo.defaults)
    found = list(_objects_in(job, class_name, ()))
    return None not in found and len(set(found)) == len(found)


def may_end_in_small_array(kryo: KryoType, class_name: str, within: tuple[str, ...] = ()) -> bool:
    """Whether objects of the class may hold an array that Flink 2 reads beyond, as far as its fields say."""
    if class_name in SMALL_ARRAYS:
        return True
    if kryo.classes is None or class_name in within:
        return False
    parts = _table(kryo.classes, kryo.defaults).parts.get(class_name, ())
    return any(may_end_in_small_array(kryo, part.class_name, (*within, class_name)) for part in parts)


@lru_cache(maxsize=4)
def _table(classes: JobClasses, defaults: tuple[tuple[str, str], ...]) -> JobTable:
    return job_table(classes, dict(defaults))


def _alike(job: JobTable, name: str, within: tuple[str, ...]) -> bool | None:
    if name.startswith("[L") and (element := name[2:-1]) in job.final:
        # What isn't of the very class has a class tag of its own.
        return _alike(job, element, within) if job.final[element] else True
    if name in ALIKE:
        return True
    if name in job.enums or difference(name) is not None:
        return False
    if name not in job.parts or name in within:
        return None
    found = {_part_alike(job, part, (*within, name)) for part in job.parts[name]}
    if False in found or name in job.parts_5:
        return False
    return None if None in found else True


def _objects_in(job: JobTable, name: str, within: tuple[str, ...]) -> Iterator[str | None]:
    """Yields the class, and those of all objects in it that Kryo may refer to; None for what isn't known."""
    if name in job.parts and name not in within:
        yield name
        for part in job.parts[name]:
            if part.kind in (codes.KNOWN_PART, codes.TAGGED_PART):
                yield from _objects_in(job, part.class_name, (*within, name))
    elif name not in (*job.enums, *_BOXED):
        # An array of objects isn't single.
        yield name if is_single(name) and not name.startswith("[L") else None


def _part_alike(job: JobTable, part: JobPart, within: tuple[str, ...]) -> bool | None:
    if part.arguments:
        # They change what is written of an object.
        return None
    if part.kind == codes.KNOWN_PART:
        return _alike(job, part.class_name, within)
    if part.kind in _OTHERS:
        return False
    # An object with a class tag is found where the value is read.
    return True if part.kind in (*_ALIKE, codes.TAGGED_PART) else None
