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
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flinkstate.array_types import Bytes, Positions
from flinkstate.errors import RefusedError
from flinkstate.kryo import kernels
from flinkstate.serializers.types import FlinkType, KryoType, PrimitiveArrayType, Scalar

FIRST_OF_JOB = 85
_WITHOUT_NULL = (
    *("Hashtable", "Properties", "concurrent.ConcurrentHashMap"),
    *("ImmutableCollections$MapN", "ImmutableCollections$Map1"),
)
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
        ("java.lang.Integer", kernels.INTEGER, Scalar.INTEGER),
        ("java.lang.String", kernels.STRING, Scalar.STRING),
        ("java.lang.Float", kernels.FLOAT, Scalar.FLOAT),
        ("java.lang.Boolean", kernels.BOOLEAN, Scalar.BOOLEAN),
        ("java.lang.Byte", kernels.BYTE, Scalar.BYTE),
        ("java.lang.Character", kernels.CHARACTER, Scalar.CHARACTER),
        ("java.lang.Short", kernels.SHORT, Scalar.SHORT),
        ("java.lang.Long", kernels.LONG, Scalar.LONG),
        ("java.lang.Double", kernels.DOUBLE, Scalar.DOUBLE),
        ("java.math.BigInteger", kernels.BIG_INTEGER, Scalar.BIG_INTEGER),
        ("java.math.BigDecimal", kernels.BIG_DECIMAL, Scalar.BIG_DECIMAL),
        ("java.util.Date", kernels.MILLIS, Scalar.DATE),
        ("java.sql.Date", kernels.MILLIS, Scalar.SQL_DATE),
        ("java.sql.Time", kernels.MILLIS, Scalar.SQL_TIME),
        ("java.sql.Timestamp", kernels.TIMESTAMP, Scalar.SQL_TIMESTAMP),
        ("java.time.LocalDate", kernels.LOCAL_DATE, Scalar.LOCAL_DATE),
        ("java.time.LocalTime", kernels.LOCAL_TIME, Scalar.LOCAL_TIME),
        ("java.time.LocalDateTime", kernels.LOCAL_DATE_TIME, Scalar.LOCAL_DATE_TIME),
        ("java.time.Instant", kernels.INSTANT, Scalar.INSTANT),
    ):
        yield KnownClass(name, (kind, kind), scalar)


def _arrays() -> Iterator[KnownClass]:
    array = (kernels.PRIMITIVE_ARRAY, kernels.PRIMITIVE_ARRAY)
    for name, kind, scalar in (
        ("[I", kernels.INTEGER, Scalar.INTEGER),
        ("[J", kernels.LONG, Scalar.LONG),
        ("[S", kernels.SHORT, Scalar.SHORT),
        ("[B", kernels.BYTE, Scalar.BYTE),
        ("[Z", kernels.BOOLEAN, Scalar.BOOLEAN),
        ("[C", kernels.CHARACTER, Scalar.CHARACTER),
        ("[F", kernels.FLOAT, Scalar.FLOAT),
        ("[D", kernels.DOUBLE, Scalar.DOUBLE),
    ):
        yield KnownClass(name, array, PrimitiveArrayType(scalar), kind)
    for name in ("Integer", "Long", "Short", "Byte", "Boolean", "Character", "Float", "Double", "String"):
        component = f"java.lang.{name}"
        yield KnownClass(f"[L{component};", (kernels.OBJECT_ARRAY,) * 2, component=component)


