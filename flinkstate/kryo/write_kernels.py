"""The compiled writing of maps as Kryo does, from rows of a MapState: see `flinkstate/kryo/kernels.py` for the layout.

Every object is written as a new one: Kryo reads that as well as references to equal objects.
"""

from __future__ import annotations

import numpy as np

from flinkstate.basics.words import put32, put64, put_varint
from flinkstate.kryo.compiling import kernel
from flinkstate.kryo.primitives import copy_bytes
from flinkstate.kryo.scalars import put_object

# The most bytes that an object takes more than twice its bytes in Flink.
MORE = 16
# Of a map: key group, lengths, timestamp, count.
MORE_OF_MAP = 32


@kernel
def write_maps(  # type: ignore[no-untyped-def]
    data, key_starts, key_ends, user_ends, ends, nulls, order, counts, targets, stamps, prefix, stamped, head, five,
    key_kind, value_kind, out, ends_of_maps,
):  # fmt: skip
    """Writes rows of a map state as maps by Kryo; a map's rows follow each other in `order`, `counts` says how many.

    A map is i32, key group, key, i32, [timestamp], `head` (class tag and mark), count, and for each row key and value.
    This fills where each map ends. Returns -1, or a row whose user key or value isn't of its kind.
    """
    position = np.int64(0)
    turn = np.int64(0)
    for one in range(len(counts)):
        first = order[turn]
        size = key_ends[first] - key_starts[first]
        put32(out, position, prefix + size)
        position += 4
        if prefix == 2:
            out[position] = np.uint8(targets[one] >> 8 & 0xFF)
            position += 1
        out[position] = np.uint8(targets[one] & 0xFF)
        copy_bytes(data, key_starts[first], out, position + 1, size)
        begin = position + 1 + size
        position = begin + 4
        if stamped:
            put64(out, position, stamps[one])
            position += 8
        copy_bytes(head, 0, out, position, len(head))
        position = put_varint(out, position + len(head), counts[one] + (1 if five else 0))
        for _ in range(counts[one]):
            row = order[turn]
            turn += 1
            at = put_object(key_kind, data, key_ends[row], user_ends[row], five, out, position)
            if at < 0:
                return row
            if nulls[row]:
                out[at] = 0
                position = at + 1
                continue
            # Between them are an i32, the null flag and the timestamp.
            start = user_ends[row] + (13 if stamped else 5)
            position = put_object(value_kind, data, start, ends[row], five, out, at)
            if position < 0:
                return row
        put32(out, begin, position - begin - 4)
        ends_of_maps[one] = position
    return np.int64(-1)
