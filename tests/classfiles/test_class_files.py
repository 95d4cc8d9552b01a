"""Class files are read as javac writes them; damaged ones and those made to do harm are refused."""

from __future__ import annotations

import contextlib
import pickle
import random
import shutil
import struct
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.classfiles import job_classes as limits
from flinkstate.classfiles.class_file import ABSTRACT, ENUM, INTERFACE, PUBLIC, STATIC, ClassFile, Member, parse_class
from flinkstate.classfiles.constructors import may_lack_fields
from flinkstate.classfiles.job_classes import JobClasses, is_of_others, read_job_classes
from flinkstate.classfiles.signatures import JavaType, parse_type
from flinkstate.errors import DamagedError, RefusedError, UsageError
from flinkstate.kryo import kernel_codes as codes
from flinkstate.kryo.job_parts import JobPart, job_table
from flinkstate.serializers.types import KryoRegistration, KryoType
from flinkstate.values.kryo_jobs import collection_of, enum_of, kryo_fields
from flinkstate.values.kryo_values import read_kryo
from tests.kryo.kept import FOLDER, classes

JAR = FOLDER / "kept-classes.jar"
THINGS = "stateferry.kryo.KryoThings$"


def class_files() -> dict[str, bytes]:
    with zipfile.ZipFile(JAR) as jar:
        return {name: jar.read(name) for name in jar.namelist()}


def small_class(name: str, superclass: str) -> bytes:
    """A class without fields."""

    def text(value: str) -> bytes:
        return struct.pack(">BH", 1, len(value)) + value.encode()

    pool = text(name) + b"\7\0\1" + text(superclass) + b"\7\0\3"
    return struct.pack(">IIH", 0xCAFEBABE, 61, 5) + pool + struct.pack(">HHHHHHH", 0x21, 2, 4, 0, 0, 0, 0)


def test_fields_are_those_of_the_source() -> None:
    special = classes().classes[f"{THINGS}Special"]
    assert special.superclass == f"{THINGS}Thing"
    assert [field.name for field in special.fields] == ["zone", "a", "b", "s", "c", "flag", "f", "id"]
    lists = {field.name: field.signature for field in classes().classes[f"{THINGS}Lists"].fields}
    assert lists["nested"] == "Ljava/util/Map<Ljava/lang/Long;Ljava/util/List<Ljava/lang/String;>;>;"
    assert lists["raw"] is None


def test_types_have_names_and_arguments() -> None:
    strings = JavaType("java.util.List", (JavaType("java.lang.String"),))
    assert parse_type("Ljava/util/List<Ljava/lang/String;>;") == strings
    assert parse_type("[[J") == JavaType("[[J")
    assert parse_type("[Ljava/lang/Long;") == JavaType("[Ljava.lang.Long;")
    assert parse_type("Lcom/acme/Outer<TK;>.Inner;").name == "com.acme.Outer$Inner"
    assert parse_type("Ljava/util/List<+Ljava/lang/Number;>;").has_open_parts
    assert parse_type("Ljava/util/List<TT;>;").has_open_parts
    for wrong in ("", "Ljava/util/List", "Q", "II", "Ljava/util/List<Ljava/lang/String;;", "[", "[" * 1000 + "J"):
        with pytest.raises(ValueError, match="not a type"):
            parse_type(wrong)


# Classes with a superclass, and whether what is in the box has a class tag in both Kryos.
_BOXES = {
    "Of what it is put into": ("Box", "LBox<Lcom/acme/Event;>;", True),
    "Of lists": ("Box", "LBox<Ljava/util/List<Ljava/lang/Long;>;>;", True),
    "Raw": ("Box", None, True),
    "With its own parameter": ("Box", "<X:Ljava/lang/Object;>LBox<TX;>;", True),
    "Of longs": ("Box", "LBox<Ljava/lang/Long;>;", False),
    "Of what isn't in the jars": ("Box", "LBox<Lorg/other/Thing;>;", False),
    "Of arrays": ("Box", "LBox<[Ljava/util/List<Ljava/lang/Long;>;>;", False),
    "Below one without": ("Raw", None, True),
    "Below a parameter": ("With its own parameter", "LOther<Ljava/lang/String;>;", False),
    "Raw, of the same name": ("Box", "<T:Ljava/lang/Object;>LBox;", True),
    "Below one of the same name": ("Raw, of the same name", "LOther<Ljava/lang/String;>;", False),
}


