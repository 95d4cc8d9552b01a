"""What the Avro schema in a class file means for a header's. `tests/flink/test_new_classes.py` asks real Flink."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.classfiles.class_file import AVRO_RECORD, PUBLIC, STATIC, ClassFile, parse_class
from flinkstate.classfiles.job_classes import read_job_classes
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.avro import avro_type
from flinkstate.serializers.leaf_types import AvroOpaqueType
from flinkstate.serializers.types import AvroRecordType, FlinkType, ListType, MapType, Scalar
from stateferry.verdict import unknown
from stateferry.verdict.journey import Journey, Part, Place
from stateferry.verdict.judge import Asked, verdicts
from stateferry.verdict.new_classes import finding_of
from stateferry.verdict.outcomes import Finding, Outcome
from stateferry.verdict.versions import Line
from tests.classfiles.test_class_files import small_class
from tests.verdict.test_new_classes import ID, READING, class_of, field, job_of, old, outcome

ORDER, GENERIC = "com.acme.Order", "org.apache.avro.generic.GenericRecord"
N, S = {"name": "n", "type": "long"}, {"name": "s", "type": "string"}
AS_IS, RESTORES, WRONG, REFUSED, UNKNOWN = None, Outcome.RESTORES, Outcome.WRONG, Outcome.REFUSED, Outcome.UNKNOWN


def record(*fields: object, **more: object) -> dict[str, object]:
    return {"type": "record", "name": "Order", "namespace": "com.acme", **more, "fields": list(fields)}


def n(type_: object, **more: object) -> dict[str, object]:
    return {"name": "n", "type": type_, **more}


def enum(*symbols: str, **more: object) -> dict[str, object]:
    return {"type": "enum", "name": "Suit", "symbols": list(symbols), **more}


def fixed(size: int, name: str = "Hash") -> dict[str, object]:
    return {"type": "fixed", "name": name, "size": size}


def line(*fields: object, **more: object) -> dict[str, object]:
    return {"type": "record", "name": "Line", "fields": list(fields), **more}


def written(schema: object, java_class: str | None = ORDER) -> AvroRecordType:
    type_ = avro_type(schema)
    assert isinstance(type_, AvroRecordType)
    return replace(type_, java_class=java_class, schema=json.dumps(schema))


def compiled(schema: object, *others: str) -> ClassFile:
    """A class of Avro's compiler."""
    return replace(
        class_of(ORDER, extends=AVRO_RECORD), texts=("Bad index", json.dumps(schema, ensure_ascii=False), *others)
    )


def aliased(name: str, *aliases: str, **more: object) -> dict[str, object]:
    return {"name": name, "type": "long", "aliases": list(aliases), **more}


def nullable(name: str, *types: object) -> dict[str, object]:
    return {"name": name, "type": ["null", *types], "default": None}


