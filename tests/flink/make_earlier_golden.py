"""Make the savepoints of Flink 1.13 to 1.19 and 2.0 to 2.2 under ``tests/earlier_savepoints`` anew.

    python -m tests.flink.make_earlier_golden [version ...]

Each version wrote a canonical one of RocksDB and of the HashMap backend, and since 1.15 a native one of RocksDB. The
versions are fetched for this alone: the tests restore what they wrote in the versions that Stateferry is for. ``--pin``
writes anew which jars there are. Those of Flink 2 are written by the harness, with ``expected.jsonl`` beside the files.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlparse

from flinkstate.hashing.key_groups import assign_to_key_group
from tests.flink import jars
from tests.flink.harness import FlinkHarness, Line
from tests.flink.jobs import Job, Operator, OperatorState, State, Timers
from tests.flink.make_golden import SAVEPOINTS
from tests.flink.make_old_golden import PROGRAM as OLD
from tests.support.fetched_jars import java_tool
from tests.support.samples import java_hash

VERSIONS = ("1.13.6", "1.14.6", "1.15.4", "1.16.3", "1.17.2", "1.18.1", "1.19.3", "2.0.0", "2.1.1", "2.2.0")
EARLIER = SAVEPOINTS.parent / "earlier_savepoints"
# Before it there are no native savepoints, and the names of artifacts say the version of Scala.
_FIRST_WITH_FORMATS = "1.15"
_POJO = jars.SOURCES / "common" / "stateferry" / "flink" / "pojo"
_POJOS = tuple(_POJO / f"{name}.java" for name in ("Address", "Color", "Person"))
_JAVA_OF_1 = jars.SOURCES / "1.20.0" / "stateferry" / "flink"
# What Flink 2.3 has, and these versions don't.
_TYPES, _BACKEND = "types/TypesSinceFlink2.java", "HeapBackend.java"
_AS_IN_FLINK_1 = {"2.0": (_TYPES, _BACKEND), "2.1": (_TYPES,), "2.2": (_TYPES,)}
_SECONDS = 300
_KEYS = 12
_MAX_PARALLELISM = 8
_YEAR_2100 = 4102444800000
_WINDOW, _WIDTH = 1_700_000_040_000, 60_000

# Its folder's name begins with the version: the backend, the format, whether it has states that break in Flink 2.
CASES = {
    "rocksdb": ("rocksdb", "CANONICAL", True),
    "native-rocksdb": ("rocksdb", "NATIVE", True),
    "hashmap": ("hashmap", "CANONICAL", False),
}
RESTORING = {
    "blob": State("blob", "Map<String,Long>"),
    "entries": State("entries", "Map<String,Long>", kind="MAP"),
    "flag": State("flag", "Boolean"),
    "names": State("names", "String", kind="LIST"),
    "person": State("person", "Person"),
    "pair": State("pair", "Tuple2<Long,String>"),
    "list": State("list", "List<String>"),
    "sum": State("sum", "Long", kind="REDUCING"),
    "expiring": State("expiring", "Long", ttl="config", ttl_millis=36500 * 86_400_000),
    "object": State("object", "Object<Long>"),
}
_WINDOWS = State("window-contents", "Tuple4<Integer,Integer,Long,Long>", kind="REDUCING", namespace="TimeWindow")
_WINDOW_TIMERS = Timers(service="window-timers", namespace="TimeWindow")
BREAKING = {
    "hinted": State("hinted", "HintedMap<String,Long>"),
    "hash": State("hash", "HashMap<String,Long>"),
    "uuid": State("uuid", "UUID"),
}


def job_with(states: Sequence[State], backend: str, keys: int = 1) -> Job:
    """The job that starts from such a savepoint and has these states of its keyed operator."""
    operators = (
        Operator("main", key="String", keys=keys, states=tuple(states), timers=Timers()),
        # As an operator that shows what the windows hold.
        Operator("windows", key="String", keys=keys, states=(_WINDOWS,), timers=_WINDOW_TIMERS),
        Operator(
            "plain",
            type="plain",
            operator_states=(
                OperatorState("split", "String"),
                OperatorState("union", "Tuple2<Long,String>", "UNION"),
                OperatorState("rules", "Map<String,Long>", "BROADCAST"),
            ),
        ),
    )
    return Job(operators, parallelism=2, max_parallelism=_MAX_PARALLELISM, backend=backend)


def lines(breaking: bool) -> Iterator[dict[str, Any]]:
    """Every entry, as `EarlierSavepoints` writes it; when one that expires was last used isn't known."""
    for number in range(_KEYS):
        name = f"k{number}"
        place = {"key": name, "key_group": assign_to_key_group(java_hash(name), _MAX_PARALLELISM)}
        for state, value in _values(number, breaking).items():
            yield {"operator": "main", "state": state, **place, "value": value}
        for user_key, value in _map(number).items():
            yield {"operator": "main", "state": "entries", **place, "user_key": user_key, "value": value}
        for kind in ("processing", "event"):
            timers = f"_timer_state/{kind}_user-timers"
            yield {"operator": "main", "state": timers, **place, "timestamp": _YEAR_2100 + number}
        place = {**place, "namespace": {"start": _WINDOW, "end": _WINDOW + _WIDTH}}
        value = [number, number, _WINDOW, 10 * number]
        yield {"operator": "windows", "state": "window-contents", **place, "value": value}
        timers = "_timer_state/event_window-timers"
        yield {"operator": "windows", "state": timers, **place, "timestamp": _WINDOW + _WIDTH - 1}
    for element in range(6):
        yield {"operator": "plain", "state": "split", "value": f"e{element}"}
        yield {"operator": "plain", "state": "union", "value": [element, f"e{element}"]}
    yield {"operator": "plain", "state": "rules", "user_key": "rule", "value": 1}