@pytest.mark.parametrize("name", _BOXES)
def test_a_type_variable_of_a_superclass_is_what_a_class_makes_of_it(name: str) -> None:
    """Kryo 5 looks for that, so a final class has no tag, and Kryo 2 doesn't."""
    of_array, of_other = "Of arrays", "Of what isn't in the jars"
    content = Member("content", "Ljava/lang/Object;", PUBLIC, "TT;")
    job = JobClasses(
        "boxes",
        {
            "com.acme.Event": ClassFile("com.acme.Event", "java.lang.Object", (), PUBLIC, (), None, False),
            "Box": ClassFile(
                "Box",
                "java.lang.Object",
                (),
                PUBLIC,
                (content,),
                "<T::Ljava/io/Serializable;>Ljava/lang/Object;",
                False,
            ),
            **{one: ClassFile(one, above, (), PUBLIC, (), text, False) for one, (above, text, _) in _BOXES.items()},
        },
    )
    table, _, has_tag = job_table(job, {}), *_BOXES[name][1:]
    assert table.parts["Box"] == (JobPart(codes.TAGGED_PART),)
    if name in (of_array, of_other):
        assert ("an array of a class" if name == of_array else "field content is of org.other") in table.reasons[name]
        with pytest.raises(RefusedError):
            kryo_fields(name, job, five=True)
        return
    assert table.parts[name] == table.parts["Box"]
    of_box = kryo_fields("Box", job, five=False)[0].objects
    assert kryo_fields(name, job, five=False)[0].objects == of_box
    by_5 = table.parts_by(name, five=True)[0], kryo_fields(name, job, five=True)[0].objects.class_name
    final = "java.lang.String" if "elow" in name else "java.lang.Long"
    assert by_5 == ((JobPart(codes.TAGGED_PART), "") if has_tag else (JobPart(codes.KNOWN_PART, final), final))


def test_the_variable_of_a_class_below_one_with_a_parameter_is_that_of_the_superclass() -> None:
    """Kryo 5 goes by its name alone."""
    content = Member("content", "Ljava/lang/Object;", PUBLIC, "TT;")
    parameter = "<T:Ljava/lang/Object;>"
    job = JobClasses(
        "same names",
        {
            "Base": ClassFile("Base", "java.lang.Object", (), PUBLIC, (), f"{parameter}Ljava/lang/Object;", False),
            "Box": ClassFile("Box", "Base", (), PUBLIC, (content,), f"{parameter}LBase<Ljava/lang/Long;>;", False),
        },
    )
    table = job_table(job, {})
    assert (table.parts["Box"], table.parts_5["Box"]) == (
        (JobPart(codes.TAGGED_PART),),
        (JobPart(codes.KNOWN_PART, "java.lang.Long"),),
    )


def test_parts_are_sorted_fields_and_reasons_are_said() -> None:
    table = job_table(classes(), {})
    names = [part.class_name for part in table.parts[f"{THINGS}Thing"]]
    assert names == ["", "java.lang.Long", f"{THINGS}Color", "", "java.lang.String", ""]
    assert table.parts[f"{THINGS}Thing"][5] == JobPart(8)
    assert [part.kind for part in table.parts[f"{THINGS}Box"]] == [codes.TAGGED_PART]
    assert table.collections[f"{THINGS}Listed"] == "java.util.ArrayList"
    assert (
        "with the job's serializer Own" in job_table(classes(), {f"{THINGS}Thing": "Own"}).reasons[f"{THINGS}Special"]
    )


@pytest.mark.parametrize(
    ("type_", "signature"),
    [
        ("java/util/concurrent/TimeUnit", None),
        ("[Ljava/util/concurrent/TimeUnit;", None),
        ("java/util/List", "Ljava/util/List<Ljava/util/concurrent/TimeUnit;>;"),
        ("java/util/Map", "Ljava/util/Map<Ljava/util/concurrent/TimeUnit;Ljava/lang/Long;>;"),
    ],
)
def test_a_field_of_time_units_is_refused(type_: str, signature: str | None) -> None:
    """Kryo writes it without a class tag since Java 9, where it is final, and no savepoint says which Java it was."""
    descriptor = type_ if type_.startswith("[") else f"L{type_};"
    table = job_table(_one_class((), Member("unit", descriptor, 2, signature)), {})
    assert not table.parts
    assert "of which isn't known whether it is final" in table.reasons["com.acme.Rule"]


