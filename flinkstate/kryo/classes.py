"""The classes of the JDK and of Flink that are read in Kryo's values, and the ids by which Kryo writes them.

| ids | classes |
|---|---|
| 0 to 8 | int, String, float, boolean, byte, char, short, long, double; boxed ones have the ids of their primitives |
| 9 to 72 | Kryo 2: void, and with `flink-scala` on the class path classes of Scala |
| 73 to 84 | Arrays.asList's list, BitSet, PriorityQueue, Pattern, java.sql's Date, Time and Timestamp, URI, \
InetSocketAddress, UUID, Locale, SimpleDateFormat |
| from 85 | the declared class, then the registrations of the job; a class that has an id already gets no other |

All other classes are written by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.classfiles.type_arguments import EITHER
from flinkstate.errors import RefusedError
from flinkstate.kryo import kernel_codes as codes
from flinkstate.kryo.job_parts import JobTable, job_table
from flinkstate.kryo.known_class_parts import (
    ENUMS,
    FLINK_PARTS,
    LOCAL_DATE_TIME,
    NOT_FINAL,
    PARTS,
    ROW,
    ROW_KIND,
    PartTables,
    mentioned,
    part_tables,
)
from flinkstate.serializers.types import FlinkType, KryoType, PrimitiveArrayType, Scalar

FIRST_OF_JOB = 85
_WITHOUT_NULL = ("Hashtable", "Properties", "concurrent.ConcurrentHashMap")
_MAPS_OF = ("ImmutableCollections$MapN", "ImmutableCollections$Map1")
# Flink can write maps and lists of these classes, but not read them again. Their bytes are whole.
_VIEWS_OF_MAPS = (
    *("Collections$UnmodifiableMap", "Collections$UnmodifiableSortedMap", "Collections$UnmodifiableNavigableMap"),
    *("Collections$SynchronizedMap", "Collections$SynchronizedSortedMap", "Collections$SynchronizedNavigableMap"),
    *("Collections$CheckedMap", "Collections$CheckedSortedMap", "Collections$CheckedNavigableMap"),
    *("TreeMap$AscendingSubMap", "TreeMap$DescendingSubMap", "concurrent.ConcurrentSkipListMap$SubMap"),
    "Collections$UnmodifiableNavigableMap$EmptyNavigableMap",
)
_VIEWS_OF_LISTS = (
    *("Collections$UnmodifiableList", "Collections$UnmodifiableRandomAccessList"),
    *("Collections$SynchronizedList", "Collections$SynchronizedRandomAccessList"),
    *("Collections$CheckedList", "Collections$CheckedRandomAccessList", "Collections$CopiesList"),
    *("AbstractList$SubList", "AbstractList$RandomAccessSubList"),
)
ENUM_SET = "java.util.EnumSet"
GSON_MAP = "com.google.gson.internal.LinkedTreeMap"
ENUM_SETS = ("java.util.RegularEnumSet", "java.util.JumboEnumSet")
# What a job can write into its code of classes that are not public.
PUBLIC = {
    **dict.fromkeys(ENUM_SETS, ENUM_SET),
    **{f"java.util.ImmutableCollections${name}": "java.util.Set" for name in ("SetN", "Set12")},
    **{f"java.util.Collections${name}": "java.util.Set" for name in ("EmptySet", "SingletonSet")},
    "java.time.ZoneRegion": "java.time.ZoneId",
}
# Its keys are equal if they are the same object.
IDENTITY_MAP = "java.util.IdentityHashMap"
_TUPLE = "org.apache.flink.api.java.tuple.Tuple"


@dataclass(frozen=True, slots=True)
class KnownClass:
    """A class, how Kryo 2 and Kryo 5 write it, and the type that its objects have by themselves in Flink."""

    name: str
    kinds: tuple[int, int]
    type: FlinkType | None = None
    param: int = 0
    component: str = ""


def _scalars() -> Iterator[KnownClass]:
    for name, kind, scalar in (
        ("java.lang.Integer", codes.INTEGER, Scalar.INTEGER),
        ("java.lang.String", codes.STRING, Scalar.STRING),
        ("java.lang.Float", codes.FLOAT, Scalar.FLOAT),
        ("java.lang.Boolean", codes.BOOLEAN, Scalar.BOOLEAN),
        ("java.lang.Byte", codes.BYTE, Scalar.BYTE),
        ("java.lang.Character", codes.CHARACTER, Scalar.CHARACTER),
        ("java.lang.Short", codes.SHORT, Scalar.SHORT),
        ("java.lang.Long", codes.LONG, Scalar.LONG),
        ("java.lang.Double", codes.DOUBLE, Scalar.DOUBLE),
        ("java.math.BigInteger", codes.BIG_INTEGER, Scalar.BIG_INTEGER),
        ("java.math.BigDecimal", codes.BIG_DECIMAL, Scalar.BIG_DECIMAL),
        ("java.util.Date", codes.MILLIS, Scalar.DATE),
        ("java.sql.Date", codes.MILLIS, Scalar.SQL_DATE),
        ("java.sql.Time", codes.MILLIS, Scalar.SQL_TIME),
        ("java.sql.Timestamp", codes.TIMESTAMP, Scalar.SQL_TIMESTAMP),
        ("java.time.LocalDate", codes.LOCAL_DATE, Scalar.LOCAL_DATE),
        ("java.time.LocalTime", codes.LOCAL_TIME, Scalar.LOCAL_TIME),
        ("java.time.LocalDateTime", codes.LOCAL_DATE_TIME, Scalar.LOCAL_DATE_TIME),
        ("java.time.Instant", codes.INSTANT, Scalar.INSTANT),
    ):
        yield KnownClass(name, (kind, kind), scalar)


def _arrays() -> Iterator[KnownClass]:
    array = (codes.PRIMITIVE_ARRAY, codes.PRIMITIVE_ARRAY)
    for name, kind, scalar in (
        ("[I", codes.INTEGER, Scalar.INTEGER),
        ("[J", codes.LONG, Scalar.LONG),
        ("[S", codes.SHORT, Scalar.SHORT),
        ("[B", codes.BYTE, Scalar.BYTE),
        ("[Z", codes.BOOLEAN, Scalar.BOOLEAN),
        ("[C", codes.CHARACTER, Scalar.CHARACTER),
        ("[F", codes.FLOAT, Scalar.FLOAT),
        ("[D", codes.DOUBLE, Scalar.DOUBLE),
    ):
        yield KnownClass(name, array, PrimitiveArrayType(scalar), kind)
    for name in ("Integer", "Long", "Short", "Byte", "Boolean", "Character", "Float", "Double", "String"):
        component = f"java.lang.{name}"
        yield KnownClass(f"[L{component};", (codes.OBJECT_ARRAY,) * 2, component=component)


_MORE_SETS = ("concurrent.CopyOnWriteArraySet", "concurrent.ConcurrentSkipListSet")
QUEUES = (
    *("ArrayDeque", "concurrent.ConcurrentLinkedQueue", "concurrent.ConcurrentLinkedDeque"),
    *("concurrent.LinkedBlockingQueue", "concurrent.LinkedBlockingDeque", "concurrent.LinkedTransferQueue"),
    "concurrent.PriorityBlockingQueue",
)


def _containers() -> Iterator[KnownClass]:
    util = "java.util."
    for name in (
        *("HashMap", "LinkedHashMap", "Hashtable", "Properties", "WeakHashMap", "concurrent.ConcurrentHashMap"),
        *("IdentityHashMap", *_VIEWS_OF_MAPS, *_MAPS_OF),
    ):
        never = codes.NO_NULL_KEY | codes.NO_NULL_VALUE if name in (*_WITHOUT_NULL, *_MAPS_OF) else 0
        unmarked = codes.NO_MARKS_BY_5 if name in _MAPS_OF else 0
        yield KnownClass(util + name, (codes.MAP, codes.MAP), param=never | unmarked)
    yield KnownClass(GSON_MAP, (codes.MAP, codes.MAP), param=codes.NO_NULL_KEY)
    yield KnownClass("java.util.EnumMap", (codes.MAP, codes.MAP), param=codes.NO_NULL_KEY)
    yield KnownClass("java.util.TreeMap", (codes.SORTED_MAP, codes.SORTED_MAP), param=codes.NO_NULL_KEY)
    never = codes.NO_NULL_KEY | codes.NO_NULL_VALUE
    yield KnownClass("java.util.concurrent.ConcurrentSkipListMap", (codes.MAP, codes.SORTED_MAP), param=never)
    yield KnownClass("java.util.Collections$EmptyMap", (codes.EMPTY_MAP, codes.EMPTY_MAP))
    yield KnownClass("java.util.Collections$SingletonMap", (codes.SINGLETON_MAP, codes.SINGLETON_MAP))
    for name in (
        *("ArrayList", "LinkedList", "Vector", "Stack", "concurrent.CopyOnWriteArrayList", "ArrayList$SubList"),
        *_VIEWS_OF_LISTS,
    ):
        yield KnownClass(util + name, (codes.LIST, codes.LIST))
    for name in ("ListN", "List12", "SubList"):
        yield KnownClass(f"java.util.ImmutableCollections${name}", (codes.LIST, codes.FILLED_LIST))
    yield KnownClass("java.util.Arrays$ArrayList", (codes.AS_LIST, codes.LIST))
    yield KnownClass("java.util.Collections$EmptyList", (codes.EMPTY_LIST, codes.EMPTY_LIST))
    yield KnownClass("java.util.Collections$SingletonList", (codes.SINGLETON_LIST, codes.SINGLETON_LIST))
    for arity in range(1, codes.FIELDS_OF_TUPLES + 1):
        yield KnownClass(f"{_TUPLE}{arity}", (codes.TUPLE, codes.TUPLE), param=arity)
    for side, name in enumerate(("Left", "Right")):
        yield KnownClass(f"{EITHER}${name}", (codes.EITHER, codes.EITHER), param=side)
    yield KnownClass(ROW, (codes.ROW, codes.ROW))
    yield KnownClass(ROW_KIND, (codes.ENUM, codes.ENUM), param=4)
    for name in ("HashSet", "LinkedHashSet", "Collections$EmptySet", "Collections$SingletonSet", *_MORE_SETS, *QUEUES):
        yield KnownClass(util + name, (codes.SET, codes.SET))
    for name in (ENUM_SET, *ENUM_SETS):
        yield KnownClass(name, (codes.ENUM_SET, codes.ENUM_SET))
    yield KnownClass("java.util.TreeSet", (codes.SORTED_SET, codes.SORTED_SET))
    # The serializer that Kryo 2 has for it knows no type arguments.
    yield KnownClass("java.util.PriorityQueue", (codes.SORTED_SET, codes.SORTED_SET), param=1)
    for name in ("SetN", "Set12"):
        yield KnownClass(f"java.util.ImmutableCollections${name}", (codes.FOREIGN, codes.FILLED_SET))
    for name in ("java.util.Collections$ReverseComparator", "java.lang.String$CaseInsensitiveComparator"):
        yield KnownClass(name, (codes.COMPARATOR, codes.COMPARATOR))
    natural = "java.util.Comparators$NaturalOrderComparator"
    yield KnownClass(natural, (codes.ENUM_COMPARATOR, codes.ENUM_COMPARATOR))


def _of_parts() -> Iterator[KnownClass]:
    for name, both in PARTS.items():
        kinds = tuple(codes.FOREIGN if parts is None else codes.PARTS for parts in both)
        yield KnownClass(name, (kinds[0], kinds[1]))
    for name in ENUMS:
        yield KnownClass(name, (codes.ENUM, codes.ENUM))
    yield KnownClass("[Ljava.lang.Object;", (codes.ANY_ARRAY, codes.ANY_ARRAY))
    for name in (*PARTS, *ENUMS):
        if name not in NOT_FINAL:
            yield KnownClass(f"[L{name};", (codes.OBJECT_ARRAY, codes.OBJECT_ARRAY), component=name)
    for name in ("[I", "[J", "[S", "[B", "[Z", "[C", "[F", "[D"):
        yield KnownClass(f"[{name}", (codes.OBJECT_ARRAY, codes.OBJECT_ARRAY), component=name)


_FOREIGN = (codes.FOREIGN, codes.FOREIGN)
# Row 0 stands for null.
KNOWN = (KnownClass("null", _FOREIGN), *_scalars(), *_arrays(), *_containers(), *_of_parts())
_ROWS = {known.name: row for row, known in enumerate(KNOWN)}

_PRIMITIVES = ("Integer", "String", "Float", "Boolean", "Byte", "Character", "Short", "Long", "Double")
_OF_FLINK = (
    *("java.util.Arrays$ArrayList", "java.util.BitSet", "java.util.PriorityQueue", "java.util.regex.Pattern"),
    *("java.sql.Date", "java.sql.Time", "java.sql.Timestamp", "java.net.URI", "java.net.InetSocketAddress"),
    *("java.util.UUID", "java.util.Locale", "java.text.SimpleDateFormat"),
)
# Classes by id: those of Kryo itself, and those that Flink registers.
_IDS = {number: f"java.lang.{name}" for number, name in enumerate(_PRIMITIVES)}
_IDS |= {FIRST_OF_JOB - len(_OF_FLINK) + number: name for number, name in enumerate(_OF_FLINK)}


@dataclass(frozen=True, slots=True, eq=False)
class ClassTable:
    """The classes that can occur in the values of one serializer, as the kernels use them.

    `names` are the classes of all rows. `kinds` has a line for each Kryo, and one that says which objects of the job
    can be comparators. `ids` gives the row of a registration, -1 without one. `slots` is a hash table of rows by name;
    the names are in `pool`, `extents` says where. `known` are the classes of the first rows.
    """

    names: tuple[str, ...]
    kinds: npt.NDArray[np.int64]
    params: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int32]
    extents: Positions
    pool: Bytes
    own_serializers: dict[str, str]
    copied_kinds: npt.NDArray[np.int64]
    parts: PartTables
    known: tuple[KnownClass, ...]
    job: JobTable
    classes: JobClasses | None

    @property
    def tables(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int32], Positions]:
        """What the kernels call `table`."""
        return self.kinds, self.ids, self.slots, self.extents

    def row(self, name: str) -> int:
        """The row of a class that is known."""
        return _ROWS[name]


def registered_ids(type_: KryoType) -> dict[int, str]:
    """Returns the classes by their ids, for values of this serializer."""
    ids = dict(_IDS)
    known = set(ids.values()) | _BOXED_TWINS
    for registration in type_.registrations:
        # One with a serializer of its own gets an id in any case, and is written with that from then on.
        if registration.class_name not in known or registration.serializer is not None:
            ids[FIRST_OF_JOB + len(ids) - len(_IDS)] = registration.class_name
            known.add(registration.class_name)
    return ids


_BOXED_TWINS = {"int", "float", "boolean", "byte", "char", "short", "long", "double"}


def expect_no_foreign_defaults(type_: KryoType) -> None:
    """Refuses a default serializer of the job's own for classes of the JDK or Gson: values may have any bytes then."""
    for class_name, serializer in type_.defaults:
        if class_name == GSON_MAP or (class_name.startswith("java.") and class_name != "java.lang.Throwable"):
            raise RefusedError(
                f"the job gave Kryo a default serializer of its own, {serializer} for {class_name}, so values of "
                f"{type_.class_name} can't be read"
            )