def _map(number: int) -> dict[str, int]:
    return {f"u{entry}": 10 * number + entry for entry in range(number % 4)}


def _values(number: int, breaking: bool) -> dict[str, Any]:
    names = [f"n{index}" for index in range(number % 3 + 1)]
    person = {
        "name": f"name{number}",
        "age": number,
        "score": 3 * number,
        "weight": number / 4,
        "active": number % 2 == 1,
        "home": {"street": f"street{number}", "number": number, "zip": None},
        "favourite": ("RED", "GREEN", "BLUE")[number % 3],
        "balance": None,
        "seen": f"1970-01-01T00:00:{number:02}Z",
        "picture": None,
        "aliases": [f"a{number}"],
    }
    out = {
        "blob": _map(number),
        "flag": number % 2 == 0,
        "names": names,
        "person": person,
        "pair": [number, f"p{number}"],
        "list": names,
        "sum": number + 1,
        "expiring": number,
        "object": number,
    }
    if breaking:
        uuid = f"00000000-0000-{number:04x}-0000-{number:012x}"
        out |= {"hinted": _map(number), "hash": _map(number), "uuid": uuid}
    return out


def program(version: str) -> jars.Program:
    """What makes the savepoints of a version."""
    pins = jars.HERE / f"jars-{version}.sha256"
    if is_of_flink_2(version):
        as_in_1 = tuple(_JAVA_OF_1 / one for one in _AS_IN_FLINK_1[version[:3]])
        names = {one.name for one in as_in_1}
        of_2 = (one for one in (jars.SOURCES / "2.3.0").rglob("*.java") if one.name not in names)
        sources = (jars.SOURCES / "common", *of_2, *as_in_1, jars.JOB_SIDE)
        return jars.Program(version, jars.ARTIFACTS, pins, sources, jars.OTHERS)
    old = version < _FIRST_WITH_FORMATS
    sources = (jars.SOURCES / "1.13-to-1.19", jars.SOURCES / ("1.13-to-1.14" if old else "1.15-to-1.19"), *_POJOS)
    if old:
        return jars.Program(version, OLD.artifacts, pins, sources, OLD.others)
    return jars.Program(version, jars.ARTIFACTS, pins, sources, jars.OTHERS)


def is_of_flink_2(version: str) -> bool:
    """Whether the harness writes savepoints of the version, also by the first word of a savepoint's name."""
    return version.startswith("2.")


def whole_job(backend: str) -> Job:
    """The job of Flink 2 that wrote such a savepoint: it has all states, those of Kryo too."""
    return replace(job_with([*RESTORING.values(), *BREAKING.values()], backend, _KEYS), inline_threshold=0)


def held_by(name: str) -> list[Line]:
    """All that a savepoint of Flink 2 holds, as the harness knows it."""
    return [json.loads(line) for line in (EARLIER / name / "expected.jsonl").read_text("ascii").splitlines()]


def _make_by_the_harness(version: str) -> None:
    with FlinkHarness(version, jars.of_java_alone(program(version))) as flink:
        for name, (backend, format_, _) in CASES.items():
            target = EARLIER / f"{version.rpartition('.')[0]}-{name}"
            shutil.rmtree(target, ignore_errors=True)
            made = flink.make(whole_job(backend), target, format_=format_)
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in made.lines)
            (target / "expected.jsonl").write_text(text, encoding="ascii")


def make(version: str) -> None:
    """Replaces the savepoints of a version."""
    if is_of_flink_2(version):
        _make_by_the_harness(version)
        return
    made_by = program(version)
    # The earliest need the library of Scala themselves; flink-avro is not among their jars.
    class_path = made_by.class_path() if version < _FIRST_WITH_FORMATS else jars.of_java_alone(made_by)
    for name, (backend, format_, breaking) in CASES.items():
        if format_ == "NATIVE" and version < _FIRST_WITH_FORMATS:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            command = [java_tool("java"), *jars.OPENED, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
            command += ["-cp", class_path, "stateferry.flink.EarlierSavepoints"]
            command += [backend, format_, str(breaking).lower(), scratch]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
            target = EARLIER / f"{version.rpartition('.')[0]}-{name}"
            shutil.rmtree(target, ignore_errors=True)
            shutil.move(unquote(urlparse(done.stdout.split()[-1]).path), target)


if __name__ == "__main__":
    for one in [given for given in sys.argv[1:] if given != "--pin"] or VERSIONS:
        if "--pin" in sys.argv:
            program(one).jars.pin()
        else:
            make(one)