@pytest.mark.parametrize(
    "signature",
    [
        "Lcom/acme/Table<Ljava/lang/String;Ljava/lang/Long;>;",
        "Ljava/util/List<Lcom/acme/Table<Ljava/lang/Long;>;>;",
        "Ljava/util/Map<Ljava/lang/String;Ljava/util/List<Lcom/acme/Table<Ljava/lang/Long;>;>;>;",
    ],
)
def test_type_arguments_of_a_collection_of_the_job_are_refused_by_both_readings(signature: str) -> None:
    """Kryo 5 takes the first for that of a map's keys, whatever it is."""
    descriptor = f"{signature.partition('<')[0]};"
    job = _one_class((), Member("tables", descriptor, 2, signature))
    assert "field tables" in job_table(job, {}).reasons["com.acme.Rule"]
    with pytest.raises(RefusedError, match="the field tables with type arguments"):
        kryo_fields("com.acme.Rule", job, five=True)


@pytest.mark.parametrize(
    ("interface", "is_plain"),
    [
        ("java.io.Serializable", True),
        ("java.lang.Comparable", True),
        ("java.util.Comparator", True),
        ("org.apache.flink.types.Value", True),
        ("com.acme.Named", True),
        ("org.acme.Named", True),
        ("java.util.Collection", False),
        ("com.google.common.collect.Multiset", False),
        ("com.other.Named", False),
        # It extends an interface that isn't in the jars.
        ("com.acme.Bag", False),
        ("org.apache.thrift.TBase", False),
        ("com.esotericsoftware.kryo.KryoSerializable", False),
    ],
)
def test_a_class_that_may_be_a_collection_is_refused_by_both_readings(interface: str, is_plain: bool) -> None:
    job = _one_class((interface,), Member("amount", "J", 2))
    table, why = job_table(job, {}), "which is not read from the jars"
    assert ("com.acme.Rule" in table.parts) == is_plain
    assert (why in table.reasons.get("com.acme.Rule", "")) != is_plain
    if is_plain:
        assert [field.name for field in kryo_fields("com.acme.Rule", job, five=True)] == ["amount"]
    else:
        with pytest.raises(RefusedError, match=why):
            kryo_fields("com.acme.Rule", job, five=True)


@pytest.mark.parametrize(
    ("superclass", "interfaces", "collection"),
    [
        ("java.util.LinkedHashMap", ("java.util.RandomAccess",), "java.util.LinkedHashMap"),
        ("java.util.concurrent.ConcurrentHashMap", (), "java.util.concurrent.ConcurrentHashMap"),
        ("java.util.AbstractMap", ("java.io.Serializable",), "java.util.HashMap"),
        ("java.lang.Object", ("java.util.Map", "java.lang.reflect.InvocationHandler"), "java.util.HashMap"),
        ("java.lang.Object", ("com.acme.Table",), "java.util.HashMap"),
        ("java.util.AbstractList", (), "java.util.ArrayList"),
        ("java.util.HashSet", (), "java.util.HashSet"),
        # Kryo has other serializers for some, and gives none of the others to collections.
        *((f"java.util.{name}", (), None) for name in ("TreeMap", "TreeSet", "EnumMap", "PriorityQueue")),
        ("java.util.AbstractCollection", (), None),
        ("java.lang.Object", ("java.util.Collection",), None),
        ("java.util.HashMap", ("com.esotericsoftware.kryo.KryoSerializable",), None),
        ("java.util.HashMap", ("com.other.MultiMap",), None),
    ],
)
def test_a_collection_of_the_job_is_read_as_one_of_the_jdk(
    superclass: str, interfaces: tuple[str, ...], collection: str | None
) -> None:
    job = _one_class(interfaces, Member("amount", "J", 2), superclass=superclass, signature="<K:Ljava/lang/Object;>")
    table = job_table(job, {})
    assert table.collections.get("com.acme.Rule") == collection
    assert ("com.acme.Rule" in table.reasons) == (collection is None)
    with contextlib.nullcontext() if collection else pytest.raises(RefusedError):
        assert collection_of("com.acme.Rule", job) == collection
        if collection is None:
            kryo_fields("com.acme.Rule", job, five=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"interfaces": ("com.acme.Named",), "methods": (Member("run", "()V", PUBLIC),)}, ""),
        ({"superclass": "java.util.TreeMap"}, "another superclass"),
        ({"signature": "Ljava/util/HashMap<TK;TV;>;"}, "other type parameters"),
        ({"interfaces": ("java.util.Map",)}, "other interfaces of java.util"),
        ({"access": PUBLIC | ABSTRACT}, "other modifiers"),
        ({"fields": (Member("RED", "La;", PUBLIC | STATIC | ENUM),)}, "other constants and other fields"),
        ({"fields": (Member("amount", "I", 2),)}, "other fields"),
        ({"for_kryo": True}, "other use of Kryo's classes"),
        ({"texts": ("{}",)}, "another schema"),
    ],
)
def test_what_differs_in_another_jar_is_said(changes: dict[str, Any], said: str) -> None:
    one = _one_class((), Member("amount", "J", 2), superclass="java.util.HashMap").classes["com.acme.Rule"]
    assert one.other_in(replace(one, **changes)) == said


