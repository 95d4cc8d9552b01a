"""Objects in fields with type arguments of classes that aren't collections, as both Kryos wrote them.

`KryoTypeArguments.java` has the classes; `test_to_other_kryo.py` and `test_kept.py` hold what becomes of the objects
against what Flink itself writes.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest

from flinkstate.classfiles.signatures import JavaType
from flinkstate.classfiles.type_arguments import typed_fields
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.serializers.types import KryoType
from flinkstate.values.kryo_values import read_kryo_part
from tests.kryo.examples import by_compiled_code, by_plain_code
from tests.kryo.kept import FOLDER, VERSIONS, classes, kept
from tests.kryo.test_to_other_kryo import back, pairs, recoded


def written(name: str, version: str) -> bytes:
    """Returns what Flink wrote, also if it can't read it."""
    raw = gzip.decompress((FOLDER / f"kept-{version}.jsonl.gz").read_bytes())
    lines = map(json.loads, raw.splitlines())
    return next(bytes.fromhex(line["bytes"]) for line in lines if line["name"] == name)


def read(kryo: KryoType, data: bytes, *, five: bool) -> str | None:
    """Returns what plain code reads; None if it can't."""
    try:
        found, end = read_kryo_part(kryo, data, 0, len(data), five=five)
    except RefusedError:
        return None
    assert end == len(data)
    return repr(found)


def test_plain_code_reads_the_same_of_both() -> None:
    some = {name: one for name, one in pairs().items() if name.startswith(("type arguments", "subclasses"))}
    by_2 = {name: read(kryo, two, five=False) for name, (kryo, two, _) in some.items()}
    by_5 = {name: read(kryo, five, five=True) for name, (kryo, _, five) in some.items()}
    both = [name for name, found in by_2.items() if found is not None and by_5[name] is not None]
    assert {name: by_2[name] for name in both} == {name: by_5[name] for name in both}
    assert len(both) > 20


def test_what_kryo_2_makes_of_a_final_class_for_a_type_variable_is_not_known() -> None:
    """It takes what is in a `Fixed` of a `Box<Fixed<Long>>` for a `Fixed` as well, and writes what is in the memory."""
    name = "stateferry.kryo.KryoTypeArguments$Fixed"
    for argument, is_known_by_2 in ((name, False), ("java.lang.Long", True)):
        by_2, by_5 = (typed_fields(name, classes(), (JavaType(argument),), five=five) for five in (False, True))
        assert (by_2 is not None) == is_known_by_2
        assert by_5 is not None


def test_a_class_inside_of_a_class_with_type_arguments_is_refused() -> None:
    """Kryo 5 fails to write and to read the field, an `Outer<T>.Inner`: `Index -1 out of bounds for length 0`."""
    name = "type arguments: a class inside of a class"
    one = kept("1.20.0")[name]
    assert name not in kept("2.3.0")
    with pytest.raises(RefusedError, match=r"Outer.*its field inner.*a class inside of a class with type arguments"):
        recoded(replace(one.kryo, five=False), one.written)
    assert read(one.kryo, one.written, five=False) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_known_of_type_arguments_is_not_called_damage(version: str) -> None:
    """Also where the other Kryo's reading fails farther behind."""
    some = [one for one in kept(version).values() if one.name.startswith(("type arguments", "subclasses"))]
    made = [by(one.kryo, one.map, one.written) for one in some for by in (by_compiled_code, by_plain_code)]
    assert [one for one in made if isinstance(one, DamagedError)] == []
    assert sum(isinstance(one, RefusedError) for one in made) > 5


def test_more_than_kryo_5_has_room_for_is_refused() -> None:
    """It fails at a tuple of twelve with type arguments, unless it has met others inside of others before."""
    one = kept("1.20.0")["type arguments: a large tuple"]
    with pytest.raises(RefusedError, match="a class with type parameters"):
        recoded(replace(one.kryo, five=False), one.written)


def test_what_kryo_5_does_not_write_is_refused() -> None:
    """It goes by the type arguments, whatever is there."""
    one = kept("1.20.0")["type arguments: an Integer that is declared as Long"]
    with pytest.raises(RefusedError, match=r"Integer: the Kryo of the other Flink can't read such an object"):
        recoded(replace(one.kryo, five=False), one.written)


def test_what_kryo_2_wrote_with_the_type_arguments_of_another_object_is_refused() -> None:
    """Behind a tuple in a field it leaves out the tags of tuples in a list, and reads them as if they were there."""
    name = "type arguments: a list behind a field"
    assert name not in kept("1.20.0")
    five = kept("2.3.0")[name]
    for kryo, value in ((replace(five.kryo, five=False), written(name, "1.20.0")), (back(five.kryo), five.written)):
        with pytest.raises(RefusedError, match="a class with type parameters"):
            recoded(kryo, value)
