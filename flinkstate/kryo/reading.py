"""Runs the kernel over many values: owns what it works with, makes room, and makes errors of what it reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from flinkstate.basics.array_types import ByteFlags, Bytes, Flags, Positions
from flinkstate.classfiles.type_arguments import EITHER
from flinkstate.errors import DamagedError, StateferryError
from flinkstate.kryo import kernel_codes as codes
from flinkstate.kryo import kernels
from flinkstate.kryo.classes import ClassTable, class_table
from flinkstate.kryo.known_class_parts import ROW, ROW_KIND
from flinkstate.kryo.places_in_maps import OBJECT, ROOT, WIDER_THAN, Places, places_of, places_to_find
from flinkstate.kryo.refusal import RefusedValueError, text_at, what_helps
from flinkstate.serializers.types import DeclaredKryoType, FlinkType, KryoType, ListType, MapType, SetType, simple_name

_LEAST_OBJECTS = 4096
_LEAST_ROOM = 1 << 12
_LARGEST = 1 << 31
_WITH_SCALA = "writes it if flink-scala is on Flink's class path, else not"
_NO_PARTS = np.full((2, 1), -1, np.int64)


@dataclass(slots=True, eq=False)
class Values:
    """Values: entry i is `data[starts[i]:ends[i]]`; behind its head are 4 and `skipped` bytes, then a map."""

    data: Bytes
    starts: Positions
    heads: Positions
    ends: Positions
    skipped: int


@dataclass(slots=True, eq=False)
class Said:
    """What the kernel said of each value: the Kryo and what is special, its entries, and what stopped it."""

    found: ByteFlags
    counts: Positions
    stops: Positions
    out: Bytes
    head_ends: Positions
    ends: Positions
    marks: Positions


@dataclass(slots=True, eq=False)
class MapReading:
    """The readings of one serializer's values; the Kryo that wrote the last one is tried first for the next one.

    They find the classes of all objects, or hold them against those of `made`: a map, a list or a set.
    """

    table: ClassTable
    places: Places
    made: MapType | ListType | SetType | None = None
    hint: int = 0
    objects: Positions = field(default_factory=lambda: np.zeros((_LEAST_OBJECTS, codes.OBJECT_PARTS), np.int64))
    state: Positions = field(default_factory=lambda: np.zeros(codes.STATES, np.int64))
    stack: Positions = field(default_factory=lambda: np.zeros((kernels.DEEPEST, kernels.FRAME_PARTS), np.int64))
    known: Positions = field(default_factory=lambda: np.zeros((codes.MOST_NAMES, 3), np.int64))
    said: Positions = field(init=False)
    scratch: Positions = field(init=False)
    touched: Positions = field(init=False)
    flat: tuple[Positions, Positions, Positions] = field(init=False)
    rows: Positions = field(init=False)

    def __post_init__(self) -> None:
        # Of many classes few occur: what isn't written to takes no memory.
        self.scratch = np.zeros(self.places.cells.shape if self.finding else (1, 1), np.int64)
        self.said = np.zeros((len(self.table.names), 2), np.int64)
        self.touched = np.zeros((self.scratch.size, 2), np.int64)
        inside = ("java.time.LocalDate", "java.time.LocalTime", "[Ljava.lang.Object;", ROW_KIND)
        self.rows = np.array([self.table.row(name) for name in inside], np.int64)
        self.flat = self._flat(), np.zeros((2, codes.FLAT_TAGS), np.int64), np.zeros(4, np.int64)
        self.state[codes.NODES] = len(self.places.names())
        self.state[codes.FIELD] = codes.NO_FIELD if self.places.with_map is None else codes.TAKEN

    def _flat(self) -> Positions:
        """Returns for keys and for values what the tags of flat maps stand for, 0 for what is not read as such here."""
        kinds = np.zeros((2, codes.FLAT_TAGS), np.int64)
        rows = self.table.ids[0, : codes.FLAT_TAGS - 2]
        of_both = self.table.kinds[:, rows]
        kinds[:, 2:] = np.where(of_both[0] == of_both[1], of_both[0], 0)
        kinds[:, codes.NULL] = codes.FLAT_NULL
        if self.finding or self.places.with_map is not None:
            return kinds
        places = self.places
        for line, node in zip(kinds, places.children[0, [codes.KEY, codes.VALUE]], strict=True):
            allowed = places.cells[node, np.append([codes.NULL, codes.NULL], rows)] == 1
            line[~allowed] = 0
            if places.copies[node] >= 0:
                line[:] = 0
        if places.nulls[places.children[0, codes.KEY]] != 1:
            kinds[0, codes.NULL] = 0
        return kinds

    @property
    def finding(self) -> bool:
        """Whether the readings find classes."""
        return self.made is None

    def read(self, values: Values) -> Said:
        """Reads all values."""
        count, size = len(values.starts), len(values.data)
        # What is not used of an empty array takes no memory.
        whole = 0 if self.finding else int((values.ends - values.starts).sum())
        said = Said(
            np.zeros(count, np.uint8), np.zeros(count, np.int64), np.zeros((count, 2), np.int64),
            np.empty(2 * whole + _LEAST_ROOM, np.uint8), np.zeros(count, np.int64), np.zeros(count, np.int64),
            np.empty(whole // 4 + _LEAST_ROOM, np.int64),
        )  # fmt: skip
        failure = np.array([0, 0, 0, 0, self.hint], np.int64)
        done = 0
        while True:
            at = int(said.ends[done - 1]) if done and not self.finding else 0
            done = self._run(values, said, done, at, failure)
            self.hint = int(failure[4])
            if done == count:
                return said
            code = int(failure[0])
            if code == codes.NO_ROOM and len(said.out) < _LARGEST:
                more = np.empty(2 * len(said.out) + int(failure[2]), np.uint8)
                more[: len(said.out)] = said.out
                said.out = more
            elif code == codes.NO_MARKS:
                said.marks = np.append(said.marks, np.empty(int(failure[2]) + len(said.marks), np.int64))
            elif code == codes.NO_OBJECTS and len(self.objects) < max(size, _LEAST_OBJECTS):
                self.objects = np.zeros((4 * len(self.objects), codes.OBJECT_PARTS), np.int64)
            else:
                raise self._error(values, done, said.out, failure)

    @property
    def copying(self) -> tuple[Positions, ...]:
        """What the kernels call `copying`."""
        places, parts = self.places, self.table.parts
        return (
            places.copies, places.new_ids, self.said, self.table.copied_kinds, parts.spans, parts.parts, parts.differs,
            parts.contexts, _NO_PARTS if places.with_map is None else places.with_map,
        )  # fmt: skip

    @property
    def looking(self) -> tuple[Any, ...]:
        """The tables by which a kernel looks for the ends of values of this serializer, see `entry_kernels.py`."""
        table, (_, new_ids, said, copied_kinds, *of_parts, _) = self.table, self.copying
        return table.tables, table.params, table.pool, new_ids, said, copied_kinds, *of_parts

    @property
    def work(self) -> tuple[Any, ...]:
        """What such a kernel works with, whatever the serializer."""
        places = self.places
        return (
            self.rows, self.known, places.children, places.kinships, places.nulls, places.cells, places.copies,
            _NO_PARTS, self.scratch, self.touched, self.stack, self.objects, self.state,
        )  # fmt: skip

    def more_room(self, data: Bytes, out: Bytes, failure: Positions) -> Bytes:
        """Makes room for more objects, or returns a larger `out`; raises an error if that isn't what is missing."""
        if failure[0] == codes.NO_ROOM and len(out) < _LARGEST:
            return np.empty(2 * len(out) + int(failure[2]), np.uint8)
        if failure[0] == codes.NO_OBJECTS and len(self.objects) < max(len(data), _LEAST_OBJECTS):
            self.objects = np.zeros((4 * len(self.objects), codes.OBJECT_PARTS), np.int64)
            return out
        raise self.error_of(data, failure)

    def error_of(self, data: Bytes, failure: Positions) -> StateferryError:
        """Makes an error of what a kernel reported of a single value; its offset is a position in `data`."""
        none = failure[:0]
        return self._error(Values(data, none, none, none, 0), 0, data[:0], failure)

    def find_ends(self, data: Bytes, starts: Positions, limits: Positions, *, five: bool, strict: bool) -> Positions:
        """Returns where each value ends, behind which there may be more; -1 if this Kryo didn't write it.

        If it is told what they are, values of other classes are -1, too. `strict` raises the reason for the last one.
        """
        table, places, failure = self.table, self.places, np.zeros(5, np.int64)
        ends, out, done = np.empty(len(starts), np.int64), np.empty(_LEAST_ROOM, np.uint8), 0
        marks = np.empty(0, np.int64)
        while True:
            done = kernels.find_ends(
                data, starts, limits, done, five, codes.LOOKING if self.finding else codes.HOLDING, table.tables,
                table.params, self.rows, table.pool, self.known, places.children, places.kinships, places.nulls,
                places.cells, self.copying, self.scratch, self.touched, self.stack, self.objects, out, ends, marks,
                self.state, failure,
            )  # fmt: skip
            if done == len(starts):
                break
            out = self.more_room(data, out, failure)
        if strict and done and ends[-1] < 0:
            raise self._error(Values(data, starts, starts, limits, 0), done - 1, out, failure)
        return ends

    def leave_maps_out(self, data: Bytes, starts: Positions, limits: Positions, by_5: Flags) -> tuple[Bytes, Positions]:
        """Returns the objects with null in the field of the map, and where each ends; `by_5` says which Kryo wrote it.

        Only objects whose maps were read can be given.
        """
        table, places, failure = self.table, self.places, np.zeros(5, np.int64)
        ends, marks, done = np.zeros(len(starts), np.int64), np.empty(0, np.int64), 0
        out = np.empty(int((limits - starts).sum()) + _LEAST_ROOM, np.uint8)
        self.state[codes.FIELD] = codes.LEFT_OUT
        try:
            while done < len(starts):
                at = int(ends[done - 1]) if done else 0
                done = kernels.leave_maps_out(
                    data, starts, limits, by_5, done, codes.HOLDING, table.tables, table.params, self.rows, table.pool,
                    self.known, places.children, places.kinships, places.nulls, places.cells, self.copying,
                    self.scratch, self.touched, self.stack, self.objects, out, at, ends, marks, self.state, failure,
                )  # fmt: skip
                if done < len(starts):
                    more = self.more_room(data, out, failure)
                    more[: len(out)] = out
                    out = more
        finally:
            self.state[codes.FIELD] = codes.TAKEN
        return out, ends

    def _run(self, values: Values, said: Said, first: int, at: int, failure: Positions) -> int:
        table, places = self.table, self.places
        done: int = kernels.read_maps(
            values.data, values.starts, values.heads, values.skipped, values.ends, first, int(failure[4]),
            table.tables, table.params, self.rows, table.pool, self.known,
            codes.COUNTING if self.finding else codes.HOLDING, places.children, places.kinships, places.nulls,
            places.cells, self.copying, self.flat, self.scratch, self.touched, self.stack, self.objects, said.out, at,
            said.ends, said.head_ends, said.found, said.counts, said.stops, said.marks, self.state, failure,
        )  # fmt: skip
        return done

    def _error(self, values: Values, index: int, out: Bytes, failure: Positions) -> StateferryError:
        """Makes an error of what the kernel reported of a value; its offset is a position in the values' bytes."""
        code, position, detail = (int(one) for one in failure[:3])
        why = self._refusal(code, detail, values.data)
        if why is not None:
            user_key = self._user_key(values, index, out, failure[:2].tolist())
            return RefusedValueError(why, position, user_key, code == codes.WRONG_CLASS and self._are_numbers(detail))
        expected, found = _DAMAGED[code]
        return DamagedError(expected, found.format(detail) + self._not_read(), offset=position)

    def _not_read(self) -> str:
        """Says whether Kryo 2 may have written more of one of the objects that were met than is read."""
        made, met = self.table.job.of_compiler, self.objects[: self.state[codes.OBJECTS], codes.OF_CLASS]
        for name in sorted(made.keys() & {self.table.names[row] for row in set(met.tolist())})[:1]:
            return f" (a compiler made the field {made[name]} of {name}, which isn't read: Kryo 2 {_WITH_SCALA})"
        return ""

    def _are_numbers(self, detail: int) -> bool:
        """Whether the class that was met and one that is allowed there are numbers with one wide enough for both."""
        met = self.table.names[detail & 0xFFFFFFFF]
        allowed = {self.table.names[row] for row in np.flatnonzero(self.places.cells[detail >> 32]).tolist()}
        families = [{f"java.lang.{one.label}" for one in (wide, *narrow)} for wide, narrow in WIDER_THAN.items()]
        return any(met in family and allowed & family for family in families)

    def _refusal(self, code: int, detail: int, data: Bytes) -> str | None:
        """Returns what can't be handled; None if the bytes are damaged."""
        if code == codes.FOREIGN_CLASS:
            name = self.foreign(detail, data)
            return f"{name} can't be read in a value that Kryo wrote{what_helps([name])}"
        if code == codes.WRONG_CLASS:
            node, row = detail >> 32, detail & 0xFFFFFFFF
            place, allowed = self.places.names()[node], np.flatnonzero(self.places.cells[node])
            names = [_simple(self.table.names[one]) for one in allowed.tolist() if one != codes.NULL]
            expected = names[0] if len(names) == 1 else f"one of {', '.join(names)}"
            return f"expected {expected} as {_a(place)}, found {_shown(self.table.names[row])}"
        if code == codes.WITHOUT_FIELD:
            return f"found an object of {self.table.names[detail]}, which hasn't the field that was told"
        if code == codes.OTHER_ROW:
            place, count = self.places.names()[detail >> 32], detail & 0xFFFFFFFF
            return f"expected another number of fields in the Row as {_a(place)}, found {count}"
        if code == codes.NOT_WRITTEN:
            name = _shown(self.table.names[detail])
            if (made := self.table.job.of_compiler.get(name)) is not None:
                return f"{name}: a compiler made its field {made}: Kryo 2 {_WITH_SCALA}"
            return f"{name}: the Kryo of the other Flink can't read such an object, or not as it was"
        if code == codes.NOT_DECLARED:
            return f"found {_shown(self.table.names[detail])} where --declared has another class"
        if code == codes.NULL_PART:
            return f"null as {_a(self.places.names()[detail])}, which Flink can't write"
        return _REFUSED.get(code)

    def _user_key(self, values: Values, index: int, out: Bytes, reported: list[int]) -> tuple[FlinkType, bytes] | None:
        """Reads the value again, and returns the key of the entry that was refused, if that was read."""
        if not isinstance(self.made, MapType) or not len(values.starts):
            return None
        table, places, failure = self.table, self.places, np.zeros(5, np.int64)
        marks = np.zeros(2 * int(values.ends[index] - values.starts[index]) + 2, np.int64)
        place, ends = values.heads[index : index + 1] + 4 + values.skipped, np.empty(1, np.int64)
        for five in (False, True):
            kernels.begin_reading(self.stack)
            kernels.find_ends(
                values.data, place, values.ends[index : index + 1], 0, five, codes.HOLDING, table.tables,
                table.params, self.rows, table.pool, self.known, places.children, places.kinships, places.nulls,
                places.cells, self.copying, self.scratch, self.touched, self.stack, self.objects, out, ends, marks,
                self.state, failure,
            )  # fmt: skip
            entries = kernels.entries_read(self.stack, self.state)
            if entries is not None and failure[:2].tolist() == reported:
                begin, end = marks[2 * entries : 2 * entries + 2].tolist()
                return self.made.key, out[begin:end].tobytes()
        return None

    def foreign(self, detail: int, data: Bytes) -> str:
        """Returns the class that stopped a reading, and why it did."""
        name = text_at(data, detail) if detail >= 0 else self.table.names[-1 - detail]
        own = None if detail >= 0 else self.table.own_serializers.get(name)
        reason = self.table.job.reasons.get(name) if own is None else f"with the job's serializer {own}"
        return name if reason is None else f"{name} ({reason})"


