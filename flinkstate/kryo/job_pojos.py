"""Which classes of a job Flink takes for POJOs, and of which types their fields are then.

Flink asks of a POJO that it is public, has a public constructor without arguments, and of each field, static and
transient ones aside, that it is public or has a getter and a setter.

Fields of other classes Flink gives to Kryo. Flink 2 has serializers of its own for a field that is declared as `List`,
`Collection`, `Set` or `Map`, with type arguments that have none themselves: it can be null, and so can the elements of
a list and the keys of a map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from flinkstate.classfiles.class_file import (
    ABSTRACT,
    ENUM,
    INTERFACE,
    PUBLIC,
    STATIC,
    SYNTHETIC,
    TRANSIENT,
    ClassFile,
    Member,
)
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.classfiles.plain_classes import interfaces, why_not_read
from flinkstate.classfiles.signatures import JavaType, parse_type
from flinkstate.errors import RefusedError
from flinkstate.kryo.classes import class_table
from flinkstate.kryo.known_class_parts import PARTS
from flinkstate.kryo.refusal import what_helps
from flinkstate.serializers.type_parts import with_parts
from flinkstate.serializers.types import (
    ArrayType,
    EnumType,
    FlinkType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    PojoField,
    PojoType,
    PrimitiveArrayType,
    Scalar,
    SetType,
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
_COLLECTIONS = tuple(f"java.util.{name}" for name in ("List", "Collection", "Set", "Map"))
# Classes of the JDK that Flink gives to Kryo in a field.
_LEFT_TO_KRYO = frozenset(
    (
        *_COLLECTIONS,
        *(f"java.util.{name}" for name in ("ArrayList", "LinkedList", "Vector", "HashSet", "LinkedHashSet", "TreeSet")),
        *(f"java.util.{name}" for name in ("HashMap", "LinkedHashMap", "TreeMap", "ArrayDeque", "PriorityQueue")),
        *("java.util.concurrent.ConcurrentHashMap", "java.lang.Object", "java.lang.Number"),
        *(f"java.time.{name}" for name in ("LocalDate", "LocalTime", "LocalDateTime")),
        *PARTS,
    )
)
# They have fields without getters and setters.
_NO_POJOS = frozenset(
    f"java.util.{name}"
    for name in (
        *("HashMap", "LinkedHashMap", "WeakHashMap", "Hashtable", "Properties", "TreeMap", "EnumMap"),
        *("ArrayList", "Vector", "Stack", "PriorityQueue"),
    )
)
# Of a class with its subclasses, those of their fields, and so on.
_MOST_CLASSES = 1_000
# Interfaces whose objects Flink may serialize by themselves.
_BY_THEMSELVES = ("org.apache.flink.", "org.apache.hadoop.", "org.apache.avro.")


def known_type(descriptor: str) -> FlinkType | None:
    """Returns Flink's type of a field with this descriptor; None if it isn't a scalar or an array of scalars."""
    return _SCALARS.get(descriptor) or _ARRAYS.get(descriptor)


def descriptor_of(name: str) -> str:
    """Returns how a field is described that is of a class: `Ljava/lang/Long;`, `[J`, `I`."""
    return name.replace(".", "/") if name.startswith("[") or name in _NUMBERS else f"L{name.replace('.', '/')};"


def component_of(array: str) -> str:
    """Returns the class of what is in an array, both as `JavaType` names them."""
    inner = array[1:]
    return inner[1:-1] if inner.startswith("L") else inner


def why_no_pojo(name: str, job: JobClasses) -> str | None:
    """Says why Flink doesn't take a class of the job for a POJO; None if it does, or if that can't be said."""
    names = job.superclasses(name)
    if job.classes[name].access & ENUM:
        return "it is an enum"
    if names[-1] in _NO_POJOS:
        return f"it extends {names[-1]}"
    if names[-1] != _OBJECT:
        return None
    chain = tuple(job.classes[one] for one in names[:-1])
    try:
        _expect_constructed(chain[0])
        _expect_no_methods_of_its_own(chain)
        fields = stored_fields(name, job)
        _expect_names(fields)
        for field, _ in fields:
            _expect_reachable(field, chain, name)
    except RefusedError as error:
        return str(error)
    return None


def is_met_again(name: str, around: tuple[str, ...], job: JobClasses) -> bool:
    """Whether Flink gives a field of this class to Kryo because it is in an object of the class, or of a subclass."""
    return any(name in job.superclasses(one) for one in around)


def stored_fields(name: str, job: JobClasses) -> tuple[tuple[Member, str], ...]:
    """Returns the fields of a class and its superclasses that Flink stores, with the class that declares each."""
    chain = tuple(job.classes[one] for one in job.superclasses(name) if one in job.classes)
    return tuple((field, one.name) for one in chain for field in one.fields if not field.access & (STATIC | TRANSIENT))


def pojo_type(class_name: str, kryo: KryoType, *, of_flink_2: bool) -> PojoType:
    """Returns the type by which Flink stores objects of the class, or raises `RefusedError` if it isn't a POJO.

    `kryo` is a serializer of the job that has the class: it says what the job has registered.
    """
    if kryo.classes is None:
        raise RefusedError(f"which fields {class_name} has is not known: give --classes")
    return _with_subclasses(_Pojos(kryo.classes, kryo, of_flink_2, []), lambda pojos: pojos.pojo(class_name, ()))


def collection_of_flink_2(field: Member, class_name: str, kryo: KryoType) -> FlinkType | None:
    """Returns the type by which Flink 2 stores a collection in a field of a class, None if it gives it to Kryo.

    Raises `RefusedError` if that isn't known. `kryo` is a serializer of the job.
    """
    assert kryo.classes is not None
    type_ = parse_type(field.signature or field.descriptor)
    pojos = _Pojos(kryo.classes, kryo, True, [])
    return _with_subclasses(pojos, lambda pojos: pojos._collection(type_, field, (class_name,)))


@dataclass(frozen=True, slots=True)
class _Pojos:
    """Finds the types of fields; a class that is met in its own fields, or a subclass's, `around`, is left to Kryo.

    Flink 2 begins anew with the elements of a collection, and knows nothing then of the classes `before`. Either Flink
    begins anew with a subclass of a POJO, when it meets the first object of it. In what it finds there, objects of
    subclasses of the classes `above` are not looked for once more; if that is None, none are. `made` are all classes.
    """

    job: JobClasses
    kryo: KryoType
    of_flink_2: bool
    made: list[str]
    before: tuple[str, ...] = ()
    above: tuple[str, ...] | None = ()

    def pojo(self, name: str, around: tuple[str, ...]) -> PojoType:
        try:
            made = self._itself(name, around)
            is_abstract = bool(self.job.classes[name].declared & ABSTRACT)
            subclasses = tuple(self._subclasses(name, is_abstract or _has_kryo(made)))
            if is_abstract and not subclasses and name not in (self.above or ()):
                many = f", or has more than {_MOST_CLASSES:,} classes with its subclasses" if self.above is None else ""
                raise RefusedError(f"it is abstract{many}")
        except RefusedError as error:
            raise RefusedError(f"{name} can't become a POJO: {error}{self._instead(name)}") from None
        return replace(made, other_subclasses=subclasses)

    def _instead(self, name: str) -> str:
        if name not in self.job.classes:
            return ""
        if reason := class_table(replace(self.kryo, classes=self.job)).job.reasons.get(name):
            return f". Nor can its objects stay values of Kryo: {reason}"
        return f". Its objects can stay values of Kryo: Kryo<{name}>"

    def _itself(self, name: str, around: tuple[str, ...]) -> PojoType:
        self.made.append(name)
        if self.above is not None and len(self.made) > _MOST_CLASSES:
            raise _TooManyError
        return PojoType(name, tuple(self._fields(name, _chain(name, self.job), (*around, name))))

    def _subclasses(self, name: str, may_have_kryo: bool) -> Iterator[tuple[str, PojoType]]:
        """Yields the subclasses of a class that are POJOs.

        The description of the state names them all, whether there are objects of them or not. One with parts by Kryo is
        for the Flink that wrote it, so those with such parts are left out, unless all objects may have them.
        """
        if self.above is None or name in self.above:
            return
        anew = replace(self, before=(), above=(*self.above, name))
        for one in self.job.subclasses(name):
            if one.isascii() and not self.job.classes[one].declared & ABSTRACT:
                with suppress(RefusedError):
                    subclass = anew._itself(one, ())
                    if may_have_kryo or not _has_kryo(subclass):
                        yield one, subclass

    def _fields(self, name: str, chain: tuple[ClassFile, ...], around: tuple[str, ...]) -> Iterator[PojoField]:
        fields = stored_fields(name, self.job)
        _expect_names(fields)
        for field, declared_in in sorted(fields, key=lambda one: one[0].name.encode("utf-16-be")):
            if field.access & SYNTHETIC:
                raise RefusedError(f"it has a field {field.name} that a compiler made")
            _expect_reachable(field, chain, name)
            yield PojoField(field.name, self._field(field, around), declared_in)

    def _field(self, field: Member, around: tuple[str, ...]) -> FlinkType:
        try:
            type_, plain = parse_type(field.signature or field.descriptor), parse_type(field.descriptor)
        except ValueError:
            raise RefusedError(f"its field {field.name} has a type that can't be read, {field.signature}") from None
        if type_.name == "*":
            raise RefusedError(f"its field {field.name} is an array of a class with type arguments")
        if is_met_again(plain.name, around, self.job):
            return self._by_kryo(plain.name)
        return self._collection(type_, field, around) or self._of_class(plain.name, field, around)

    def _collection(self, type_: JavaType, field: Member, around: tuple[str, ...]) -> FlinkType | None:
        """Returns the type of a collection that Flink 2 has a serializer for; None for all else."""
        arguments = type_.arguments
        if not self.of_flink_2 or type_.name not in _COLLECTIONS or not arguments:
            return None
        if type_.has_open_parts or any(one.arguments for one in arguments):
            return None
        before = (*self.before, *around)
        for one in arguments:
            if one.name in before:
                raise RefusedError(f"its field {field.name} has elements of {one.name}, which Flink 2 can't analyse")
        anew = replace(self, before=before)
        parts = [anew._of_class(one.name, field, ()) for one in arguments]
        if type_.name == "java.util.Map" and len(parts) > 1:
            return NullableType(MapType(NullableType(parts[0], 0), parts[1]), 0)
        if type_.name == "java.util.Set":
            return NullableType(SetType(parts[0]), 0)
        return NullableType(ListType(NullableType(parts[0], 0)), 0)

    def _of_class(self, name: str, field: Member, around: tuple[str, ...]) -> FlinkType:
        """Returns the type of objects of a class, as `JavaType` names it."""
        if (found := known_type(descriptor_of(name))) is not None:
            return found
        if name.startswith("["):
            component = component_of(name)
            return ArrayType(self._of_class(component, field, around), component)
        if name in _LEFT_TO_KRYO:
            return self._by_kryo(name)
        if name not in self.job.classes:
            raise RefusedError(f"its field {field.name} is of {name}, and how Flink stores that is not known")
        known = self.job.classes[name]
        if known.access & ENUM:
            return EnumType(name, known.constants)
        if name in around or known.access & INTERFACE or _is_no_pojo(name, self.job):
            return self._by_kryo(name)
        return self.pojo(name, around)

    def _by_kryo(self, name: str) -> KryoType:
        return KryoType(name).of_the_job(self.kryo)


class _TooManyError(Exception):
    """The subclasses of classes have fields of classes that have subclasses, and so on."""


_T = TypeVar("_T")


def _with_subclasses(pojos: _Pojos, find: Callable[[_Pojos], _T]) -> _T:
    """Returns what is found with the subclasses of all POJOs; without them if that is too much."""
    try:
        return find(pojos)
    except _TooManyError:
        return find(replace(pojos, above=None, made=[]))


def _has_kryo(type_: FlinkType) -> bool:
    """Whether values of the type may have parts by Kryo."""
    return any(isinstance(part, KryoType) for part in with_parts(type_))


def _is_no_pojo(name: str, job: JobClasses) -> bool:
    """Whether Flink gives the objects of a class of the job to Kryo."""
    return why_no_pojo(name, job) is not None or not stored_fields(name, job)


def _chain(name: str, job: JobClasses) -> tuple[ClassFile, ...]:
    """Returns the class and its superclasses."""
    if name not in job.classes:
        raise RefusedError("the jars don't have it" + what_helps((name,)))
    names = job.superclasses(name)
    if names[-1] != _OBJECT:
        raise RefusedError(why_not_read(names[-1]))
    chain = tuple(job.classes[one] for one in names[:-1])
    _expect_constructed(chain[0])
    for interface in interfaces(job, names):
        if interface.startswith(_BY_THEMSELVES):
            raise RefusedError(f"it is a {interface}")
    for one in chain:
        if one.for_flink:
            raise RefusedError("it has annotations by which Flink serializes it otherwise")
        if one.signature is not None and one.signature.startswith("<"):
            raise RefusedError(f"{'it' if one is chain[0] else one.name} has type parameters")
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


def _expect_names(fields: tuple[tuple[Member, str], ...]) -> None:
    """Refuses a class without fields, and one that has a field of the same name as one of its superclass."""
    if not fields:
        raise RefusedError("it has no fields")
    names = [field.name for field, _ in fields]
    twice = next((one for one in names if names.count(one) > 1), None)
    if twice is not None:
        raise RefusedError(f"it and its superclass have a field {twice} each")


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
