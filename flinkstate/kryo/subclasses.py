"""Whether objects of one class are objects of another, as a told type of Kryo values admits; which are collections."""

from __future__ import annotations

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.classfiles.plain_classes import interfaces
from flinkstate.classfiles.type_arguments import EITHER
from flinkstate.kryo import kernel_codes as codes
from flinkstate.kryo.classes import ENUM_SET, ENUM_SETS, KNOWN, QUEUES, KnownClass

_MAPS = (codes.EMPTY_MAP, codes.SINGLETON_MAP, codes.MAP, codes.SORTED_MAP)
_LISTS = (codes.EMPTY_LIST, codes.SINGLETON_LIST, codes.LIST, codes.FILLED_LIST, codes.AS_LIST)
_SETS = (codes.SET, codes.FILLED_SET, codes.SORTED_SET, codes.ENUM_SET)
_OF_INTERFACE = {
    "java.util.Map": _MAPS,
    "java.util.List": _LISTS,
    "java.util.Set": _SETS,
    "java.util.Collection": (*_LISTS, *_SETS),
}
_KINDS = {known.name: known.kinds[1] for known in KNOWN}
# What the JDK's other collections and maps are called, interfaces and abstract classes among them.
_CALLED = ("Map", "Set", "List", "Queue", "Deque", "Collection")
_NOT_SETS = ("java.util.PriorityQueue", *(f"java.util.{name}" for name in QUEUES))
_SUBCLASSES = {
    "java.lang.Number": (
        *(f"java.lang.{name}" for name in ("Byte", "Short", "Integer", "Long", "Float", "Double")),
        *("java.math.BigInteger", "java.math.BigDecimal"),
    ),
    "java.time.ZoneId": ("java.time.ZoneRegion", "java.time.ZoneOffset"),
    "java.util.HashMap": ("java.util.LinkedHashMap",),
    "java.util.HashSet": ("java.util.LinkedHashSet",),
    "java.util.Date": ("java.sql.Date", "java.sql.Time", "java.sql.Timestamp"),
    "java.util.Hashtable": ("java.util.Properties",),
    "java.util.Vector": ("java.util.Stack",),
    ENUM_SET: ENUM_SETS,
    EITHER: (f"{EITHER}$Left", f"{EITHER}$Right"),
}


def is_a(known: KnownClass, class_name: str, job: JobClasses | None) -> bool:
    """Whether objects of the class are objects of the other one too; of interfaces only those of collections count."""
    if known.name == class_name or class_name == "java.lang.Object":
        return True
    if job is not None and known.name in job.classes:
        chain = job.superclasses(known.name)
        above = (*chain, *interfaces(job, chain))
        if class_name in above or chain[-1] in _SUBCLASSES.get(class_name, ()):
            return True
    if class_name in _OF_INTERFACE:
        not_set = class_name == "java.util.Set" and known.name in _NOT_SETS
        return known.kinds[1] in _OF_INTERFACE[class_name] and not not_set
    return known.name in _SUBCLASSES.get(class_name, ())


def is_map(class_name: str, job: JobClasses) -> bool:
    """Whether objects of this class of the job are maps."""
    above = _above(class_name, job) if class_name in job.classes else ()
    return any(one.startswith("java.util.") and (one.endswith("Map") or _KINDS.get(one) in _MAPS) for one in above)


def is_collection(class_name: str, job: JobClasses | None) -> bool:
    """Whether Kryo writes objects of this class, or of what implements it, as a collection or map."""
    if job is not None and class_name in job.classes:
        return any(is_collection(one, None) for one in _above(class_name, job))
    if class_name in _KINDS:
        return _KINDS[class_name] in (*_MAPS, *_LISTS, *_SETS)
    return class_name.startswith("java.util.") and class_name.endswith(_CALLED)


def _above(class_name: str, job: JobClasses) -> tuple[str, ...]:
    """Returns the first superclass that isn't one of the job's, and all interfaces."""
    chain = job.superclasses(class_name)
    return chain[-1], *interfaces(job, chain)
