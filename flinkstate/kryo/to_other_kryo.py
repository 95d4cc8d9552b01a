"""Values with parts by Kryo 2 become the values that a job of Flink 2 writes of the same objects, and the other way.

In Flink 2 these parts are by Kryo 5, or by Flink's own serializers of maps, lists and sets. Everything else in the
values, and what is before them, stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from flinkstate.basics.array_types import Bytes, Flags, Positions
from flinkstate.classfiles.constructors import may_lack_fields
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.kryo import kernel_codes as codes
from flinkstate.kryo import kryo_2_leaves, other_kryo_collections, other_kryo_kernels
from flinkstate.kryo.classes import COPIED_AS, IDENTITY_MAP, KNOWN, ClassTable, class_table, registered_ids
from flinkstate.kryo.forms_of_flink_2 import Forms
from flinkstate.kryo.other_kryo_flat_maps import LAST_FLAT_TAG
from flinkstate.kryo.reading import declared_reading, kryo_reading
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.kryo.repeated_hours import expect_first_offsets
from flinkstate.kryo.stacked_tables import stacked
from flinkstate.serializers.programs import WalkProgram, compile_type
from flinkstate.serializers.types import (
    DeclaredKryoType,
    FlinkType,
    KryoCollectionType,
    KryoMapType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    OpaqueType,
    SetType,
    type_name,
)
from flinkstate.serializers.walker import failed

_TIME = "java.time."
_SPECIAL = {
    "java.util.UUID": kryo_2_leaves.UUID,
    "java.util.regex.Pattern": kryo_2_leaves.PATTERN,
    f"{_TIME}Duration": kryo_2_leaves.DURATION,
    f"{_TIME}Period": kryo_2_leaves.PERIOD,
    f"{_TIME}Year": kryo_2_leaves.YEAR,
    f"{_TIME}YearMonth": kryo_2_leaves.YEAR_MONTH,
    f"{_TIME}MonthDay": kryo_2_leaves.MONTH_DAY,
    f"{_TIME}ZoneOffset": kryo_2_leaves.ZONE_OFFSET,
    f"{_TIME}ZoneRegion": kryo_2_leaves.ZONE_REGION,
    f"{_TIME}OffsetTime": kryo_2_leaves.OFFSET_TIME,
    f"{_TIME}OffsetDateTime": kryo_2_leaves.OFFSET_DATE_TIME,
    f"{_TIME}ZonedDateTime": kryo_2_leaves.ZONED_DATE_TIME,
}
# In the order of the columns of `rows`.
_INSIDE = (
    *(f"{_TIME}{name}" for name in ("LocalDate", "LocalTime", "LocalDateTime", "ZoneOffset", "ZoneRegion")),
    *("java.lang.String", "java.util.regex.Pattern"),
)
# What Kryo writes, but can't read, or not as it was: either Kryo, or Kryo 2.
NEVER_READ = (
    *(f"java.util.Collections${name}" for name in ("Unmodifiable", "Synchronized", "Checked", "CopiesList")),
    *("java.util.EnumMap", "java.util.TreeMap$", "java.util.concurrent.ConcurrentSkipListMap$"),
    "java.util.AbstractList$",
)
_NOT_READ_BY_2 = (
    *("java.util.ImmutableCollections$", "java.util.ArrayList$SubList", "java.util.Arrays$ArrayList"),
    *(f"{_TIME}{name}" for name in ("ZoneOffset", "ZonedDateTime", "OffsetDateTime", "OffsetTime")),
)
_BY_NEITHER = (
    "neither Kryo 2 nor Kryo 5 alone can have written this value: it is damaged, or it is a list to which an upgraded "
    "job has added elements"
)
_BY_BOTH = "Kryo 2 and Kryo 5 could both have written this value, and mean different ones"
_WHAT_HELPS = (
    ". If the job was never upgraded to Flink 2 without --to, Kryo 5 wrote all of its values: say --all-by-kryo-5"
)
_LEAST_ROOM = 1 << 12
_LEAST_MOMENTS = 1 << 8
_LARGEST = 1 << 31
# Kernels read some bytes at once, so there must be some behind the last value.
READ_BEHIND = 64


@dataclass(frozen=True, slots=True)
class Recoded:
    """Values one after another, each with what was before it; value i ends at `ends[i]`."""

    data: Bytes
    ends: Positions


@dataclass(slots=True, eq=False)
class Recoder:
    """Writes the values of a program's type for the other Kryo; keep it, it owns buffers.

    `followed` says that Flink reads what is behind a value from the same stream.
    """

    program: WalkProgram
    followed: bool = False
    # The program walks lists of its type.
    of_lists: bool = False
    kryos: tuple[KryoType, ...] = field(init=False)
    _tables: tuple[Any, ...] = field(init=False)
    _of_parts: Positions = field(init=False)
    _forms: tuple[Any, ...] = field(init=False)
    _objects: Positions = field(init=False)
    _stack: Positions = field(init=False)
    _state: Positions = field(init=False)
    _mixed: bool = field(init=False)
    _scratch: Bytes = field(init=False)

    def __post_init__(self) -> None:
        self.kryos = tuple(dict.fromkeys(kryo_of(part) for _, part in self.program.opaque))
        parts = [part for _, part in self.program.opaque if isinstance(part, KryoCollectionType) and part.kryo.for_five]
        made = {part.kryo for part in parts if isinstance(part.made.value, MapType)}
        self._tables = stacked([_tables_of(kryo, kryo in made) for kryo in self.kryos])
        self._of_parts, forms = np.zeros((len(self.program.code), 4), np.int64), Forms()
        for place, part in self.program.opaque:
            self._of_parts[place] = self.kryos.index(kryo_of(part)), *_form_of(part, forms)
        self._forms = forms.arrays
        self._objects = np.zeros((_LEAST_ROOM, codes.OBJECT_PARTS), np.int64)
        self._stack = np.zeros((other_kryo_kernels.DEEPEST, other_kryo_kernels.FRAME_PARTS), np.int64)
        self._state = np.zeros(codes.STATES + codes.MOMENT_PARTS * _LEAST_MOMENTS, np.int64)
        self._scratch = np.empty(_LEAST_ROOM, np.uint8)
        self._mixed = any(kryo.five is None for kryo in self.kryos)

    def recode(
        self, data: Bytes, starts: Positions, ends: Positions, heads: Positions, kept: Flags | None = None
    ) -> Recoded:
        """Writes all values, each with the `heads` bytes before it; those that are `kept` stay as they are.

        If it isn't known which Kryo wrote them, those of the Kryo that is wanted stay too.
        """
        kept = np.zeros(len(starts), np.bool_) if kept is None else kept
        if any(isinstance(kryo, DeclaredKryoType) for kryo in self.kryos):
            self.ends_by(data, starts[~kept], ends[~kept], five=False, declared=True)
        if not self._mixed:
            return self._recode(data, starts, ends, heads, kept)
        by_2, by_5 = ((self.ends_by(data, starts, ends, five=five) == ends) & ~kept for five in (False, True))
        for row in np.flatnonzero(~by_2 & ~by_5 & ~kept)[:1].tolist():
            one = slice(row, row + 1)
            try:
                self._recode(data, starts[one], ends[one], heads[one], np.zeros(1, np.bool_))
            except DamagedError:
                raise RefusedValueError(_BY_NEITHER, int(starts[row])) from None
        wanted = by_5 & ~by_2 if self._for_five else by_2 & ~by_5
        made = self._recode(data, starts, ends, heads, kept | wanted)
        self._expect_one_meaning(data, starts - heads, ends, np.flatnonzero(by_2 & by_5), made)
        if self.of_lists:
            for five, rows in ((False, by_2 & ~by_5), (True, by_5 & ~by_2)):
                self._expect_elements_of_one_meaning(data, starts[rows], ends[rows], five)
        return made

    def by_kryo_5(self, data: Bytes, starts: Positions, ends: Positions) -> Flags:
        """Whether Kryo 5 can have written each value."""
        found: Flags = self.ends_by(data, starts, ends, five=True) == ends
        return found

    def _expect_one_meaning(
        self, data: Bytes, starts: Positions, ends: Positions, both: Positions, made: Recoded
    ) -> None:
        """Refuses a value that both Kryos could have written, unless both mean the same: its bytes stay then."""
        begins = np.append(0, made.ends[:-1])
        for row in both.tolist():
            before, after = data[starts[row] : ends[row]], made.data[begins[row] : made.ends[row]]
            if not np.array_equal(before, after):
                raise RefusedValueError(_BY_BOTH if self._for_five else _BY_BOTH + _WHAT_HELPS, int(starts[row]))

    def _expect_elements_of_one_meaning(self, data: Bytes, starts: Positions, limits: Positions, five: bool) -> None:
        """Refuses lists of this Kryo with an element that the other one could have written as well.

        RocksDB adds elements to a list without reading it, so those of an upgraded job stand behind those before it.
        """
        element = recoder(compile_type(self.program.type))
        while len(starts):
            ends = element.ends_by(data, starts, limits, five=five)
            both = (element.ends_by(data, starts, ends, five=not five) == ends) & (ends >= 0)
            begins, stops, heads = starts[both], ends[both], np.zeros(int(both.sum()), np.int64)
            made = element._recode(data, begins, stops, heads, np.zeros(len(heads), np.bool_))
            element._expect_one_meaning(data, begins, stops, np.arange(len(heads)), made)
            # A comma stands between two elements.
            more = (ends >= 0) & (ends + 1 < limits)
            starts, limits = ends[more] + 1, limits[more]

    def ends_by(
        self, data: Bytes, starts: Positions, limits: Positions, *, five: bool, declared: bool = False
    ) -> Positions:
        """Returns where each value ends if this Kryo wrote all its parts by Kryo; -1 if it didn't.

        With `declared` it refuses parts that aren't what they are declared as.
        """

        def ends_of_part(part: OpaqueType, starts: Positions, limits: Positions) -> Positions:
            kryo = kryo_of(part)
            is_held = declared and isinstance(kryo, DeclaredKryoType)
            reading = declared_reading(kryo) if is_held else kryo_reading(kryo)
            found = reading.find_ends(data, starts, limits, five=five, strict=False)
            for row in np.flatnonzero(found < 0)[:1].tolist() if is_held else ():
                one = slice(row, row + 1)
                reading.find_ends(data, starts[one], limits[one], five=five, strict=True)
            return found

        return ends_of_values(self.program, data, starts, limits, ends_of_part)

    def parts(self, data: Bytes, starts: Positions, ends: Positions) -> Positions:
        """Returns a line for each part by Kryo: its place in the program, where it begins and where it ends."""
        failure, program = np.zeros(3, np.int64), _for_kernels(self.program)
        parts, part_ends = np.empty((len(starts) + _LEAST_ROOM, 3), np.int64), np.zeros(len(starts), np.int64)
        out, done = np.empty(_LEAST_ROOM, np.uint8), 0
        while True:
            done = other_kryo_kernels.find_parts(
                data, starts, ends, done, not self._for_five, program, self._of_parts, self._tables, self._stack,
                self._objects, self._scratch, out, parts, part_ends, self._state, failure,
            )  # fmt: skip
            if done == len(starts):
                return parts[: int(part_ends[-1]) if done else 0]
            if failure[0] == codes.NO_MARKS:
                parts = np.concatenate((parts, np.empty_like(parts)))
            else:
                out = self._more_room(data, int(starts[done]), int(ends[done]), out, failure)

    @property
    def _for_five(self) -> bool:
        return all(kryo.for_five for kryo in self.kryos)

    def _recode(self, data: Bytes, starts: Positions, ends: Positions, heads: Positions, kept: Flags) -> Recoded:
        count, failure, program = len(starts), np.zeros(3, np.int64), _for_kernels(self.program)
        size = int((ends - starts + heads).sum())
        out, new_ends = np.empty(size + size // 4 + _LEAST_ROOM, np.uint8), np.zeros(count, np.int64)
        done = 0
        while done < count:
            done = other_kryo_kernels.recode_parts(
                data, starts, ends, heads, done, kept, self.followed, not self._for_five, program, self._of_parts,
                self._forms, self._tables, self._stack, self._objects, self._scratch, out,
                int(new_ends[done - 1]) if done else 0, new_ends, self._state, failure,
            )  # fmt: skip
            self._expect_first_offsets(data)
            if done < count:
                out = self._more_room(data, int(starts[done]), int(ends[done]), out, failure)
        return Recoded(out[: int(new_ends[-1]) if count else 0], new_ends)

    def _expect_first_offsets(self, data: Bytes) -> None:
        if not (count := int(self._state[codes.MOMENTS])):
            return
        self._state[codes.MOMENTS] = 0
        moments = self._state[codes.STATES :][: codes.MOMENT_PARTS * count]
        expect_first_offsets(data, moments.reshape(-1, codes.MOMENT_PARTS))

    def _more_room(self, data: Bytes, start: int, end: int, out: Bytes, failure: Positions) -> Bytes:
        code, detail = int(failure[0]), int(failure[2])
        if code == codes.NO_ROOM and len(out) < _LARGEST:
            # Which of the two it was that had no room isn't said.
            self._scratch = np.empty(max(len(self._scratch), 2 * detail, 8 * (end - start)) + _LEAST_ROOM, np.uint8)
            more = np.empty(2 * len(out) + detail, np.uint8)
            more[: len(out)] = out
            return more
        if code == codes.NO_MOMENTS:
            self._state = np.append(self._state, np.zeros(len(self._state), np.int64))
            return out
        if code == codes.NO_OBJECTS and len(self._objects) < 4 * (end - start) + _LEAST_ROOM:
            self._objects = np.zeros((4 * len(self._objects), codes.OBJECT_PARTS), np.int64)
            return out
        if code < 0:
            failure[0] = -code
            raise failed(failure, data, self.program.type)
        reading = kryo_reading(self.kryos[0])
        if len(self.kryos) == 1:
            # The error names classes that were met here.
            reading.objects, reading.state[codes.OBJECTS] = self._objects.copy(), self._state[codes.OBJECTS]
        raise reading.error_of(data, failure)


@lru_cache(maxsize=64)
def recoder(program: WalkProgram, *, followed: bool = False, of_lists: bool = False) -> Recoder:
    """Returns what writes the values of a program's type."""
    return Recoder(program, followed, of_lists)


