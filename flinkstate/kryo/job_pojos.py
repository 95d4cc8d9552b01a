"""Which classes of a job Flink takes for POJOs, and of which types their fields are then.

Flink asks of a POJO that it is public, has a public constructor without arguments, and of each field, static and
transient ones aside, that it is public or has a getter and a setter.
"""

from __future__ import annotations

from collections.abc import Iterator

from flinkstate.classfiles.class_file import ABSTRACT, ENUM, PUBLIC, STATIC, SYNTHETIC, TRANSIENT, ClassFile, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import RefusedError
from flinkstate.kryo.job_parts import interfaces
from flinkstate.serializers.types import (
    ArrayType,
    EnumType,
    FlinkType,
    PojoField,
    PojoType,
    PrimitiveArrayType,
    Scalar,
)

_OBJECT = "java.lang.Object"
_NUMBERS = {
    "Z": Scalar.BOOLEAN,
    "B": Scalar.BYTE,
    "S": Scalar.SHORT,
    "I": Scalar.INTEGER,
    "J": Scalar.LONG,
    "F": Scalar.FLOAT,
    "D": Scalar.DOUBLE,
    "C": Scalar.CHARACTER,
}
_BOXED = {f"java.lang.{scalar.label}": scalar for scalar in _NUMBERS.values()}
_SCALARS = {
    **_NUMBERS,
    **{f"L{name.replace('.', '/')};": scalar for name, scalar in _BOXED.items()},
    "Ljava/lang/String;": Scalar.STRING,
    "Ljava/math/BigInteger;": Scalar.BIG_INTEGER,
    "Ljava/math/BigDecimal;": Scalar.BIG_DECIMAL,
    "Ljava/util/Date;": Scalar.DATE,
    "Ljava/sql/Date;": Scalar.SQL_DATE,
    "Ljava/sql/Time;": Scalar.SQL_TIME,
    "Ljava/sql/Timestamp;": Scalar.SQL_TIMESTAMP,
    "Ljava/time/Instant;": Scalar.INSTANT,
}
_ARRAYS: dict[str, FlinkType] = {
    **{f"[{code}": PrimitiveArrayType(scalar) for code, scalar in _NUMBERS.items()},
    **{f"[L{name.replace('.', '/')};": ArrayType(scalar, name) for name, scalar in _BOXED.items()},
    "[Ljava/lang/String;": PrimitiveArrayType(Scalar.STRING),
}
# Of fields whose descriptors alone say how Flink stores them.
KNOWN_TYPES = frozenset((*_SCALARS.values(), *_ARRAYS.values()))
# Interfaces whose objects Flink may serialize by themselves.
_BY_THEMSELVES = ("org.apache.flink.", "org.apache.hadoop.", "org.apache.avro.")


def known_type(descriptor: str) -> FlinkType | None:
    """Returns Flink's type of a field with this descriptor; None if it isn't a scalar or an array of scalars."""
    return _SCALARS.get(descriptor) or _ARRAYS.get(descriptor)


def why_no_pojo(name: str, job: JobClasses) -> str | None:
    """Says why Flink doesn't take a class of the job for a POJO; None if it does, or if that can't be said."""
    names = job.superclasses(name)
    if names[-1] != _OBJECT:
        return None
    chain = tuple(job.classes[one] for one in names[:-1])
    try:
        _expect_constructed(chain[0])
        _expect_no_methods_of_its_own(chain)
        for field, _ in stored_fields(name, job):
            _expect_reachable(field, chain, name)
    except RefusedError as error:
        return str(error)
    return None


def stored_fields(name: str, job: JobClasses) -> tuple[tuple[Member, str], ...]:
    """Returns the fields of a class and its superclasses that Flink stores, with the class that declares each."""
    chain = tuple(job.classes[one] for one in job.superclasses(name) if one in job.classes)
    return tuple((field, one.name) for one in chain for field in one.fields if not field.access & (STATIC | TRANSIENT))


def pojo_type(class_name: str, job: JobClasses | None) -> PojoType:
    """Returns the type by which Flink stores objects of the class, or raises `RefusedError` if it isn't a POJO."""
    if job is None:
        raise RefusedError(f"which fields {class_name} has is not known: give --classes")
    return _pojo(class_name, job, ())