def test_a_class_with_another_superclass_in_another_jar_is_refused_by_it(tmp_path: Path) -> None:
    """So are its subclasses."""
    for folder, superclass in (("old", "java/util/HashMap"), ("new", "java/util/LinkedHashMap")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "Cache.class").write_bytes(small_class("Cache", superclass))
        (tmp_path / folder / "Small.class").write_bytes(small_class("Small", "Cache"))
    table = job_table(read_job_classes([str(tmp_path / "old"), str(tmp_path / "new")]), {})
    differs = "with another superclass"
    assert table.reasons["Cache"] == f"two of the jars have it, {differs}"
    assert table.reasons["Small"] == f"two of the jars have its superclass Cache, {differs}"


def test_a_constructor_that_only_sets_fields_puts_no_entries() -> None:
    """The one of `Thing` makes a list."""
    read = classes().classes
    assert [read[f"{THINGS}{name}"].constructed_by_calls for name in ("Listed", "Thing")] == [False, True]


@pytest.mark.parametrize(
    ("superclass", "constructor", "fields", "methods", "may"),
    [
        ("java.util.LinkedHashMap", "()V", ("most",), ("removeEldestEntry",), False),
        # Its constructor without arguments may set another limit than the one that was used.
        ("java.util.LinkedHashMap", "()V", ("most",), ("removeEldestEntry", "<init>"), True),
        ("java.util.LinkedHashMap", "(I)V", ("most",), ("removeEldestEntry",), True),
        ("java.util.LinkedHashMap", "(I)V", ("val$most",), ("removeEldestEntry",), True),
        ("java.util.LinkedHashMap", "(Lcom/acme/Job;)V", ("this$0",), ("removeEldestEntry",), True),
        ("java.util.LinkedHashMap", "(Lcom/acme/Job;)V", ("this$0",), (), False),
        ("java.util.HashMap", "(Ljava/util/Map;)V", (), ("get",), False),
        ("java.util.ArrayList", "(I)V", (), (), True),
    ],
)
def test_a_map_without_a_constructor_may_lack_its_fields(
    superclass: str, constructor: str, fields: tuple[str, ...], methods: tuple[str, ...], may: bool
) -> None:
    members = tuple(Member(name, "I", 2) for name in fields)
    called = (Member("<init>", constructor, PUBLIC), *(Member(name, "()V", PUBLIC) for name in methods))
    made = ClassFile("com.acme.Cache", superclass, (), PUBLIC, members, None, False, called)
    assert may_lack_fields("com.acme.Cache", JobClasses("maps", {made.name: made})) is may


def test_a_map_with_a_serializer_of_the_jobs_own_is_refused() -> None:
    job = _one_class((), superclass="java.util.HashMap")
    assert "with the job's serializer Own" in job_table(job, {"com.acme.Rule": "Own"}).reasons["com.acme.Rule"]