def ends_of_values(
    program: WalkProgram,
    data: Bytes,
    starts: Positions,
    limits: Positions,
    ends_of_part: Callable[[OpaqueType, Positions, Positions], Positions],
    *,
    strict: bool = False,
) -> Positions:
    """Returns where each value ends, behind which there may be more; -1 if it can't be read.

    `ends_of_part` is given what can't be walked, where it begins and where the value around it ends. `strict` raises
    why a single value can't be walked.
    """
    places, pcs, ends = starts.copy(), np.zeros(len(starts), np.int64), np.full(len(starts), -1)
    registers, failure = np.zeros((len(starts), program.registers), np.int64), np.zeros(3, np.int64)
    pcs_of_parts: dict[OpaqueType, list[int]] = {}
    for pc, part in program.opaque:
        pcs_of_parts.setdefault(part, []).append(pc)
    while True:
        other_kryo_kernels.walk_to_kryo(data, places, limits, pcs, _for_kernels(program), registers, ends, failure)
        waiting = np.flatnonzero(pcs >= 0)
        if not len(waiting):
            if strict and (ends < 0).any():
                raise failed(failure, data, program.type)
            return ends
        stopped = pcs[waiting]
        for part, of_part in pcs_of_parts.items():
            mine = waiting[np.isin(stopped, of_part)]
            places[mine] = found = ends_of_part(part, places[mine], limits[mine])
            pcs[mine] = np.where(found < 0, -1, pcs[mine] + 1)


