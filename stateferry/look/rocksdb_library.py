"""The RocksDB that Flink itself uses, called without Java: the library in Flink's jar has RocksDB's C interface too."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from flinkstate.basics.closing import Closing
from flinkstate.errors import MissingHereError, RefusedError, UsageError

_POINTER, _SIZE, _BYTES = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
_ERROR = ctypes.POINTER(ctypes.c_char_p)
# What each function that is called here gets and returns, by RocksDB's include/rocksdb/c.h.
_FUNCTIONS: dict[str, tuple[object, ...]] = {
    "rocksdb_options_create": (_POINTER,),
    "rocksdb_options_set_create_if_missing": (None, _POINTER, ctypes.c_ubyte),
    "rocksdb_options_set_compression": (None, _POINTER, ctypes.c_int),
    "rocksdb_options_set_block_based_table_factory": (None, _POINTER, _POINTER),
    "rocksdb_options_destroy": (None, _POINTER),
    "rocksdb_block_based_options_create": (_POINTER,),
    "rocksdb_block_based_options_set_block_cache": (None, _POINTER, _POINTER),
    "rocksdb_block_based_options_destroy": (None, _POINTER),
    "rocksdb_cache_create_lru": (_POINTER, _SIZE),
    "rocksdb_cache_destroy": (None, _POINTER),
    "rocksdb_writeoptions_create": (_POINTER,),
    "rocksdb_writeoptions_disable_WAL": (None, _POINTER, ctypes.c_int),
    "rocksdb_writeoptions_destroy": (None, _POINTER),
    "rocksdb_readoptions_create": (_POINTER,),
    "rocksdb_readoptions_destroy": (None, _POINTER),
    "rocksdb_open": (_POINTER, _POINTER, _BYTES, _ERROR),
    "rocksdb_close": (None, _POINTER),
    "rocksdb_put": (None, _POINTER, _POINTER, _BYTES, _SIZE, _BYTES, _SIZE, _ERROR),
    "rocksdb_get": (_POINTER, _POINTER, _POINTER, _BYTES, _SIZE, ctypes.POINTER(_SIZE), _ERROR),
    "rocksdb_compact_range": (None, _POINTER, _BYTES, _SIZE, _BYTES, _SIZE),
    "rocksdb_free": (None, _POINTER),
}
_SNAPPY = 1


def load_library(jar: Path, folder: Path) -> ctypes.CDLL:
    """Unpacks the library of a jar of Flink (flink-dist or frocksdbjni) into the folder, and loads it."""
    name = _library_name()
    # Under a name of its own: a library that is loaded already must not be written over.
    target = Path(tempfile.mkdtemp(dir=folder)) / name
    try:
        with zipfile.ZipFile(jar) as archive, archive.open(name) as packed:
            target.write_bytes(packed.read())
    except KeyError:
        raise UsageError(f"{jar}: expected a jar with Flink's RocksDB, found one without {name}") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise UsageError(f"{jar}: expected a jar with Flink's RocksDB: {error}") from None
    try:
        library = ctypes.CDLL(str(target))
        for function, (result, *arguments) in _FUNCTIONS.items():
            loaded = getattr(library, function)
            loaded.restype, loaded.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise MissingHereError(f"{jar}: its RocksDB can't be loaded on this machine: {error}") from None
    return library


def find_jar() -> Path:
    """Returns the jar with RocksDB of the Flink in FLINK_HOME; raises an error that says how to name another."""
    home = os.environ.get("FLINK_HOME")
    for jar in _jars(Path(home)) if home else ():
        with zipfile.ZipFile(jar) as archive:
            if _library_name() in archive.namelist():
                return jar
    where = f"FLINK_HOME ({home}) has no jar with it" if home else "FLINK_HOME isn't set"
    raise MissingHereError(
        f"to measure, Flink's RocksDB is needed, and {where}: name the jar (--jar .../flink-dist-2.3.0.jar, or "
        "frocksdbjni-....jar)"
    )


def _jars(home: Path) -> Iterator[Path]:
    # Flink's distribution is large, and the library is in flink-dist.
    yield from sorted((home / "lib").glob("flink-dist*.jar"))
    yield from sorted((home / "lib").glob("*rocksdb*.jar"))


def _library_name() -> str:
    machine = platform.machine().lower()
    if sys.platform == "darwin":
        return f"librocksdbjni-osx-{'arm64' if machine == 'arm64' else 'x86_64'}.jnilib"
    return f"librocksdbjni-linux{'-aarch64' if machine in ('aarch64', 'arm64') else '64'}.so"


class LibraryDatabase(Closing):
    """A database of one column family, compressed with snappy as Flink's are, without a log.

    Threads may use it side by side: while RocksDB is at work, Python isn't.
    """

    def __init__(self, library: ctypes.CDLL, folder: Path, cache_bytes: int) -> None:
        self._library = library
        options = library.rocksdb_options_create()
        library.rocksdb_options_set_create_if_missing(options, 1)
        library.rocksdb_options_set_compression(options, _SNAPPY)
        table, self._cache = library.rocksdb_block_based_options_create(), library.rocksdb_cache_create_lru(cache_bytes)
        library.rocksdb_block_based_options_set_block_cache(table, self._cache)
        library.rocksdb_options_set_block_based_table_factory(options, table)
        library.rocksdb_block_based_options_destroy(table)
        self._writing, self._reading = library.rocksdb_writeoptions_create(), library.rocksdb_readoptions_create()
        library.rocksdb_writeoptions_disable_WAL(self._writing, 1)
        error = ctypes.c_char_p()
        self._database = library.rocksdb_open(options, str(folder).encode(), ctypes.byref(error))
        library.rocksdb_options_destroy(options)
        self._check(error)

    def put(self, key: bytes, value: bytes) -> None:
        error = ctypes.c_char_p()
        self._library.rocksdb_put(self._database, self._writing, key, len(key), value, len(value), ctypes.byref(error))
        self._check(error)

    def get(self, key: bytes) -> int:
        """Reads a value and returns its length; 0 for a key that isn't there."""
        error, size = ctypes.c_char_p(), ctypes.c_size_t()
        found = self._library.rocksdb_get(
            self._database, self._reading, key, len(key), ctypes.byref(size), ctypes.byref(error)
        )
        self._check(error)
        if found is None:
            return 0
        self._library.rocksdb_free(found)
        return size.value

    def compact(self) -> None:
        """Writes all that is in memory into files, and merges them."""
        self._library.rocksdb_compact_range(self._database, None, 0, None, 0)

    def close(self) -> None:
        self._library.rocksdb_close(self._database)
        self._library.rocksdb_writeoptions_destroy(self._writing)
        self._library.rocksdb_readoptions_destroy(self._reading)
        self._library.rocksdb_cache_destroy(self._cache)

    def _check(self, error: ctypes.c_char_p) -> None:
        if error.value is not None:
            raise RefusedError(f"RocksDB says: {error.value.decode(errors='replace')}")