ROW = line(S, aliases=["Line"]) | {"name": "Row"}
DATE = {"type": "int", "logicalType": "date"}
CASES = {
    "the same": (record(S, N), record(S, N), AS_IS),
    "written in another way": (record(S, n({"type": "long"})), record(S, n("long", order="ascending")), AS_IS),
    "description and aliases": (record(S, N), record(S, n("long", doc="x", aliases=["q"]), doc="y"), AS_IS),
    "a type by its name": (record(n(line(S)), {"name": "m", "type": "com.acme.Line"}),
                           record(n(line(S)), {"name": "m", "type": "Line"}), AS_IS),
    "long to int": (record(S, N), record(S, n("int")), REFUSED),
    "string to a record": (record(S), record({"name": "s", "type": line(N)}), REFUSED),
    "a new field without a default": (record(S), record(S, N), REFUSED),
    "a new field, its enum with a default": (record(S), record(S, n(enum("A", default="A"))), UNKNOWN),
    "an enum lacks a symbol": (record(n(enum("A", "B"))), record(n(enum("A"))), REFUSED),
    "an enum lacks a symbol, its field has a default": (record(n(enum("A", "B"))), record(n(enum("A"), default="A")),
                                                        REFUSED),
    "null is no more": (record(n(["null", "long"])), record(N), REFUSED),
    "a union lacks a type": (record(n(["null", "long"])), record(n(["null", "string"])), REFUSED),
    "a fixed type of another size": (record(n(fixed(2))), record(n(fixed(3))), REFUSED),
    "another name": (record(n(line(S))), record(n(line(S) | {"name": "Row"})), REFUSED),
    "an alias of a type": (record(n(line(S))), record(n(line(S, aliases=["Line"]) | {"name": "Row"})), UNKNOWN),
    "an alias of a field that is there": (record(N), record(N, aliased("m", "n")), UNKNOWN),
    "the same, with a default": (record(N), record(N, aliased("m", "n", default=0)), UNKNOWN),
    "an alias of two fields": (record(N), record(aliased("k", "n"), aliased("m", "n")), UNKNOWN),
    "an alias of an enum that is there": (record(n(enum("A"))),
                                          record(n(enum("A")), nullable("m", enum("A", aliases=["Suit"], name="Card"))),
                                          UNKNOWN),
    "an alias of a record that is there": (record(nullable("n", line(S))), record(nullable("n", line(S), ROW)),
                                           UNKNOWN),
    "another namespace": (record(n(line(S))), record(n(line(S, namespace="org.acme"))), UNKNOWN),
    "in a list": (record(n({"type": "array", "items": line(N)})),
                  record(n({"type": "array", "items": line(n("int"))})), REFUSED),
    "in a map": (record(n({"type": "map", "values": "long"})), record(n({"type": "map", "values": "int"})), REFUSED),
    "in a union": (record(n(["null", line(N)])), record(n(["null", line(n("int"))])), REFUSED),
    "int to long": (record(n("int")), record(N), RESTORES),
    "int to float": (record(n("int")), record(n("float")), WRONG),
    "long to double": (record(N), record(n("double")), WRONG),
    "string to bytes": (record(S), record({"name": "s", "type": "bytes"}), UNKNOWN),
    "a date to long": (record(n(DATE)), record(N), UNKNOWN),
    "another logical type": (record(N), record(n({"type": "long", "logicalType": "timestamp-millis"})), UNKNOWN),
    "a new field with a default": (record(S), record(S, n("long", default=0)), RESTORES),
    "a removed field": (record(S, N), record(S), RESTORES),
    "another order": (record(S, N), record(N, S), RESTORES),
    "a new name by an alias": (record(N), record({"name": "m", "type": "long", "aliases": ["n"]}), RESTORES),
    "two names by aliases": (record(N, S), record(n("long", aliases=["s"])), UNKNOWN),
    "a new name without an alias": (record(N), record({"name": "m", "type": "long", "default": 0}), WRONG),
    "another field, of a type that can't be it": (record(N), record({"name": "m", "type": "string", "default": ""}),
                                                  RESTORES),
    "an enum lacks a symbol, and has a default": (record(n(enum("A", "B"))), record(n(enum("A", default="A"))), WRONG),
    "an enum has another default": (record(n(enum("A"))), record(n(enum("A", default="A"))), AS_IS),
    "an enum in another order": (record(n(enum("A", "B"))), record(n(enum("B", "A"))), RESTORES),
    "may be null": (record(N), record(n(["null", "long"])), RESTORES),
    "may be null, and is wider": (record(n("int")), record(n(["null", "long"])), UNKNOWN),
    "a union in another order": (record(n(["null", "long"])), record(n(["long", "null"])), RESTORES),
    "a union of one type": (record(n(["int"])), record(N), UNKNOWN),
    "another default": (record(n("long", default=0)), record(n("long", default=1)), RESTORES),
    "Java's String": (record(S), record({"name": "s", "type": {"type": "string", "avro.java.string": "String"}}),
                      RESTORES),
}  # fmt: skip


def said(type_: FlinkType, *classes: ClassFile, place: Place = Place.VALUE) -> Finding | None:
    return finding_of(Part(place, type_), Journey(Line.TWO, Line.TWO), job_of(*classes))


@pytest.mark.parametrize("name", CASES)
def test_a_changed_schema(name: str) -> None:
    before, after, expected = CASES[name]
    assert outcome(written(before), compiled(after)) is expected
    assert outcome(ListType(written(before)), compiled(after)) is expected
    key = said(written(before), compiled(after), place=Place.KEY)
    assert (key and key.outcome) is (REFUSED if expected in (RESTORES, WRONG) else expected)


@pytest.mark.parametrize(("last", "expected"), [("double", REFUSED), ("long", RESTORES)])
def test_a_deep_schema_is_compared_once(last: str, expected: Outcome) -> None:
    def deep(type_: object) -> dict[str, object]:
        for number in range(30):
            type_ = ["null", {"type": "record", "name": f"R{number}", "fields": [n(type_)]}]
        return record(n(type_))

    old = "string" if expected is REFUSED else "int"
    assert outcome(written(deep(old)), compiled(deep(last))) is expected