def _containers() -> Iterator[KnownClass]:
    util = "java.util."
    for name in (
        *("HashMap", "LinkedHashMap", "Hashtable", "Properties", "WeakHashMap", "concurrent.ConcurrentHashMap"),
        *("Collections$UnmodifiableMap", "Collections$SynchronizedMap"),
        *("ImmutableCollections$MapN", "ImmutableCollections$Map1"),
    ):
        never = kernels.NO_NULL_KEY | kernels.NO_NULL_VALUE if name in _WITHOUT_NULL else 0
        yield KnownClass(util + name, (kernels.MAP, kernels.MAP), param=never)
    yield KnownClass("java.util.TreeMap", (kernels.SORTED_MAP, kernels.SORTED_MAP), param=kernels.NO_NULL_KEY)
    never = kernels.NO_NULL_KEY | kernels.NO_NULL_VALUE
    yield KnownClass("java.util.concurrent.ConcurrentSkipListMap", (kernels.MAP, kernels.SORTED_MAP), param=never)
    yield KnownClass("java.util.Collections$EmptyMap", (kernels.EMPTY_MAP, kernels.EMPTY_MAP))
    yield KnownClass("java.util.Collections$SingletonMap", (kernels.SINGLETON_MAP, kernels.SINGLETON_MAP))
    for name in (
        *("ArrayList", "LinkedList", "Vector", "Stack", "concurrent.CopyOnWriteArrayList", "ArrayList$SubList"),
        *("Collections$UnmodifiableList", "Collections$UnmodifiableRandomAccessList"),
        *("Collections$SynchronizedList", "Collections$SynchronizedRandomAccessList"),
    ):
        yield KnownClass(util + name, (kernels.LIST, kernels.LIST))
    for name in ("ListN", "List12", "SubList"):
        yield KnownClass(f"java.util.ImmutableCollections${name}", (kernels.LIST, kernels.FILLED_LIST))
    yield KnownClass("java.util.Arrays$ArrayList", (kernels.AS_LIST, kernels.LIST))
    yield KnownClass("java.util.Collections$EmptyList", (kernels.EMPTY_LIST, kernels.EMPTY_LIST))
    yield KnownClass("java.util.Collections$SingletonList", (kernels.SINGLETON_LIST, kernels.SINGLETON_LIST))
    for arity in range(1, kernels.CHILDREN - kernels.FIELDS + 1):
        yield KnownClass(f"{_TUPLE}{arity}", (kernels.TUPLE, kernels.TUPLE), param=arity)
    for name in ("java.util.Collections$ReverseComparator", "java.lang.String$CaseInsensitiveComparator"):
        yield KnownClass(name, (kernels.COMPARATOR, kernels.COMPARATOR))
    natural = "java.util.Comparators$NaturalOrderComparator"
    yield KnownClass(natural, (kernels.ENUM_COMPARATOR, kernels.ENUM_COMPARATOR))


_FOREIGN = (kernels.FOREIGN, kernels.FOREIGN)
# Row 0 stands for null.
KNOWN = (KnownClass("null", _FOREIGN), *_scalars(), *_arrays(), *_containers())
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

    `names` are the classes of all rows. `kinds` has a line for each Kryo. `ids` gives the row of a registration, -1
    without one. `slots` is a hash table of rows by name; the names are in `pool`, `extents` says where.
    """

    names: tuple[str, ...]
    kinds: npt.NDArray[np.int64]
    params: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int32]
    extents: Positions
    pool: Bytes
    own_serializers: dict[str, str]

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
    """Refuses a default serializer of the job's own for classes of the JDK: values may have any bytes then."""
    for class_name, serializer in type_.defaults:
        if class_name.startswith("java.") and class_name != "java.lang.Throwable":
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
    others = [name for name in dict.fromkeys((*ids.values(), *own)) if name not in _ROWS]
    names = (*(known.name for known in KNOWN), *others)
    rows = {name: row for row, name in enumerate(names)}
    kinds = np.zeros((2, len(names)), np.int64)
    params = np.zeros(len(names), np.int64)
    for row, known in enumerate(KNOWN):
        kinds[:, row] = kernels.FOREIGN if known.name in own else known.kinds
        params[row] = _ROWS[known.component] if known.component else known.param
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
    return ClassTable(names, kinds, params, by_id, slots, extents, np.frombuffer(bytes(pool), np.uint8).copy(), own)


def _hash(name: bytes) -> int:
    code = 14695981039346656037
    for byte in name:
        code = (code ^ byte & 0x7F) * 1099511628211 & 0xFFFFFFFFFFFFFFFF
    return code ^ code >> 32