def _for_kernels(program: WalkProgram) -> tuple[Any, ...]:
    """Returns what the kernels call `program`."""
    registers = np.zeros(program.registers, np.int64)
    return program.code, program.pool, registers, np.zeros(1, np.int64), np.zeros(2, np.int64)


def kryo_of(part: OpaqueType) -> KryoType:
    if isinstance(part, KryoCollectionType | KryoMapType):
        return part.kryo
    if isinstance(part, KryoType):
        return part
    raise RefusedError(f"values of {part.class_name} can't be rewritten: {part.reason}")


def _form_of(part: OpaqueType, forms: Forms) -> tuple[int, int, int]:
    """Returns as what a part is written, and the rows of the classes in it; of what Flink 2 has written its node."""
    if not isinstance(part, KryoCollectionType):
        return other_kryo_collections.BY_KRYO, 0, 0
    if not part.kryo.for_five:
        return other_kryo_collections.OF_FLINK_2, forms.add(part), 0
    match part.made.value:
        case MapType(NullableType(key), value):
            return other_kryo_collections.AS_MAP, _row_of(key, part), _row_of(value, part)
        case ListType(NullableType(element)):
            return other_kryo_collections.AS_LIST_OF_FLINK, _row_of(element, part), 0
        case SetType(element):
            return other_kryo_collections.AS_SET, _row_of(element, part), 0
    raise RefusedError(f"a {type_name(part.made)} and a {part.class_name} by Kryo aren't made of each other")


