"""Decodes many values of one type into one Arrow array, by recursion over the type and never over the values.

Each step gets where its values begin and the limits that they may not cross, and returns where they end: the next field
begins there. `walker.py` finds where the elements of lists and maps begin, unless all have the same size. Values that
may be null are decoded where they are present and then put into their places.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flinkstate.basics.array_types import Bytes, Flags, Positions, read_only
from flinkstate.columns.arrays import (
    Column,
    list_array,
    narrow,
    running_sum,
    spread,
    struct_array,
)
from flinkstate.columns.arrow_types import CLASS, ROW_KINDS, arrow_type, known_subclasses, pojo_fields, subclass_field
from flinkstate.columns.reads import UnfitError, damaged_where, read_flags, read_numbers, read_offsets
from flinkstate.columns.scalar_columns import block_column, blocks_array, fixed_column, scalar_column
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.serializers import walker
from flinkstate.serializers.binary import encode_modified_utf8
from flinkstate.serializers.programs import least_item_size, least_size
from flinkstate.serializers.type_parts import fixed_length
from flinkstate.serializers.types import (
    FLINK_EITHER,
    AvroArrayType,
    AvroFixedType,
    AvroMapType,
    AvroRecordType,
    AvroUnionType,
    CountedType,
    EitherType,
    EnumType,
    FlinkType,
    MapType,
    NullableType,
    OpaqueType,
    OptionType,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    TimerType,
    TtlType,
    TupleType,
    type_name,
)

__all__ = ["arrow_type", "decode", "decode_list_state"]

# The count of elements without bytes can't be checked against the bytes that follow.
_MOST_EMPTY_ELEMENTS = 1_000_000
# Types whose values are present and yet null in Arrow.
_SILENT = (
    *(Scalar.NULL_VALUE, Scalar.VOID_NAMESPACE, Scalar.GLOBAL_WINDOW, Scalar.TUPLE0),
    *(Scalar.UNIT, Scalar.AVRO_NULL),
)
_NULL, _OWN, _NAMED, _TAGGED = 1, 2, 4, 8


def decode(type_: FlinkType, data: Bytes, starts: Positions, ends: Positions) -> Column:
    """Decodes the values that begin at `data[starts[i]]`. Returns them and where each ends, at `ends[i]` or before.

    `data` may be read-only. A value that contradicts its format raises `DamagedError`, whose offset is its place in
    `data`. A value that Arrow can't hold raises `RefusedError`.
    """
    decoder, starts, ends = _prepare(data, starts, ends)
    return decoder.column(type_, starts, ends)


def decode_list_state(element: FlinkType, data: Bytes, starts: Positions, ends: Positions) -> pa.Array:
    """Decodes values of a ListState as lists. Their elements have delimiters between them and no count."""
    decoder, starts, ends = _prepare(data, starts, ends)
    elements = walker.walk_list_state(element, decoder.source, starts, ends)
    values, _ = decoder.column(element, elements.starts, np.repeat(ends, elements.counts))
    return list_array(running_sum(elements.counts), values)


def _prepare(data: Bytes, starts: Positions, ends: Positions) -> tuple[_Decoder, Positions, Positions]:
    starts, ends = (np.require(positions, np.int64, ["C", "W"]) for positions in (starts, ends))
    if len(starts) != len(ends) or (
        len(starts) and (starts.min() < 0 or ends.max() > len(data) or (starts > ends).any())
    ):
        raise ValueError(f"starts and ends don't lie within {len(data)} bytes in order")
    return _Decoder(data), starts, ends


class _Decoder:
    """Decodes columns of one buffer; each method returns the values of a type, and where they end."""

    def __init__(self, data: Bytes) -> None:
        self.source = np.require(data, np.uint8, ["C"])
        # numba compiles a version of its own for read-only arrays; all columns are read from such, so one is enough.
        self.data = read_only(self.source)

    def column(self, type_: FlinkType, starts: Positions, limits: Positions) -> Column:
        match type_:
            case Scalar():
                return scalar_column(type_, self.data, starts, limits)
            case PrimitiveArrayType(Scalar.BYTE):
                return block_column(type_, self.data, starts, limits)
            case CountedType():
                return self.lists(type_, starts, limits)
            case MapType():
                return self.maps(type_, starts, limits)
            case TimerType():
                return self.timers(type_, starts, limits)
            case TupleType() | AvroRecordType() | TtlType():
                return self.structs(type_, starts, limits)
            case RowType():
                return self.rows(type_, starts, limits)
            case PojoType():
                return self.pojos(type_, starts, limits)
            case NullableType():
                return self.nullables(type_, starts, limits)
            case EitherType():
                return self.eithers(type_, starts, limits)
            case OptionType(value):
                present = read_flags(type_, self.data, starts, limits)
                return self.optional(value, starts + 1, limits, present, or_null=True)
            case EnumType():
                return self.enums(type_, starts, limits), starts + 4
            case AvroFixedType(_, size):
                return fixed_column(type_, size, self.data, starts, limits)
            case AvroArrayType() | AvroMapType():
                return self.blocks(type_, starts, limits)
            case AvroUnionType():
                return self.unions(type_, starts, limits)
            case OpaqueType(class_name, reason):
                raise RefusedError(
                    f"{class_name} is {reason}: its values have no columns; read the state with raw=true"
                )

    def structs(self, type_: TupleType | AvroRecordType | TtlType, starts: Positions, limits: Positions) -> Column:
        children, position = [], starts
        for _, part in type_.parts:
            child, position = self.column(part, position, limits)
            children.append(child)
        return struct_array(arrow_type(type_), children, len(starts)), position

    def timers(self, type_: TimerType, starts: Positions, limits: Positions) -> Column:
        # Flink flips the sign bit of a timer's timestamp, so that timers are sorted like their bytes.
        flipped = read_numbers(type_, self.data, starts, limits, np.int64) ^ np.int64(-(2**63))
        key, position = self.column(type_.key, starts + 8, limits)
        namespace, position = self.column(type_.namespace, position, limits)
        return struct_array(arrow_type(type_), [pa.array(flipped), key, namespace], len(starts)), position

    def enums(self, type_: EnumType, starts: Positions, limits: Positions) -> pa.Array:
        numbers = read_numbers(type_, self.data, starts, limits, np.int32)
        known = np.array(list(type_.name_of), np.int64)
        order = np.argsort(known)
        places = np.searchsorted(known, numbers, sorter=order)
        found = np.append(known[order], 2**63 - 1)[places] == numbers
        damaged_where(~found, starts, f"the number of one of {len(known)} constants of {type_name(type_)}", numbers)
        return pa.array(type_.names, pa.string()).take(pa.array(order[places]))

    def optional(
        self, type_: FlinkType, starts: Positions, limits: Positions, present: Flags, *, or_null: bool = False
    ) -> Column:
        """Decodes values where `present`; elsewhere they are null and end where they start.

        A null that is marked as present is damage unless `or_null`: Flink marks a null and writes no bytes for it.
        """
        if present.all():
            array, stops = self.column(type_, starts, limits)
            if not or_null:
                _refuse_nulls(type_, array, starts)
            return array, stops
        rows = np.flatnonzero(present)
        array, inner_stops = self.column(type_, starts[rows], limits[rows])
        if not or_null:
            _refuse_nulls(type_, array, starts[rows])
        stops = starts.copy()
        stops[rows] = inner_stops
        return spread(array, [rows], len(starts)), stops

    def nullables(self, type_: NullableType, starts: Positions, limits: Positions) -> Column:
        is_null = read_flags(type_, self.data, starts, limits)
        array, stops = self.optional(type_.value, starts + 1, limits, ~is_null)
        if not is_null.any():
            return array, stops
        nulls = np.flatnonzero(is_null)
        for at in range(1, type_.padding + 1):
            padding = read_numbers(type_, self.data, starts[nulls] + at, limits[nulls], np.uint8)
            damaged_where(padding != 0, starts[nulls] + at, f"zeros behind a null {type_name(type_)}", padding)
        return array, stops + np.where(is_null, type_.padding, 0)

    def eithers(self, type_: EitherType, starts: Positions, limits: Positions) -> Column:
        tags = read_numbers(type_, self.data, starts, limits, np.uint8)
        is_left = tags == 1
        first, last = sorted((1, type_.right_tag))
        wrong = ~is_left & (tags != type_.right_tag)
        damaged_where(wrong, starts, f"a byte {first} or {last} in {type_name(type_)}", tags)
        # Only Flink's own holds no null.
        or_null = type_.class_name != FLINK_EITHER
        left, left_stops = self.optional(type_.left, starts + 1, limits, is_left, or_null=or_null)
        right, right_stops = self.optional(type_.right, starts + 1, limits, ~is_left, or_null=or_null)
        return struct_array(arrow_type(type_), [left, right], len(starts)), np.where(is_left, left_stops, right_stops)

    def rows(self, type_: RowType, starts: Positions, limits: Positions) -> Column:
        kind_bits = 2 if type_.has_kind else 0
        bits = kind_bits + len(type_.fields)
        masks = [read_numbers(type_, self.data, starts + at, limits, np.uint8) for at in range((bits + 7) // 8)]
        if bits % 8:
            damaged_where(
                masks[-1] << (bits % 8) & 0xFF != 0,
                starts,
                f"no bit behind the {bits} of {type_name(type_)}",
                masks[-1],
            )
        children, position = [], starts + len(masks)
        for bit, field in enumerate(type_.fields, kind_bits):
            present = masks[bit // 8] >> (7 - bit % 8) & 1 == 0
            child, position = self.optional(field, position, limits, present)
            children.append(child)
        if type_.has_kind:
            kinds = (masks[0] >> 7 | masks[0] >> 5 & 2).astype(np.int32)
            children.append(pa.array(ROW_KINDS).take(pa.array(kinds)))
        return struct_array(arrow_type(type_), children, len(starts)), position

    def unions(self, type_: AvroUnionType, starts: Positions, limits: Positions) -> Column:
        branches = read_numbers(type_, self.data, starts, limits, np.int32)
        most = len(type_.branches)
        damaged_where(
            (branches < 0) | (branches >= most), starts, f"a branch below {most} of {type_name(type_)}", branches
        )
        stops, children = starts + 4, []
        for number, branch in enumerate(type_.branches):
            if branch.type is Scalar.AVRO_NULL:
                continue
            of_branch = branches == number
            values, ends = self.optional(branch.type, starts + 4, limits, of_branch, or_null=True)
            stops = np.where(of_branch, ends, stops)
            children.append(values)
        if type_.nullable is not None:
            return children[0], stops
        if not children:
            return pa.nulls(len(starts), pa.bool_()), stops
        filled = np.array([branch.type is not Scalar.AVRO_NULL for branch in type_.branches])
        return struct_array(arrow_type(type_), children, len(starts), filled[branches]), stops

    def blocks(self, type_: AvroArrayType | AvroMapType, starts: Positions, limits: Positions) -> Column:
        if least_item_size(type_) == 0 and len(starts):
            raise RefusedError(f"elements without bytes in {type_name(type_)}: they have no columns; use raw=true")
        found = walker.walk_blocks(type_, self.source, starts, limits)
        firsts, values = (np.ascontiguousarray(positions) for positions in (found.starts, found.values))
        inner_limits = np.repeat(found.stops, found.counts)
        offsets = running_sum(found.counts)
        if isinstance(type_, AvroArrayType):
            return list_array(offsets, self.column(type_.element, firsts, inner_limits)[0]), found.stops
        keys, _ = self.column(Scalar.AVRO_STRING, firsts, inner_limits)
        items, _ = self.column(type_.value, values, inner_limits)
        return pa.MapArray.from_arrays(pa.array(narrow(offsets)), keys, items), found.stops

    def lists(self, type_: CountedType, starts: Positions, limits: Positions) -> Column:
        size = least_size(type_.element)
        of_one_size = size in (0, fixed_length(type_.element)) and type_.flag is None
        if not of_one_size:
            elements = walker.walk_elements(type_, self.source, starts, limits)
            firsts, present, stops = elements.starts, elements.present, elements.stops
            offsets = running_sum(elements.counts)
        else:
            offsets = read_offsets(type_, self.data, starts, limits, size)
            if size == 0 and offsets[-1] > _MOST_EMPTY_ELEMENTS:
                raise RefusedError(f"{offsets[-1]} elements without bytes in {type_name(type_)}; read it with raw=true")
            counts = np.diff(offsets)
            firsts = np.arange(offsets[-1]) * size + np.repeat(starts + 4 - offsets[:-1] * size, counts)
            present, stops = None, starts + 4 + counts * size
        inner_limits = np.repeat(limits, np.diff(offsets))
        if present is None:
            values, _ = self.column(type_.element, firsts, inner_limits)
        else:
            values, _ = self.optional(type_.element, firsts, inner_limits, present)
        return list_array(offsets, values), stops

    def maps(self, type_: MapType, starts: Positions, limits: Positions) -> Column:
        entries = walker.walk_entries(type_, self.source, starts, limits)
        firsts, key_ends = (np.ascontiguousarray(positions) for positions in (entries.starts, entries.key_ends))
        keys, _ = self.column(type_.key, firsts, key_ends)
        if keys.null_count:
            places = firsts[keys.is_null().to_numpy(zero_copy_only=False)]
            what = f"a null key in {type_name(type_)}, which Arrow can't hold; read it with raw=true"
            raise UnfitError(f"offset {places[0]}: {what}", places)
        is_null = read_flags(type_, self.data, key_ends, entries.ends)
        values, _ = self.optional(type_.value, key_ends + 1, entries.ends, ~is_null)
        offsets = pa.array(narrow(running_sum(entries.counts)))
        return pa.MapArray.from_arrays(offsets, keys, values), entries.stops

    def pojos(self, type_: PojoType, starts: Positions, limits: Positions) -> Column:
        flags = read_numbers(type_, self.data, starts, limits, np.uint8)
        known = np.isin(flags, (_NULL, _OWN, _NAMED, _TAGGED))
        damaged_where(~known, starts, f"a POJO flag 1, 2, 4 or 8 in {type_name(type_)}", flags)
        stops, own = starts + 1, np.flatnonzero(flags == _OWN)
        children, stops[own] = self.own_fields(type_, starts[own] + 1, limits[own])
        groups = [(own, children)]
        for subclass, rows, firsts in self.subclass_values(type_, flags, starts, limits):
            values, stops[rows] = self.column(subclass, firsts, limits[rows])
            _refuse_nulls(subclass, values, firsts)
            groups.append((rows, _subclass_children(type_, subclass, values)))
        fields = pojo_fields(type_)
        order = [rows for rows, _ in groups]
        merged = []
        for field in fields:
            parts = [children.get(field.name, pa.nulls(len(rows), field.type)) for rows, children in groups]
            merged.append(spread(parts[0] if len(parts) == 1 else pa.concat_arrays(parts), order, len(starts)))
        return struct_array(pa.struct(fields), merged, len(starts), flags != _NULL), stops

    def own_fields(
        self, type_: PojoType, position: Positions, limits: Positions
    ) -> tuple[dict[str, pa.Array], Positions]:
        children: dict[str, pa.Array] = {}
        for field in type_.fields:
            is_null = read_flags(type_, self.data, position, limits)
            children[field.name], position = self.optional(field.type, position + 1, limits, ~is_null)
        if known_subclasses(type_):
            children[CLASS] = pa.repeat(type_.class_name, len(position))
        return children, position

    def subclass_values(
        self, type_: PojoType, flags: npt.NDArray[np.uint8], starts: Positions, limits: Positions
    ) -> Iterator[tuple[PojoType, Positions, Positions]]:
        """Yields for each subclass that occurs: which rows are of it, and where their own values begin."""
        tagged = np.flatnonzero(flags == _TAGGED)
        tags = read_numbers(type_, self.data, starts[tagged] + 1, limits[tagged], np.uint8)
        most = len(type_.registered_subclasses)
        damaged_where(
            tags >= most, starts[tagged], f"a tag of the {most} registered subclasses of {type_.class_name}", tags
        )
        for tag in np.unique(tags).tolist():
            rows = tagged[tags == tag]
            yield _pojo(type_.registered_subclasses[tag], type_, starts[rows]), rows, starts[rows] + 2
        named = np.flatnonzero(flags == _NAMED)
        lengths = read_numbers(type_, self.data, starts[named] + 1, limits[named], np.uint16).astype(np.int64)
        firsts = starts[named] + 3
        damaged_where(firsts + lengths > limits[named], starts[named], "a subclass's name that fits", lengths)
        names = blocks_array(self.data, firsts, firsts + lengths).dictionary_encode()
        subclasses = {encode_modified_utf8(name): subclass for name, subclass in type_.other_subclasses}
        for code, name in enumerate(names.dictionary.to_pylist()):
            same = names.indices.to_numpy() == code
            places = starts[named[same]]
            if name not in subclasses:
                raise UnfitError(
                    f"a value of {type_.class_name} is of the subclass {name.decode('utf-8', 'replace')}, "
                    "which the savepoint doesn't describe",
                    places,
                )
            yield _pojo(subclasses[name], type_, places), named[same], (firsts + lengths)[same]


def _pojo(subclass: FlinkType, base: PojoType, places: Positions) -> PojoType:
    if subclass not in known_subclasses(base):
        raise UnfitError(
            f"a value of {base.class_name} is of {type_name(subclass)}, which has no columns; read it with raw=true",
            places,
        )
    assert isinstance(subclass, PojoType)
    return subclass


def _refuse_nulls(type_: FlinkType, array: pa.Array, starts: Positions) -> None:
    inner = type_
    while isinstance(inner, NullableType):
        inner = inner.value
    if array.null_count and inner not in _SILENT and not isinstance(inner, OptionType | AvroUnionType):
        place = int(starts[int(array.is_null().index(True).as_py())])
        raise DamagedError(
            f"a {type_name(type_)}, because the flag before it says that there is one", "null", offset=place
        )


def _subclass_children(base: PojoType, subclass: PojoType, values: pa.StructArray) -> dict[str, pa.Array]:
    types = {field.name: field.type for field in pojo_fields(base)}
    children = {CLASS: pa.repeat(subclass.class_name, len(values))}
    for index, field in enumerate(values.type):
        children[subclass_field(subclass, field, types.get(field.name))] = values.field(index)
    return children