def test_a_schema_that_is_not_known() -> None:
    """Where nothing could be compared, nobody says that the state restores."""
    before, same = written(record(N)), compiled(record(N))
    assert outcome(before) is UNKNOWN
    assert outcome(replace(before, java_class=None), same) is UNKNOWN
    for other in (
        replace(same, texts=()),
        replace(same, superclass="java.lang.Object"),
        replace(same, differs="another schema"),
        compiled(record(N), json.dumps(record(N))),
        compiled(record(N) | {"name": "Other"}),
        compiled(record(n("nowhere"))),
        compiled(record(N, doc="\ufffd")),
        compiled(record(N), *["{"] * 9),
    ):
        assert outcome(before, other) is UNKNOWN
    assert outcome(MapType(Scalar.STRING, avro_type({"type": "array", "items": "long"}))) is UNKNOWN


def test_a_generic_record_is_declared_as_before() -> None:
    assert outcome(written(record(N), GENERIC)) is None


def test_a_long_schema_is_in_several_strings() -> None:
    text = json.dumps(record(N))
    split = replace(compiled(record(N)), texts=("{", text[:9], text[9:40], text[40:], "Bad index"))
    assert outcome(written(record(N)), split) is None
    assert outcome(written(record(n("int"))), split) is RESTORES


def test_a_schema_that_contains_itself() -> None:
    tree = record(n(["null", "Order"]))
    type_ = AvroOpaqueType(ORDER, "it contains itself", json.dumps(tree))
    assert unknown.finding_of(Part(Place.VALUE, type_)) is None
    assert outcome(type_, compiled(tree)) is None
    assert outcome(type_, compiled(record(n(["null", "Order"]), n("long", default=0)))) is UNKNOWN
    assert outcome(type_) is UNKNOWN
    assert outcome(replace(type_, class_name=GENERIC)) is None


def test_a_removed_field_needs_the_class_of_avro_alone() -> None:
    """Flink reads Avro's header without the classes of the enums in its schema."""
    gone = old(("id", Scalar.LONG, READING), ("order", written(record(n(enum("A")))), READING))
    assert outcome(gone, class_of(READING, ID)) is UNKNOWN
    suit = class_of("com.acme.Suit", access=PUBLIC | STATIC)
    assert outcome(gone, class_of(READING, ID), compiled(record()), suit) is RESTORES
    generic = old(("id", Scalar.LONG, READING), ("order", written(record(n(enum("A"))), GENERIC), READING))
    assert outcome(generic, class_of(READING, ID)) is RESTORES


@pytest.mark.parametrize(
    ("java_class", "now", "expected"),
    [
        (GENERIC, GENERIC, None),
        (GENERIC, "com.acme.Order", REFUSED),
        ("com.acme.Outer$Order", "com.acme.Outer$Order", UNKNOWN),
        (None, "com.acme.Shaded", UNKNOWN),
    ],
)
def test_a_field_is_of_the_class_that_the_header_says(java_class: str | None, now: str, expected: object) -> None:
    type_ = old(("order", written(record(N), java_class), READING))
    assert outcome(type_, class_of(READING, field("order", f"L{now.replace('.', '/')};"))) is expected


def test_strings_are_read_of_classes_by_avro_alone() -> None:
    def with_text(superclass: str) -> bytes:
        text = b"\1\0\2ab" + b"\10\0\5"
        made = small_class("com/acme/Order", superclass)
        at = len(made) - 14
        return made[:8] + b"\0\7" + made[10:at] + text + made[at:]

    assert parse_class(with_text(AVRO_RECORD.replace(".", "/")), "x").texts == ("ab",)
    assert parse_class(with_text("java/lang/Object"), "x").texts == ()


def test_two_jars_with_different_schemas_of_a_class(tmp_path: Path) -> None:
    for folder, letter in (("one", b"a"), ("two", b"b")):
        (tmp_path / folder).mkdir()
        made = small_class("com/acme/Order", AVRO_RECORD.replace(".", "/"))
        at = len(made) - 14
        raw = made[:8] + b"\0\7" + made[10:at] + b"\1\0\1" + letter + b"\10\0\5" + made[at:]
        (tmp_path / folder / "Order.class").write_bytes(raw)
    places = [str(tmp_path / name) for name in ("one", "two")]
    assert read_job_classes(places).classes[ORDER].differs
    assert not read_job_classes(places[:1]).classes[ORDER].differs


def test_the_golden_savepoint_says_its_classes() -> None:
    savepoint = Savepoint.open(str(Path(__file__).parents[1] / "savepoints" / "avro-2.3-rocksdb"))
    asked = Asked(Line.TWO, new_job=job_of())
    found = {one.state: one.finding.outcome for one in verdicts(savepoint, asked)}
    assert found["value-0-AvroOrder"] is RESTORES
    assert found["value-1-AvroReading"] is UNKNOWN