def _row_of(type_: FlinkType, part: KryoCollectionType) -> int:
    table = class_table(part.kryo)
    for known in KNOWN:
        if known.type == type_ and known.kinds[0] <= codes.PRIMITIVE_ARRAY:
            return table.row(known.name)
    raise RefusedError(
        f"a {type_name(part.made)} and a {part.class_name} by Kryo aren't made of each other: {type_name(type_)} in it"
    )


def _has_flat_maps(table: ClassTable) -> bool:
    """Whether all boxed primitives and Strings are written as Kryo itself does."""
    boxed = table.ids[0, : LAST_FLAT_TAG - 1]
    return bool((table.kinds[:, boxed] != codes.FOREIGN).all())


def _tables_of(kryo: KryoType, makes_maps: bool) -> tuple[Any, ...]:
    table = class_table(kryo)
    rows = {name: row for row, name in enumerate(table.names)}
    special = np.zeros(len(rows), np.int64)
    for name, number in _SPECIAL.items():
        special[rows[name]] = number
    kinds, *others = table.tables
    kinds = kinds.copy()
    for name, row in rows.items():
        if name in COPIED_AS:
            kinds[:2, row] = COPIED_AS[name]
        lacks_fields = name in table.job.collections and table.classes and may_lack_fields(name, table.classes)
        if lacks_fields or name.startswith(NEVER_READ if kryo.for_five else (*NEVER_READ, *_NOT_READ_BY_2)):
            kinds[1 if kryo.for_five else 0, row] = codes.FOREIGN
        if name in table.job.of_compiler and not kryo.for_five:
            # Whether Kryo 2 reads its field depends on Flink's class path.
            kinds[0, row] = codes.FOREIGN
    if makes_maps:
        # Flink makes a HashMap of it, in which two of its keys could be equal.
        kinds[:2, rows[IDENTITY_MAP]] = codes.FOREIGN
    ids = np.full(len(rows), -1, np.int64)
    for number, name in registered_ids(kryo).items():
        ids[rows[name]] = number
    return (
        (kinds, *others), table.params, np.array([rows[name] for name in _INSIDE], np.int64), table.pool,
        np.zeros((codes.MOST_NAMES, 3), np.int64), table.parts.spans, table.parts.parts, table.parts.contexts, special,
        ids, np.zeros((len(rows), 2), np.int64), np.array([_has_flat_maps(table)]),
    )  # fmt: skip