@lru_cache(maxsize=128)
def class_table(type_: KryoType) -> ClassTable:
    """Returns the classes that can occur in values of this serializer."""
    expect_no_foreign_defaults(type_)
    ids = registered_ids(type_)
    own = {part.class_name: part.serializer for part in type_.registrations if part.serializer is not None}
    job = _NO_JOB if type_.classes is None else job_table(type_.classes, dict(type_.defaults))
    known = (*KNOWN, *_of_job(job))
    names = tuple(dict.fromkeys((*(one.name for one in known), *ids.values(), *own, *mentioned(job), *_OF_ARRAYS)))
    rows = {name: row for row, name in enumerate(names)}
    kinds = np.zeros((3, len(names)), np.int64)
    params = np.zeros(len(names), np.int64)
    for row, one in enumerate(known):
        kinds[:2, row] = codes.FOREIGN if one.name in own else one.kinds
        if one.name in job.comparators and one.name not in own:
            kinds[codes.COMPARES, row] = codes.COMPARATOR
        params[row] = rows[one.component] if one.component else one.param
    by_id = np.full((2, max(ids) + 1), -1, np.int32)
    for number, name in ids.items():
        by_id[:, number] = rows[name]
    size = 1 << (4 * len(names)).bit_length()
    slots = np.full(size, -1, np.int32)
    extents = np.zeros((len(names), 2), np.int64)
    pool = bytearray()
    for row, name in enumerate(names[1:], 1):
        encoded = name.encode()
        extents[row] = len(pool), len(encoded)
        pool += encoded
        slot = _hash(encoded) & size - 1
        while slots[slot] >= 0:
            slot = (slot + 1) & size - 1
        slots[slot] = row
    copied_kinds = kinds.copy()
    copied_kinds[0, rows[LOCAL_DATE_TIME]] = codes.PARTS
    for name, kind in COPIED_AS.items():
        copied_kinds[:2, rows[name]] = kind
    data, parts = np.frombuffer(bytes(pool), np.uint8).copy(), part_tables(rows, job)
    return ClassTable(
        names, kinds, params, by_id, slots, extents, data, own, copied_kinds, parts, known, job, type_.classes
    )


