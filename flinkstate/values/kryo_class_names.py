"""The names of the classes of the JDK and of Flink that are read when Kryo wrote objects of them."""

from __future__ import annotations

STRING, INTEGER, OBJECT_ARRAY = "java.lang.String", "java.lang.Integer", "[Ljava.lang.Object;"
ROW, ROW_KIND = "org.apache.flink.types.Row", "org.apache.flink.types.RowKind"
EITHER_SIDES = {f"org.apache.flink.types.Either${name}": name.lower() for name in ("Left", "Right")}
UTIL, LOCAL_DATE, LOCAL_TIME = "java.util.", "java.time.LocalDate", "java.time.LocalTime"
AS_LIST, SKIP_LIST = "java.util.Arrays$ArrayList", "java.util.concurrent.ConcurrentSkipListMap"
NATURAL_ORDER = "java.util.Comparators$NaturalOrderComparator"
COMPARATORS = ("java.util.Collections$ReverseComparator", "java.lang.String$CaseInsensitiveComparator", NATURAL_ORDER)
SORTED_SETS = ("java.util.TreeSet",)
WITHOUT_NULL = tuple(
    f"java.util.ImmutableCollections${name}" for name in ("ListN", "List12", "SubList", "SetN", "Set12")
)
MAPS_OF = tuple(f"{UTIL}ImmutableCollections${name}" for name in ("MapN", "Map1"))
# Neither as a key nor as a value. A TreeMap only has no null as a key.
MAPS_WITHOUT_NULL = (
    *(UTIL + name for name in ("Hashtable", "Properties")),
    *(f"{UTIL}concurrent.{name}" for name in ("ConcurrentHashMap", "ConcurrentSkipListMap")),
    *MAPS_OF,
)
# Of Gson. It has no null as a key.
GSON_MAP = "com.google.gson.internal.LinkedTreeMap"
_MAPS_OF_THE_JDK = tuple(
    UTIL + name
    for name in (
        *("HashMap", "LinkedHashMap", "TreeMap", "Hashtable", "Properties", "WeakHashMap"),
        *("concurrent.ConcurrentHashMap", "concurrent.ConcurrentSkipListMap"),
        *("ImmutableCollections$MapN", "ImmutableCollections$Map1", "Collections$EmptyMap", "Collections$SingletonMap"),
        *("EnumMap", "IdentityHashMap", "TreeMap$AscendingSubMap", "TreeMap$DescendingSubMap"),
        *("concurrent.ConcurrentSkipListMap$SubMap", "Collections$UnmodifiableNavigableMap$EmptyNavigableMap"),
        *(
            f"Collections${how}{name}Map"
            for how in ("Unmodifiable", "Synchronized", "Checked")
            for name in ("", "Sorted", "Navigable")
        ),
    )
)
MAPS = (*_MAPS_OF_THE_JDK, GSON_MAP)
# Those that both Kryos write by the number of their entries, and then the entries.
ENTRY_BY_ENTRY = (
    *(UTIL + name for name in ("HashMap", "LinkedHashMap", "Hashtable", "Properties", "WeakHashMap")),
    *("java.util.concurrent.ConcurrentHashMap", GSON_MAP),
)
LISTS = tuple(
    UTIL + name
    for name in (
        *("ArrayList", "LinkedList", "Vector", "Stack", "concurrent.CopyOnWriteArrayList", "ArrayList$SubList"),
        *("Collections$UnmodifiableList", "Collections$UnmodifiableRandomAccessList", "Arrays$ArrayList"),
        *("Collections$SynchronizedList", "Collections$SynchronizedRandomAccessList"),
        *("ImmutableCollections$ListN", "ImmutableCollections$List12", "ImmutableCollections$SubList"),
        *("Collections$EmptyList", "Collections$SingletonList", "Collections$CopiesList", "Collections$CheckedList"),
        *("Collections$CheckedRandomAccessList", "AbstractList$SubList", "AbstractList$RandomAccessSubList"),
    )
)
SETS = tuple(
    UTIL + name
    for name in (
        *("HashSet", "LinkedHashSet", "TreeSet", "ImmutableCollections$SetN", "ImmutableCollections$Set12"),
        *("Collections$EmptySet", "Collections$SingletonSet"),
    )
)