@pytest.mark.parametrize(
    ("interface", "is_read"),
    [("com.google.protobuf.ProtocolMessageEnum", True), ("com.esotericsoftware.kryo.KryoSerializable", False)],
)
def test_an_enum_stays_one_whatever_it_implements_but_for_kryo(interface: str, is_read: bool) -> None:
    constant = Member("A", "Lcom/acme/Rule;", ENUM | STATIC)
    job = _one_class((interface,), constant, superclass="java.lang.Enum")
    assert ("com.acme.Rule" in job_table(job, {}).enums) == is_read
    with contextlib.nullcontext() if is_read else pytest.raises(RefusedError, match=interface):
        found = enum_of("com.acme.Rule", job)
        assert found is not None
        assert found.constants == ("A",)


@pytest.mark.parametrize("of", ["com.acme.Rule", "com.acme.Named", "com.other.Named"])
def test_default_serializers_are_for_interfaces_too(of: str) -> None:
    job = _one_class(("com.acme.Named", "com.other.Named"), Member("amount", "J", 2))
    assert "with the job's serializer Own" in job_table(job, {of: "Own"}).reasons["com.acme.Rule"]
    kryo = KryoType("com.acme.Rule", "by Kryo", (KryoRegistration("com.acme.Rule", None, b""),), ((of, "Own"),))
    with pytest.raises(RefusedError, match="the job gave Kryo Own for them"):
        read_kryo(replace(kryo, classes=job), b"\x57\x01\x02", 0, 3)


def _one_class(
    interfaces: tuple[str, ...], *fields: Member, superclass: str = "java.lang.Object", signature: str | None = None
) -> JobClasses:
    """A class with these fields; beside it the interfaces Named, Bag, which is one of Guava's, and Table, a Map."""

    def of(name: str, access: int, interfaces: tuple[str, ...], fields: tuple[Member, ...] = ()) -> ClassFile:
        is_interface = access == INTERFACE
        above, generic = ("java.lang.Object", None) if is_interface else (superclass, signature)
        return ClassFile(name, above, interfaces, access, fields, generic, False, (), access)

    classes = {
        **{name: of(name, INTERFACE, ()) for name in ("com.acme.Named", "org.acme.Named")},
        "com.acme.Bag": of("com.acme.Bag", INTERFACE, ("com.google.common.collect.Multiset",)),
        "com.acme.Table": of("com.acme.Table", INTERFACE, ("java.util.Map",)),
        "com.acme.Rule": of("com.acme.Rule", PUBLIC, interfaces, fields),
    }
    return JobClasses(repr(classes), classes)


def test_damage_is_refused_by_name_and_offset_or_read() -> None:
    chosen = random.Random(11)
    files = class_files()
    refused = 0
    for _ in range(3000):
        name = chosen.choice(list(files))
        raw = bytearray(files[name])
        if chosen.random() < 0.3:
            del raw[chosen.randrange(len(raw)) :]
        else:
            raw[chosen.randrange(len(raw))] ^= 1 << chosen.randrange(8)
        error = why_not(bytes(raw), name)
        if error is not None:
            refused += 1
            assert error.file == name
            assert error.offset is not None
    assert refused > 500


def why_not(data: bytes, name: str) -> DamagedError | None:
    try:
        parse_class(data, name)
    except DamagedError as error:
        return error
    return None


def test_a_jar_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"no jar")
    with pytest.raises(DamagedError, match=r"a\.jar"):
        read_job_classes([str(tmp_path / "a.jar")])
    with pytest.raises(UsageError, match="no such jar"):
        read_job_classes([str(tmp_path / "none.jar")])
    whole = JAR.read_bytes()
    (tmp_path / "cut.jar").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedError, match=r"cut\.jar"):
        read_job_classes([str(tmp_path / "cut.jar")])


def test_a_jar_with_a_password_or_a_wrong_offset_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.jar", "w") as jar:
        jar.writestr("A.class", b"")
    whole = bytearray((tmp_path / "a.jar").read_bytes())
    entry, end = whole.index(b"PK\1\2"), whole.index(b"PK\5\6")
    for place, number in ((entry + 8, b"\1"), (end + 16, b"\xff\xff\xff\x7f")):
        damaged = whole[:place] + number + whole[place + len(number) :]
        (tmp_path / "a.jar").write_bytes(damaged)
        with pytest.raises(DamagedError, match=r"a\.jar"):
            read_job_classes([str(tmp_path / "a.jar")])


