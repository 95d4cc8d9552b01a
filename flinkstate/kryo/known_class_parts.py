"""Classes of the JDK and of Flink without a serializer: of which parts Kryo 2 and Kryo 5 make their values.

Without a serializer of its own, a class is written by its fields, sorted by name: primitives, then objects with a mark,
and with a class tag before it if the class of the field isn't final.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flinkstate.classfiles.signatures import JavaType
from flinkstate.classfiles.type_arguments import ATOMIC_REFERENCE, EITHER, KNOWN_WITH_PARAMETERS, OPEN, variables_of
from flinkstate.errors import RefusedError
from flinkstate.kryo import kernel_codes as codes
from flinkstate.kryo.job_parts import JobPart, JobTable

# A part is its kind, or for an object the name of its class, "" with a class tag.
Parts = tuple[int | str, ...]

ROW = "org.apache.flink.types.Row"
ROW_KIND = f"{ROW}Kind"
LOCAL_DATE_TIME = "java.time.LocalDateTime"
_DATE, _TIME = "java.time.LocalDate", "java.time.LocalTime"
_OFFSET = "java.time.ZoneOffset"
_INT, _LONG, _BYTE, _STRING = codes.INTEGER, codes.LONG, codes.BYTE, codes.STRING
_TEXT: Parts = (_STRING,)
_ANY: Parts = ("",)
_OFFSET_5: Parts = (codes.ZONE_OFFSET,)
_DATE_TIME_5: Parts = (codes.LOCAL_DATE, codes.LOCAL_TIME)
# The parts by Kryo 2 and by Kryo 5; None for a form that can't be read.
PARTS: dict[str, tuple[Parts | None, Parts | None]] = {
    "java.util.UUID": ((_LONG, _LONG), (codes.EIGHT_BYTES, codes.EIGHT_BYTES)),
    "java.util.BitSet": ((codes.LONGS,), (codes.LONGS,)),
    "java.net.URI": (_TEXT, _TEXT),
    "java.util.Locale": (None, (_STRING, _STRING, _STRING)),
    "java.util.regex.Pattern": (_TEXT, (_STRING, codes.POSITIVE_INT)),
    "java.util.Currency": (_TEXT, _TEXT),
    "java.util.Optional": (_ANY, _ANY),
    ATOMIC_REFERENCE: (_ANY, _ANY),
    "java.util.concurrent.atomic.AtomicInteger": ((_INT,), (_INT,)),
    "java.util.concurrent.atomic.AtomicLong": ((_LONG,), (_LONG,)),
    "java.time.Duration": ((_INT, _LONG), (codes.EIGHT_BYTES, codes.POSITIVE_INT)),
    "java.time.Period": ((_INT, _INT, _INT), (codes.POSITIVE_INT,) * 3),
    "java.time.Year": ((_INT,), (codes.POSITIVE_INT,)),
    "java.time.YearMonth": ((_INT, _INT), (codes.POSITIVE_INT, _BYTE)),
    "java.time.MonthDay": ((_INT, _INT), (_BYTE, _BYTE)),
    _OFFSET: ((_INT,), _OFFSET_5),
    "java.time.ZoneRegion": (("java.lang.String",), _TEXT),
    "java.time.OffsetTime": ((_OFFSET, _TIME), (codes.LOCAL_TIME, *_OFFSET_5)),
    "java.time.OffsetDateTime": ((LOCAL_DATE_TIME, _OFFSET), (*_DATE_TIME_5, *_OFFSET_5)),
    "java.time.ZonedDateTime": ((LOCAL_DATE_TIME, _OFFSET, ""), (*_DATE_TIME_5, *_TEXT)),
    "org.apache.flink.api.java.tuple.Tuple0": ((), ()),
}
ENUMS = (
    *("java.util.concurrent.TimeUnit", "java.time.DayOfWeek", "java.time.Month", "java.time.temporal.ChronoUnit"),
    *("java.math.RoundingMode", "java.lang.Thread$State"),
)
# Of these nobody knows whether an array has class tags: classes that have subclasses, TimeUnit up to Java 8 alone.
NOT_FINAL = (
    *("java.util.BitSet", "java.util.concurrent.TimeUnit", ATOMIC_REFERENCE),
    *("java.util.concurrent.atomic.AtomicInteger", "java.util.concurrent.atomic.AtomicLong"),
)
# Fields of classes of Flink that have a form of Flink's own as well.
_ANY_FIELD = JobPart(codes.TAGGED_PART)
_STRING_TYPE = JavaType("java.lang.String")
_ROW_FIELDS = (
    JobPart(codes.TAGGED_PART, arguments=(_STRING_TYPE, JavaType("java.lang.Object"))),
    _ANY_FIELD,
    JobPart(codes.KNOWN_PART, ROW_KIND),
    JobPart(codes.TAGGED_PART, arguments=(_STRING_TYPE, JavaType("java.lang.Integer"))),
)
_SIDES = {f"{EITHER}${side}": (_ANY_FIELD, _ANY_FIELD) for side in ("Left", "Right")}
FLINK_PARTS = {**_SIDES, ROW: _ROW_FIELDS}
_TUPLES = {
    name: (_ANY_FIELD,) * len(found.fields) for name, found in KNOWN_WITH_PARAMETERS.items() if ".tuple." in name
}
# Of Kryo 2, so many classes that take type arguments are told apart.
_MOST_TAKERS = 62

Table = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PartTables:
    """For each Kryo and class where its parts are; all parts; which classes differ by the Kryos; contexts.

    A class whose parts may change with type arguments has a number, bits of its type variables, and of those that its
    type arguments may not say, see `first_part` in `objects.py`.
    """

    spans: Table
    parts: Table
    differs: Table
    contexts: Table


def mentioned(job: JobTable) -> Iterator[str]:
    """Yields the names of all classes that parts and type arguments name."""
    for parts in (*job.parts.values(), *job.parts_5.values()):
        for part in parts:
            if part.class_name:
                yield part.class_name
            yield from (one.name for argument in part.arguments for one in argument.with_arguments() if one != OPEN)


def part_tables(rows: Mapping[str, int], job: JobTable) -> PartTables:
    """Makes the tables of parts."""
    spans = np.zeros((2, len(rows), 5), np.int64)
    differs = np.zeros(len(rows), np.int64)
    parts: list[tuple[int, int, int]] = [(0, 0, 0)]
    contexts = _Contexts(rows, job)
    for name, both in {**PARTS, LOCAL_DATE_TIME: ((_DATE, _TIME), None)}.items():
        differs[rows[name]] = both[0] != both[1]
        for version, some in enumerate(both):
            spans[version, rows[name], :2] = len(parts), len(some or ())
            parts += [_numbers(part, rows) for part in some or ()]
    for name, plain in {**job.parts, **FLINK_PARTS, **_TUPLES}.items():
        differs[rows[name]] = name in job.parts_5 or any(part.arguments for part in plain)
        for version in range(2):
            fields = job.parts_by(name, five=version == 1) if name in job.parts else plain
            spans[version, rows[name], :2] = len(parts), len(fields)
            parts += [contexts.part(part, version) for part in fields]
    contexts.add_typed(parts)
    for version, takers in enumerate(job.takers):
        for name in {one for some in takers.values() for one in some}:
            spans[version, rows[name], 2:] = 1, *contexts.bits_of(name, version)
            differs[rows[name]] |= name in job.parts
    for number, row in enumerate(contexts.typed_by_2, 2):
        spans[0, row, 2] = min(number, _MOST_TAKERS)
    return PartTables(spans, np.array(parts, np.int64), differs, np.array(contexts.lines, np.int64))


class _Contexts:
    """Type arguments of fields. `typed_by_2` are the classes whose parts are others with some of them by Kryo 2."""

    def __init__(self, rows: Mapping[str, int], job: JobTable) -> None:
        self._rows, self._job = rows, job
        self.lines = [[-1, 0, -1, 0, 0, 0]]
        self.typed_by_2: dict[int, None] = {}
        self._numbers: dict[tuple[str, tuple[JavaType, ...], int], int] = {}
        self._bits: dict[str, int] = {}

    def part(self, part: JobPart, version: int) -> tuple[int, int, int]:
        """Returns the numbers of a part."""
        row = self._rows[part.class_name] if part.class_name else 0
        return part.kind, row, self._number(part.declared, part.arguments, version)

    def bits_of(self, name: str, version: int) -> tuple[int, int]:
        """Returns bits for the type variables of a class, all if nothing is known of them, and for those left open."""
        assert self._job.job is not None
        variables, left = (map(self._bit, one) for one in variables_of(name, self._job.job, five=version == 1))
        return sum(set(variables)) or (1 << codes.KEPT_BITS) - 1, sum(set(left))

    def _bit(self, variable: str) -> int:
        return 1 << self._bits.setdefault(variable, len(self._bits)) % codes.KEPT_BITS

    def _number(self, declared: str, arguments: tuple[JavaType, ...], version: int) -> int:
        """Returns the number of the context of these type arguments."""
        if not arguments:
            return 0
        key = declared if declared in self._job.takers[version] else "", arguments, version
        if key not in self._numbers:
            # Kryo 2 looks only at the type arguments of the field itself.
            line = [-1, 0, -1, 0, 0, 0]
            for place, one in enumerate(arguments[:2]):
                line[2 * place] = self._rows[one.name] if self._job.is_final(one.name) else -1
                line[2 * place + 1] = self._number(one.name, one.arguments, version) if version else 0
            self._numbers[key] = len(self.lines)
            self.lines.append(line)
        return self._numbers[key]

    def add_typed(self, parts: list[tuple[int, int, int]]) -> None:
        """Adds the parts that objects have with the type arguments of each context."""
        done = 0
        while done < len(self._numbers):
            for (declared, arguments, version), number in list(self._numbers.items())[done:]:
                found: list[tuple[int, int, int]] = []
                for name in self._job.takers[version].get(declared, ()):
                    with suppress(RefusedError, ValueError):
                        typed = self._job.typed_parts(name, arguments, five=version == 1)
                        if typed is not None:
                            kept = typed[1] << codes.KEPT_BITS | self.bits_of(name, version)[0]
                            found.append((self._rows[name], len(parts), kept))
                            parts += [self.part(part, version) for part in typed[0]]
                            if version == 0:
                                self.typed_by_2[self._rows[name]] = None
                self.lines[number][4:] = len(parts), len(found)
                parts += found
                done += 1


def _numbers(part: int | str, rows: Mapping[str, int]) -> tuple[int, int, int]:
    if isinstance(part, int):
        return part, 0, 0
    return (codes.KNOWN_PART, rows[part], 0) if part else (codes.TAGGED_PART, 0, 0)
