"""Compiled: the fields of Flink's tuples, which Kryo writes in the order of their names: f10 comes before f2.

Up to ten fields are in the order of their numbers. Flink's own serializer has that order always.
"""

from __future__ import annotations

import numpy as np

from flinkstate.basics.words import fail
from flinkstate.kryo.compiling import kernel
from flinkstate.kryo.kernel_codes import BEGIN, END, FIELDS_OF_TUPLES, NO_ROOM, OBJECTS, OF_NODE, SPARE
from flinkstate.kryo.primitives import copy_bytes

IN_ORDER = 10
# Line n has, of a tuple with n fields, their numbers in the order in which Kryo writes them.
FIELD_ORDER = np.array(
    [
        [*sorted(range(count), key=lambda number: f"f{number}"), *[0] * (FIELDS_OF_TUPLES - count)]
        for count in range(FIELDS_OF_TUPLES + 1)
    ]
)


@kernel
def put_in_order(places, shifts, count, out, at, room, first, objects, state, failure):  # type: ignore[no-untyped-def]
    """Puts the fields of a tuple into the order of their numbers. Returns 0, or a negative number on failure.

    They are in `out`, each from its place in `places` on, the last one up to `at`. Objects in them, which have the
    number `first` or a higher one, move with them.
    """
    begin = places[0]
    if 2 * at - begin + SPARE > room:
        return fail(failure, NO_ROOM, begin, at - begin)
    copy_bytes(out, begin, out, at, at - begin)
    to = begin
    for number in range(count):
        stored = np.int64(0)
        while FIELD_ORDER[count, stored] != number:
            stored += 1
        start = places[stored]
        end = places[stored + 1] if stored + 1 < count else at
        copy_bytes(out, at + start - begin, out, to, end - start)
        shifts[stored] = to - start
        to += end - start
    for number in range(first, state[OBJECTS]):
        if objects[number, OF_NODE] >= 0 and objects[number, BEGIN] >= begin:
            stored = count - 1
            while places[stored] > objects[number, BEGIN]:
                stored -= 1
            objects[number, BEGIN] += shifts[stored]
            objects[number, END] += shifts[stored]
    return np.int64(0)
