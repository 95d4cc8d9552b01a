"""The classes of a job, from its jars and folders of class files."""

from __future__ import annotations

import hashlib
import lzma
import pickle
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from flinkstate.classfiles.class_file import ClassFile, parse_class
from flinkstate.errors import DamagedError, RefusedError, UsageError

# Limits that no real jar reaches. They keep a malicious one from filling the memory.
_MOST_CLASSES = 200_000
_LARGEST_CLASS = 16 << 20
_MOST_BYTES = 1 << 30
_MOST_SUPERCLASSES = 256
# Classes of others in a jar that holds all that the job needs. Their objects are not read.
_OF_OTHERS = (
    *("META-INF/", "java/", "javax/", "kotlin/", "scala/", "akka/", "com/esotericsoftware/"),
    *("com/google/", "com/twitter/", "io/netty/", "org/apache/", "org/rocksdb/", "org/slf4j/"),
)
# But these are read: plain classes of Kotlin, which jobs put into their maps.
_OF_KOTLIN = ("kotlin/Pair", "kotlin/Triple")


# What reading a damaged jar, or one with passwords, can raise.
_DAMAGED_JAR = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError)


@dataclass(frozen=True, slots=True)
class JobClasses:
    """Classes by their names. `digest` is of the bytes that were read: equal digests mean equal classes."""

    digest: str
    classes: dict[str, ClassFile] = field(compare=False, repr=False)

    def superclasses(self, name: str) -> tuple[str, ...]:
        """Returns the class, its superclass and so on, the last of them the first that isn't one of the job's."""
        found: list[str] = []
        following: str | None = name
        while following is not None:
            if following in found or len(found) == _MOST_SUPERCLASSES:
                raise RefusedError(f"the class {name} is its own superclass, or has more than {_MOST_SUPERCLASSES}")
            found.append(following)
            known = self.classes.get(following)
            following = None if known is None else known.superclass
        return tuple(found)

    def subclasses(self, name: str) -> tuple[str, ...]:
        """Returns the classes that extend the class, and those that extend them."""
        return _subclasses(self).get(name, ())

    def __reduce__(self) -> tuple[Any, ...]:
        # Each task of a run has them. So they are packed once in the driver, and unpacked once in each worker.
        return _unpacked, (self.digest, _packed(self))


@lru_cache(maxsize=4)
def _subclasses(classes: JobClasses) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name in sorted(classes.classes):
        for one in classes.superclasses(name)[1:]:
            found.setdefault(one, []).append(name)
    return {name: tuple(below) for name, below in found.items()}


@lru_cache(maxsize=4)
def _packed(classes: JobClasses) -> bytes:
    return zlib.compress(pickle.dumps(classes.classes), 1)


@lru_cache(maxsize=4)
def _unpacked(digest: str, packed: bytes) -> JobClasses:
    return JobClasses(digest, pickle.loads(zlib.decompress(packed)))


@lru_cache(maxsize=4)
def job_classes(places: tuple[str, ...]) -> JobClasses:
    """Reads them once for all that this process does."""
    return read_job_classes(places)


def read_job_classes(places: Sequence[str]) -> JobClasses:
    """Reads all classes of these jars and folders. The first one that has a class counts, as on a class path.

    But nobody knows of which of them Kryo's bytes are, so a class that is another one in a later jar says so.
    """
    classes: dict[str, ClassFile] = {}
    digest = hashlib.blake2b(digest_size=8)
    total = 0
    for place in places:
        before = total
        for name, data in _class_files(Path(place)):
            total += len(data)
            if len(classes) == _MOST_CLASSES or total > _MOST_BYTES:
                raise RefusedError(f"{place}: more than {_MOST_CLASSES:,} classes, or {_MOST_BYTES:,} bytes of them")
            found = parse_class(data, f"{place}!{name}")
            first = classes.setdefault(found.name, found)
            differs = "" if first.differs else first.other_in(found)
            if differs:
                classes[found.name] = replace(first, differs=differs)
            if differs or first is found:
                digest.update(len(data).to_bytes(8, "big") + data)
        if total == before:
            inner = _jar_inside(Path(place))
            instead = f", but jars such as {inner}: name the jar itself" if inner else ""
            raise UsageError(f"{place}: there are no class files of a job in it{instead}")
    return JobClasses(digest.hexdigest(), classes)


def is_of_others(class_name: str) -> bool:
    """Whether a class is the JDK's or a library's, so that it isn't read from a jar."""
    name = class_name.replace(".", "/")
    return name.startswith(("[", *_OF_OTHERS)) and name not in _OF_KOTLIN


def _jar_inside(place: Path) -> str | None:
    if place.is_dir():
        return min((path.relative_to(place).as_posix() for path in place.rglob("*.jar")), default=None)
    with zipfile.ZipFile(place) as jar:
        return min((name for name in jar.namelist() if name.endswith(".jar")), default=None)


def _class_files(place: Path) -> Iterator[tuple[str, bytes]]:
    if place.is_dir():
        for path in sorted(place.rglob("*.class")):
            name = path.relative_to(place).as_posix()
            if _is_of_the_job(name) and path.is_file() and path.stat().st_size <= _LARGEST_CLASS:
                yield name, path.read_bytes()
        return
    try:
        with zipfile.ZipFile(place) as jar:
            for entry in sorted(jar.infolist(), key=lambda one: one.filename):
                if _is_of_the_job(entry.filename):
                    yield entry.filename, _content(jar, entry, place)
    except FileNotFoundError:
        raise UsageError(f"{place}: there is no such jar or folder of class files") from None
    except _DAMAGED_JAR as error:
        raise DamagedError("a jar", f"{error}", file=str(place)) from None


def _content(jar: zipfile.ZipFile, entry: zipfile.ZipInfo, place: Path) -> bytes:
    with jar.open(entry) as file:
        # What a jar says about sizes can be wrong.
        data = file.read(_LARGEST_CLASS + 1)
    if len(data) > _LARGEST_CLASS:
        raise RefusedError(f"{place}: {entry.filename} has more than {_LARGEST_CLASS:,} bytes")
    return data


def _is_of_the_job(name: str) -> bool:
    short = name.rpartition("/")[2]
    is_of_job = not name.startswith(_OF_OTHERS) or name.removesuffix(".class") in _OF_KOTLIN
    return name.endswith(".class") and is_of_job and short != "module-info.class"