# How these are read where they stay values of Kryo.
COPIED_AS = {
    **dict.fromkeys(FLINK_PARTS, codes.PARTS),
    "java.util.Collections$EmptySet": codes.EMPTY_LIST,
    "java.util.Collections$SingletonSet": codes.SINGLETON_LIST,
}
# Of no object, but of the arrays in lists of `Arrays.asList`.
_OF_ARRAYS = ("java.lang.Object", "java.lang.Number", "java.lang.Comparable", "java.io.Serializable")
_NO_JOB = JobTable({}, {}, {})


def _of_job(job: JobTable) -> Iterator[KnownClass]:
    of_job = (
        *(KnownClass(name, (codes.ENUM, codes.ENUM), param=len(constants)) for name, constants in job.enums.items()),
        *(KnownClass(name, (codes.PARTS, codes.PARTS)) for name in job.parts),
        *(replace(KNOWN[_ROWS[collection]], name=name) for name, collection in job.collections.items()),
    )
    for one in of_job:
        if one.name not in _ROWS:
            yield one
            array = f"[L{one.name};"
            if job.final[one.name]:
                yield KnownClass(array, (codes.OBJECT_ARRAY, codes.OBJECT_ARRAY), component=one.name)
            else:
                yield KnownClass(array, (codes.ANY_ARRAY, codes.ANY_ARRAY))
    # Of an interface, say, there are arrays, though no objects: each element says its class.
    with_objects = {one.name for one in of_job}
    for name, is_final in job.final.items():
        if not is_final and name not in with_objects:
            yield KnownClass(f"[L{name};", (codes.ANY_ARRAY, codes.ANY_ARRAY))


def _hash(name: bytes) -> int:
    code = 14695981039346656037
    for byte in name:
        code = (code ^ byte & 0x7F) * 1099511628211 & 0xFFFFFFFFFFFFFFFF
    return code ^ code >> 32