def test_a_folder_may_have_what_is_no_class_file(tmp_path: Path) -> None:
    (tmp_path / "A.class").symlink_to(tmp_path / "nowhere")
    (tmp_path / "B.class").mkdir()
    (tmp_path / "C.class").write_bytes(small_class("C", "java/lang/Object"))
    assert list(read_job_classes([str(tmp_path)]).classes) == ["C"]


def test_a_place_without_class_files_is_refused_and_jars_in_it_are_named(tmp_path: Path) -> None:
    libraries, folder = tmp_path / "libraries.jar", tmp_path / "folder"
    with zipfile.ZipFile(libraries, "w") as jar:
        jar.writestr("org/apache/A.class", small_class("org/apache/A", "java/lang/Object"))
    folder.mkdir()
    for place in (libraries, folder):
        with pytest.raises(UsageError, match=f"{place}: there are no class files of a job in it$"):
            read_job_classes([str(JAR), str(place)])
    shutil.copy(JAR, folder / "job.jar")
    with zipfile.ZipFile(tmp_path / "around.jar", "w") as jar:
        jar.write(JAR, "lib/job.jar")
    for place, inner in ((folder, "job.jar"), (tmp_path / "around.jar", "lib/job.jar")):
        with pytest.raises(UsageError, match=rf"no class files of a job in it, but jars such as {inner}: name the jar"):
            read_job_classes([str(place)])


def test_tasks_take_the_classes_along_as_few_bytes_and_a_worker_unpacks_them_once() -> None:
    """A jar with all that a job needs can have tens of thousands of classes, and a run thousands of tasks."""
    classes = read_job_classes([str(JAR)])
    sent = [pickle.dumps((classes, task)) for task in range(2)]
    assert len(sent[0]) < JAR.stat().st_size / 2
    (one, _), (other, _) = map(pickle.loads, sent)
    assert one is other
    assert (one.digest, one.classes) == (classes.digest, classes.classes)


def test_of_kotlin_two_classes_are_read(tmp_path: Path) -> None:
    names = ("kotlin/Pair", "kotlin/PairKt", "kotlin/Result", "kotlin/Triple", "kotlin/collections/Pair")
    with zipfile.ZipFile(tmp_path / "job.jar", "w") as jar:
        for name in names:
            jar.writestr(f"{name}.class", small_class(name, "java/lang/Object"))
    assert list(read_job_classes([str(tmp_path / "job.jar")]).classes) == ["kotlin.Pair", "kotlin.Triple"]
    others = [name for name in names if is_of_others(name.replace("/", "."))]
    assert others == ["kotlin/PairKt", "kotlin/Result", "kotlin/collections/Pair"]


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_LARGEST_CLASS", 1 << 20)
    with zipfile.ZipFile(tmp_path / "bomb.jar", "w", zipfile.ZIP_DEFLATED) as jar:
        jar.writestr("Bomb.class", b"\0" * (1 << 22))
    with pytest.raises(RefusedError, match=r"Bomb\.class has more than"):
        read_job_classes([str(tmp_path / "bomb.jar")])
    monkeypatch.setattr(limits, "_MOST_CLASSES", 3)
    with pytest.raises(RefusedError, match="more than 3 classes"):
        read_job_classes([str(JAR)])


def test_a_class_that_is_its_own_superclass_is_refused(tmp_path: Path) -> None:
    for name, superclass in (("A", "B"), ("B", "A")):
        (tmp_path / f"{name}.class").write_bytes(small_class(name, superclass))
    found = read_job_classes([str(tmp_path)])
    assert list(found.classes) == ["A", "B"]
    with pytest.raises(RefusedError, match="own superclass"):
        found.superclasses("A")
    assert "own superclass" in job_table(found, {}).reasons["A"]


def test_the_first_place_counts_and_the_digest_is_of_what_was_read(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, superclass in ((one, "java/lang/Object"), (other, "java/lang/Number")):
        folder.mkdir()
        (folder / "A.class").write_bytes(small_class("A", superclass))
    found = read_job_classes([str(one), str(other)])
    assert found.classes["A"].superclass == "java.lang.Object"
    assert found.classes["A"].differs
    assert found != read_job_classes([str(one)])
    assert found == read_job_classes([str(one), str(other), str(one)])
    assert read_job_classes([str(one), str(one)]) == read_job_classes([str(one)])
    assert found != read_job_classes([str(other)])