def _pojo(name: str, job: JobClasses, around: tuple[str, ...]) -> PojoType:
    try:
        chain = _chain(name, job)
        return PojoType(name, tuple(_fields(name, chain, job, (*around, name))))
    except RefusedError as error:
        raise RefusedError(
            f"{name} can't become a POJO: {error}. Its objects can stay values of Kryo: Kryo<{name}>"
        ) from None


def _chain(name: str, job: JobClasses) -> tuple[ClassFile, ...]:
    """Returns the class and its superclasses."""
    if name not in job.classes:
        raise RefusedError("the jars don't have it")
    names = job.superclasses(name)
    if names[-1] != _OBJECT:
        raise RefusedError(f"it extends {names[-1]}, which is not in the jars")
    chain = tuple(job.classes[one] for one in names[:-1])
    _expect_constructed(chain[0])
    if chain[0].declared & ABSTRACT:
        raise RefusedError("it is abstract")
    for interface in interfaces(job, names):
        if interface.startswith(_BY_THEMSELVES):
            raise RefusedError(f"it is a {interface}")
    for one in chain:
        if one.for_flink:
            raise RefusedError("it has annotations by which Flink serializes it otherwise")
        if one.signature is not None and one.signature.startswith("<"):
            raise RefusedError("it has type parameters")
    _expect_no_methods_of_its_own(chain)
    return chain


def _expect_constructed(own: ClassFile) -> None:
    """Refuses a class of which Flink can't make objects. One that is abstract may have no constructor."""
    if not own.declared & PUBLIC:
        raise RefusedError("it is not public")
    plain = [one for one in own.methods if one.name == "<init>" and one.descriptor == "()V"]
    if not any(one.access & PUBLIC for one in plain) and (plain or not own.declared & ABSTRACT):
        raise RefusedError("it has no public constructor without arguments")


def _expect_no_methods_of_its_own(chain: tuple[ClassFile, ...]) -> None:
    if any(method.name in ("readObject", "writeObject") for one in chain for method in one.methods):
        raise RefusedError("it has a method readObject or writeObject")


def _fields(name: str, chain: tuple[ClassFile, ...], job: JobClasses, around: tuple[str, ...]) -> Iterator[PojoField]:
    fields = stored_fields(name, job)
    if not fields:
        raise RefusedError("it has no fields")
    for field, declared_in in sorted(fields, key=lambda one: one[0].name.encode("utf-16-be")):
        if field.access & SYNTHETIC:
            raise RefusedError(f"it has a field {field.name} that a compiler made")
        _expect_reachable(field, chain, name)
        yield PojoField(field.name, _type_of(field, job, around), declared_in)


def _expect_reachable(field: Member, chain: tuple[ClassFile, ...], name: str) -> None:
    methods = [method for one in chain for method in one.methods if method.access & PUBLIC]
    if not field.access & PUBLIC and not _has_getter_and_setter(field, methods, name):
        raise RefusedError(f"its field {field.name} is not public and has no getter and setter")


def _has_getter_and_setter(field: Member, methods: list[Member], class_name: str) -> bool:
    low = field.name.lower().replace("_", "")
    own = f"L{class_name.replace('.', '/')};"
    types = {field.descriptor}
    if field.descriptor in _NUMBERS:
        types.add(f"Ljava/lang/{_NUMBERS[field.descriptor].label};")
    names = [(one.name.lower().replace("_", ""), one.descriptor) for one in methods]
    getters = {f"(){one}" for one in types}
    setters = {f"({one}){back}" for one in types for back in ("V", own)}
    got = any(name in (f"get{low}", f"is{low}", low) and descriptor in getters for name, descriptor in names)
    return got and any(name == f"set{low}" and descriptor in setters for name, descriptor in names)


def _type_of(field: Member, job: JobClasses, around: tuple[str, ...]) -> FlinkType:
    found = known_type(field.descriptor)
    if found is not None:
        return found
    name = field.descriptor.lstrip("[").removeprefix("L").removesuffix(";").replace("/", ".")
    if field.descriptor.startswith("L") and name in job.classes and name not in around:
        known = job.classes[name]
        if known.access & ENUM:
            return EnumType(name, known.constants)
        return _pojo(name, job, around)
    raise RefusedError(f"its field {field.name} is of {name}, which Flink has no serializer of its own for")