def _shown(name: str) -> str:
    """Returns `Integer`, and other classes with their package."""
    return name.removeprefix("java.lang.")


def _simple(name: str) -> str:
    """Returns `Long[]` for an array, and other classes without their package."""
    return f"{simple_name(name[2:-1])}[]" if name.startswith("[L") else simple_name(name)


def _a(place: str) -> str:
    return f"the {place}" if place in (ROOT, OBJECT) else f"the map's {place}"


_REFUSED = {
    codes.TOO_DEEP: f"objects nested more than {kernels.DEEPEST} deep",
    codes.TOO_LARGE: "one object stands so often in the map that its bytes grow beyond 64 times the value's own",
    codes.CYCLE: "an object contains itself",
    codes.AMBIGUOUS: "Kryo 2 and Kryo 5 could both have written this map, and mean different ones",
    codes.TOO_MANY_NAMES: f"more than {codes.MOST_NAMES} classes in one map",
    codes.TOO_MANY_NODES: "lists, maps or tuples nested in too many different ways",
    codes.TWO_CONTEXTS: "one collection stands at two places of the map, at one in a field with type arguments",
    codes.TYPE_ARGUMENTS: (
        "an object of a class with type parameters stands where it depends on the objects around it, or before it, "
        "which type arguments Kryo takes it to have"
    ),
    codes.READ_BEYOND: (
        "an object that ends with a short[], char[] or float[] of at most 6 bytes, behind which more is "
        "stored: Flink 2 reads beyond the array, and takes what follows for something else"
    ),
    codes.BOTH_SIDES: (
        f"an Either with objects of both sides, of which Flink's own serializer stores one: as Kryo<{EITHER}> it stays "
        "what it is"
    ),
    codes.NAMED_FIELDS: (
        f"a Row whose fields have names, which Flink's own serializer doesn't store: as Kryo<{ROW}> it stays what it is"
    ),
    codes.BAD_COMPARATOR: (
        "a sorted map or set, or a queue, with a comparator other than those of the JDK and objects of the job without "
        "fields that are no enums, or one of which the other Kryo doesn't write it"
    ),
    codes.NO_ROOM: "the maps of one section have more than 2 GiB in Flink's form",
}
_DAMAGED = {
    codes.TRUNCATED: ("more bytes of what Kryo wrote", "its end"),
    codes.BAD_VARINT: ("a number in no more bytes than it needs", "another"),
    codes.BAD_STRING: ("a String as Kryo writes it", "{}"),
    codes.BAD_COUNT: ("a number of elements that fits into the rest of the map", "{}"),
    codes.BAD_MARK: ("the mark of an object in what Kryo wrote", "{}"),
    codes.BAD_REFERENCE: ("a reference to an earlier object of the same class", "{}"),
    codes.LEFTOVER: ("the end of what Kryo wrote", "{} more bytes"),
    codes.BAD_CONTENT: ("an object as Kryo writes it", "{}"),
    codes.BAD_TAG: (
        "the number of a class that Kryo knows",
        "{} (with flink-scala on the job's class path, Kryo 2 has such numbers for Scala's classes, which aren't read)",
    ),
    codes.NO_OBJECTS: ("fewer objects than bytes", "more"),
}


@lru_cache(maxsize=64)
def kryo_reading(kryo: KryoType) -> MapReading:
    """Returns what finds the ends of values of this serializer."""
    table = class_table(kryo)
    return MapReading(table, places_to_find(table))


@lru_cache(maxsize=16)
def declared_reading(kryo: DeclaredKryoType) -> MapReading:
    """Returns what finds the ends of values of this serializer that are what they are declared as."""
    table = class_table(kryo)
    places = places_of(kryo.declared, table)
    # What stays Kryo's may have null anywhere.
    places.cells[:, codes.NULL] = 1
    return MapReading(table, places, kryo.declared)
