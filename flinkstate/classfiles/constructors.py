"""How Kryo makes a collection or map of the job before it puts into it what it has read.

It calls the constructor without arguments. If there is none, it makes an object without any: all its fields are 0 or
null.
"""

from __future__ import annotations

from collections.abc import Iterator

from flinkstate.classfiles.class_file import CONSTRUCTOR, STATIC, ClassFile
from flinkstate.classfiles.job_classes import JobClasses

# They do without the values that their constructors give their fields.
_WITHOUT_FIELDS = ("java.util.HashMap", "java.util.LinkedHashMap")
_AROUND = "this$0"


def may_put_entries(class_name: str, job: JobClasses) -> bool:
    """Whether its constructor may put entries by itself."""
    return _has_constructor(class_name, job) and any(one.constructed_by_calls for one in _chain(class_name, job))


def may_lack_fields(class_name: str, job: JobClasses) -> bool:
    """Whether it may not take what is put into it, because its fields aren't what they were."""
    if _has_constructor(class_name, job):
        return any(_may_forget(one) for one in _chain(class_name, job))
    is_whole = job.superclasses(class_name)[-1] in _WITHOUT_FIELDS
    return not is_whole or any(_uses_fields(one) for one in _chain(class_name, job))


def _may_forget(one: ClassFile) -> bool:
    """Whether it is a cache whose limit is a field that another constructor may have set."""
    names = [method.name for method in one.methods]
    has_fields = any(not field.access & STATIC for field in one.fields)
    return "removeEldestEntry" in names and has_fields and names.count(CONSTRUCTOR) > 1


def _uses_fields(one: ClassFile) -> bool:
    """Whether there is a method that a field may change; the object around it is one that may be of no use."""
    fields = {field.name for field in one.fields if not field.access & STATIC}
    has_methods = any(method.name != CONSTRUCTOR for method in one.methods)
    return bool(fields - {_AROUND}) or (bool(fields) and has_methods)


def _has_constructor(class_name: str, job: JobClasses) -> bool:
    return any((one.name, one.descriptor) == (CONSTRUCTOR, "()V") for one in job.classes[class_name].methods)


def _chain(class_name: str, job: JobClasses) -> Iterator[ClassFile]:
    return (job.classes[one] for one in job.superclasses(class_name)[:-1])
