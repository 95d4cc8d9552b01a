"""Make small savepoints anew: ``python -m tests.flink.make_golden [case ...]``.

They are under ``tests/savepoints``, and under ``tests/rocksdb/snapshots`` if they were written in rounds.

Each folder is a savepoint as Flink wrote it, with ``expected.jsonl`` beside its files: every entry as the generator
knows it. Contents are the same on every run; file names and the order of entries are not.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.flink import jars
from tests.flink.harness import FlinkHarness, Line, Made
from tests.flink.jobs import Job, Timers
from tests.flink.scenarios import (
    DECLARED_MAPS,
    SCALA,
    SCENARIOS,
    in_collections,
    in_objects,
    in_pojos,
    kinds,
    with_kryo_parts,
    with_pojo_parts,
)

SAVEPOINTS = Path(__file__).parent.parent / "savepoints"
ROUNDS = Path(__file__).parent.parent / "rocksdb" / "snapshots"
REFUSED = ROUNDS.parent / "refused"


CLASS_PATHS: Mapping[str, Callable[[str], str]] = {
    "all": jars.class_path,
    "java alone": jars.class_path_of_java_alone,
    # Only these cases need them.
    "other backends": lambda version: jars.with_other_backends(version).class_path(),
}


@dataclass(frozen=True)
class Golden:
    """One case: which Flink runs what, and in which version of the format Flink writes the metadata anew, if at all.

    A checkpoint of a job with rounds comes with its shared files; ``carried_to``: that of another parallelism, which
    the job took after it was started from the first one. ``jars``: what is on the class path, by `CLASS_PATHS`;
    ``refused``: it can't be read. ``earlier``: the case from which the job was started, whose contents it has
    written over in part.
    """

    version: str
    job: Job
    format: str = "CANONICAL"
    metadata_version: int | None = None
    carried_to: int | None = None
    jars: str = "all"
    refused: bool = False
    earlier: str | None = None

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return REFUSED if self.refused else ROUNDS if self.job.rounds else SAVEPOINTS


def _small(name: str, keys: int, backend: str = "rocksdb", inline_threshold: int = 0) -> Job:
    """A scenario with fewer keys, and its state in files unless told otherwise."""
    job = SCENARIOS.get(name) or DECLARED_MAPS[name]
    operators = tuple(replace(o, keys=min(o.keys, keys)) for o in job.operators)
    return replace(job, operators=operators, backend=backend, inline_threshold=inline_threshold)


def _in_files(job: Job) -> Job:
    return replace(job, inline_threshold=0)


# In the metadata of a checkpoint are absolute paths, here below this folder.
_CHECKPOINTS = "/tmp/stateferry-golden"
_INCREMENTAL = {"execution.checkpointing.incremental": "true"}
_DEFAULT_THRESHOLD = Job.inline_threshold


_MERGED_FILES = {"execution.checkpointing.file-merging.enabled": "true"}
TIMERS_ON_THE_HEAP = {"state.backend.rocksdb.timer-service.factory": "HEAP"}
_IN_PLACE = {**_INCREMENTAL, "execution.checkpointing.dir": f"file://{_CHECKPOINTS}"}


def _rounds(rounds: int, **changes: Any) -> Job:
    """All kinds of state, overwritten, deleted and cleared in rounds, each with an incremental checkpoint after it."""
    (operator,) = SCENARIOS["kinds-ttl"].operators
    # Timers that are due fire in a job that is started again.
    operator = replace(operator, timers=Timers(event=2, far=2))
    job = Job((operator,), rounds=rounds, parallelism=2, inline_threshold=0, settings=_IN_PLACE)
    return replace(job, **changes)


def _upgraded(name: str, keys: int) -> Job:
    """The job of another version: it writes only half of the maps again, with more entries, and not every state."""
    (operator,) = _small(name, keys).operators
    # Flink 2 takes a hint of Map for another type than Flink 1, and refuses to start.
    by_kryo = tuple(
        s for s in operator.states if s.type.startswith(("HashMap", "LinkedHashMap", "TreeMap", "MapClass"))
    )
    again = tuple(replace(s, share=(0.0, 0.35), type=s.type.replace("{0-", "{1-1")) for s in by_kryo)
    return replace(_small(name, keys), operators=(replace(operator, states=again),))


def _upgraded_pojos() -> Job:
    """The job of Flink 2 writes a part of the POJOs again whose maps are by Kryo there too."""
    (operator,) = in_pojos("2.3.0").operators
    states = tuple(replace(state, share=(0.0, 0.5)) for state in operator.states if state.name == "kryo")
    return replace(in_pojos("2.3.0"), operators=(replace(operator, states=states),))


def _upgraded_objects() -> Job:
    """The job of Flink 2 writes a part of the objects again."""
    (operator,) = in_objects("2.3.0").operators
    states = tuple(replace(state, share=(0.0, 0.5)) for state in operator.states)
    return replace(in_objects("2.3.0"), operators=(replace(operator, states=states),))


_CHANGELOG = {
    "state.changelog.enabled": "true",
    "state.changelog.storage": "filesystem",
    "state.changelog.dstl.dfs.base-path": f"file://{_CHECKPOINTS}/changelog",
}


def _asynchronous() -> Job:
    """Windows whose state is asynchronous."""
    job = _small("windows", 3)
    operators = tuple(replace(o, asynchronous=True) for o in job.operators if o.assigner == "tumbling")
    return replace(job, operators=operators[:1])


def _legacy_in_rounds() -> Job:
    """The state of `legacy-ttl-2.3-rocksdb`, as RocksDB has it after two rounds."""
    return replace(_small("legacy-string-long-ttl", 128), rounds=2, settings=_IN_PLACE)


DECLARED: Mapping[str, Golden] = {
    "hint-map-2.3-rocksdb": Golden("2.3.0", _small("hint-map", 24)),
    "hint-map-ttl-2.3-hashmap": Golden("2.3.0", _small("hint-map-ttl", 24, "hashmap")),
    "hint-map-1.20-rocksdb": Golden("1.20.0", _small("hint-map", 24)),
    "hint-map-ttl-1.20-hashmap": Golden("1.20.0", _small("hint-map-ttl", 24, "hashmap")),
    "hint-hash-map-1.20-rocksdb": Golden("1.20.0", _small("hint-hash-map", 24)),
    "hint-hash-map-ttl-1.20-rocksdb": Golden("1.20.0", _small("hint-hash-map-ttl", 24)),
    "hint-hash-map-2.3-rocksdb": Golden("2.3.0", _small("hint-hash-map", 24)),
    "hint-hash-map-ttl-2.3-hashmap": Golden("2.3.0", _small("hint-hash-map-ttl", 24, "hashmap")),
    "native-hint-hash-map-1.20-rocksdb": Golden("1.20.0", _small("hint-hash-map", 12), format="NATIVE"),
    "declared-1.20-rocksdb": Golden("1.20.0", _small("declared", 8)),
    "declared-ttl-1.20-hashmap": Golden("1.20.0", _small("declared-ttl", 8, "hashmap")),
    "declared-2.3-hashmap": Golden("2.3.0", _small("declared", 8, "hashmap")),
    "declared-ttl-2.3-rocksdb": Golden("2.3.0", _small("declared-ttl", 8)),
    "upgraded-2.3-rocksdb": Golden("2.3.0", _upgraded("declared", 8), earlier="declared-1.20-rocksdb"),
    "upgraded-hint-hash-map-2.3-rocksdb": Golden(
        "2.3.0", _upgraded("hint-hash-map", 24), earlier="hint-hash-map-1.20-rocksdb"
    ),
    "upgraded-hint-hash-map-ttl-2.3-rocksdb": Golden(
        "2.3.0", _upgraded("hint-hash-map-ttl", 24), earlier="hint-hash-map-ttl-1.20-rocksdb"
    ),
}
"""Maps as people declare them."""

IN_POJOS: Mapping[str, Golden] = {
    "in-pojos-1.20-rocksdb": Golden("1.20.0", _in_files(in_pojos("1.20.0"))),
    "in-pojos-ttl-1.20-hashmap": Golden("1.20.0", _in_files(in_pojos("1.20.0", "hashmap", "stamped"))),
    "in-pojos-ttl-1.20-rocksdb": Golden("1.20.0", _in_files(in_pojos("1.20.0", ttl="stamped"))),
    "in-pojos-2.3-hashmap": Golden("2.3.0", _in_files(in_pojos("2.3.0", "hashmap"))),
    "in-pojos-ttl-2.3-rocksdb": Golden("2.3.0", _in_files(in_pojos("2.3.0", ttl="stamped"))),
    "in-pojos-upgraded-2.3-rocksdb": Golden("2.3.0", _in_files(_upgraded_pojos()), earlier="in-pojos-1.20-rocksdb"),
}
"""Maps in fields of POJOs."""

IN_COLLECTIONS: Mapping[str, Golden] = {"in-collections-1.20-rocksdb": Golden("1.20.0", _in_files(in_collections()))}
"""Collections of POJOs, enums and objects by Kryo inside of values."""

IN_OBJECTS: Mapping[str, Golden] = {
    "in-objects-1.20-rocksdb": Golden("1.20.0", _in_files(in_objects("1.20.0"))),
    "in-objects-ttl-1.20-hashmap": Golden("1.20.0", _in_files(in_objects("1.20.0", "hashmap", "stamped"))),
    "in-objects-ttl-2.3-rocksdb": Golden("2.3.0", _in_files(in_objects("2.3.0", ttl="stamped"))),
    "in-objects-upgraded-2.3-rocksdb": Golden(
        "2.3.0", _in_files(_upgraded_objects()), earlier="in-objects-1.20-rocksdb"
    ),
}
"""Maps in fields of objects that Kryo wrote as a whole."""

KRYO_PARTS: Mapping[str, Golden] = {
    "kryo-parts-1.20-rocksdb": Golden("1.20.0", _in_files(with_kryo_parts("1.20.0"))),
    "kryo-parts-ttl-1.20-hashmap": Golden("1.20.0", _in_files(with_kryo_parts("1.20.0", "hashmap", "stamped"))),
    "kryo-parts-2.3-hashmap": Golden("2.3.0", _in_files(with_kryo_parts("2.3.0", "hashmap"))),
    "kryo-parts-ttl-2.3-rocksdb": Golden("2.3.0", _in_files(with_kryo_parts("2.3.0", ttl="stamped"))),
    "pojo-parts-1.20-rocksdb": Golden("1.20.0", _in_files(with_pojo_parts())),
    "pojo-parts-ttl-2.3-hashmap": Golden("2.3.0", _in_files(with_pojo_parts("hashmap", "stamped"))),
}
"""Maps by Flink's own map serializer, with keys and values by Kryo, or with parts that are."""

CASES: Mapping[str, Golden] = {
    "legacy-2.3-rocksdb": Golden("2.3.0", _small("legacy-string-long", 128)),
    "legacy-ttl-2.3-rocksdb": Golden("2.3.0", _small("legacy-string-long-ttl", 128)),
    "legacy-1.20-hashmap": Golden("1.20.0", _small("legacy-string-long", 128, "hashmap")),
    "legacy-ttl-1.20-rocksdb": Golden("1.20.0", _small("legacy-string-long-ttl", 128)),
    "legacy-ttl-inlined-2.3-hashmap": Golden(
        "2.3.0", _small("legacy-string-long-ttl", 128, "hashmap", _DEFAULT_THRESHOLD)
    ),
    "legacy-files-and-inlined-1.20-rocksdb": Golden("1.20.0", SCENARIOS["legacy-files-and-inlined"]),
    "legacy-snappy-2.3-rocksdb": Golden("2.3.0", _small("legacy-snappy", 40)),
    "legacy-snappy-1.20-hashmap": Golden("1.20.0", _small("legacy-snappy", 40, "hashmap")),
    "legacy-wide-1.20-rocksdb": Golden("1.20.0", _small("legacy-wide", 30)),
    "legacy-tuple-pojo-2.3-rocksdb": Golden("2.3.0", _small("legacy-tuple-pojo", 10)),
    "legacy-integer-row-ttl-1.20-hashmap": Golden("1.20.0", _small("legacy-integer-row-ttl", 20, "hashmap")),
    "legacy-pojo-list-ttl-2.3-hashmap": Golden("2.3.0", _small("legacy-pojo-list-ttl", 15, "hashmap")),
    "legacy-enum-1.20-rocksdb": Golden("1.20.0", _small("legacy-string-enum", 20)),
    **{
        name: replace(case, jars="java alone")
        for name, case in {**DECLARED, **IN_POJOS, **IN_COLLECTIONS, **IN_OBJECTS, **KRYO_PARTS}.items()
    },
    "hint-hash-map-scala-avro-1.20-hashmap": Golden("1.20.0", _small("hint-hash-map", 24, "hashmap")),
    "kinds-2.3-rocksdb": Golden("2.3.0", _small("kinds", 12)),
    "kinds-ttl-1.20-hashmap": Golden("1.20.0", _small("kinds-ttl", 12, "hashmap")),
    "kinds-in-windows-1.20-rocksdb": Golden("1.20.0", _small("kinds-in-windows", 4)),
    "kinds-in-strings-2.3-rocksdb": Golden("2.3.0", _small("kinds-in-strings", 4)),
    "windows-2.3-hashmap": Golden("2.3.0", _small("windows", 5, "hashmap")),
    "windows-1.20-rocksdb": Golden("1.20.0", _small("windows", 5)),
    "operator-state-2.3-rocksdb": Golden("2.3.0", _small("operator-state", 8)),
    "operator-state-1.20-hashmap": Golden("1.20.0", _small("operator-state", 8, "hashmap", _DEFAULT_THRESHOLD)),
    "several-operators-2.3-hashmap": Golden("2.3.0", _small("several-operators", 20, "hashmap")),
    "finished-2.3-rocksdb": Golden("2.3.0", _small("finished", 10)),
    "sparse-wide-2.3-rocksdb": Golden("2.3.0", replace(_small("sparse-wide", 3), max_parallelism=1024)),
    "scalars-2.3-rocksdb": Golden("2.3.0", _small("scalars", 3)),
    "composites-2.3-rocksdb": Golden("2.3.0", _small("composites", 2)),
    "composites-ttl-1.20-hashmap": Golden("1.20.0", _small("composites-ttl", 2, "hashmap")),
    "arrays-1.20-hashmap": Golden("1.20.0", _small("arrays", 3, "hashmap")),
    "lists-ttl-2.3-rocksdb": Golden("2.3.0", _small("lists-ttl", 4)),
    "maps-2.3-hashmap": Golden("2.3.0", _small("maps", 4, "hashmap")),
    "map-nulls-2.3-rocksdb": Golden("2.3.0", _small("map-nulls", 5)),
    "since-flink-2-2.3-hashmap": Golden("2.3.0", _small("since-flink-2", 3, "hashmap")),
    "subclasses-2.3-rocksdb": Golden("2.3.0", _small("subclasses", 4)),
    "one-subclass-registered-1.20-rocksdb": Golden("1.20.0", _small("one-subclass-registered", 3)),
    "all-subclasses-registered-2.3-hashmap": Golden("2.3.0", _small("all-subclasses-registered", 3, "hashmap")),
    "kryo-1.20-rocksdb": Golden("1.20.0", _small("kryo", 8)),
    "kryo-2.3-rocksdb": Golden("2.3.0", _small("kryo", 8)),
    "kryo-registered-1.20-rocksdb": Golden("1.20.0", _small("kryo-registered", 4)),
    "kryo-registered-2.3-rocksdb": Golden("2.3.0", _small("kryo-registered", 4)),
    "scala-1.20-rocksdb": Golden("1.20.0", _small("scala", 5)),
    "scala-keys-1.20-rocksdb": Golden("1.20.0", _in_files(kinds(SCALA[1], None, keys=8))),
    "avro-2.3-rocksdb": Golden("2.3.0", _small("avro", 5)),
    "avro-legacy-ttl-1.20-hashmap": Golden("1.20.0", _small("avro-legacy-ttl", 6, "hashmap")),
    "metadata-3-1.20-rocksdb": Golden("1.20.0", _small("operator-state", 2), metadata_version=3),
    "metadata-5-2.3-rocksdb": Golden("2.3.0", _small("operator-state", 2), metadata_version=5),
    "native-2.3-rocksdb": Golden("2.3.0", _small("legacy-string-long", 5), format="NATIVE"),
    "native-2.3-hashmap": Golden("2.3.0", _small("legacy-string-long", 5, "hashmap"), format="NATIVE"),
    "changelog-checkpoint-2.3": Golden(
        "2.3.0",
        replace(_small("legacy-string-long", 5), settings=_CHANGELOG),
        format="CHECKPOINT",
        jars="other backends",
        refused=True,
    ),
    "forst-asynchronous-checkpoint-2.3": Golden(
        "2.3.0", replace(_asynchronous(), backend="forst"), format="CHECKPOINT", jars="other backends", refused=True
    ),
    "hashmap-checkpoint-2.3": Golden(
        "2.3.0", _small("legacy-string-long", 5, "hashmap"), format="CHECKPOINT", refused=True
    ),
    "checkpoint-2.3-rocksdb": Golden(
        "2.3.0", replace(_small("legacy-string-long", 5), settings=_INCREMENTAL), format="CHECKPOINT"
    ),
    "rounds-2.3-rocksdb": Golden("2.3.0", _rounds(6)),
    "rounds-native-2.3-rocksdb": Golden("2.3.0", _rounds(6), format="NATIVE"),
    "rounds-native-1.20-rocksdb": Golden("1.20.0", _rounds(3), format="NATIVE"),
    "rounds-checkpoint-2.3-rocksdb": Golden("2.3.0", _rounds(3), format="CHECKPOINT"),
    "rounds-checkpoint-1.20-rocksdb": Golden("1.20.0", _rounds(6), format="CHECKPOINT"),
    "rounds-legacy-ttl-native-2.3-rocksdb": Golden("2.3.0", _legacy_in_rounds(), format="NATIVE"),
    "rounds-legacy-ttl-checkpoint-2.3-rocksdb": Golden("2.3.0", _legacy_in_rounds(), format="CHECKPOINT"),
    "rounds-merged-2.3-rocksdb": Golden(
        "2.3.0", _rounds(3, settings={**_IN_PLACE, **_MERGED_FILES}), format="CHECKPOINT"
    ),
    "rounds-merged-heap-timers-1.20-rocksdb": Golden(
        "1.20.0", _rounds(3, settings={**_IN_PLACE, **_MERGED_FILES, **TIMERS_ON_THE_HEAP}), format="CHECKPOINT"
    ),
    "rounds-heap-timers-2.3-rocksdb": Golden(
        "2.3.0", _rounds(2, settings={**_IN_PLACE, **TIMERS_ON_THE_HEAP}), format="CHECKPOINT"
    ),
    "rounds-full-1.20-rocksdb": Golden(
        "1.20.0",
        _rounds(2, settings={**_IN_PLACE, "execution.checkpointing.incremental": "false"}),
        format="CHECKPOINT",
    ),
    "rounds-2-to-3-2.3-rocksdb": Golden("2.3.0", _rounds(3), format="CHECKPOINT", carried_to=3),
    "rounds-3-to-2-1.20-rocksdb": Golden("1.20.0", _rounds(3, parallelism=3), format="CHECKPOINT", carried_to=2),
}


def make(names: list[str]) -> None:
    """Replace the named cases, each by a fresh savepoint."""
    for version, jars_ in sorted({(CASES[name].version, CASES[name].jars) for name in names}):
        with FlinkHarness(version, CLASS_PATHS[jars_](version)) as flink:
            for name in names:
                case = CASES[name]
                if (case.version, case.jars) == (version, jars_):
                    target = case.folder / name
                    shutil.rmtree(target, ignore_errors=True)
                    made = _made(flink, case, target)
                    if case.metadata_version is not None:
                        metadata = made.path / "_metadata"
                        flink.rewrite_metadata(made.path, metadata, version=case.metadata_version)
                    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in made.lines)
                    (target / "expected.jsonl").write_text(text, encoding="ascii")


def _made(flink: FlinkHarness, case: Golden, target: Path) -> Made:
    if not (case.job.rounds and case.format == "CHECKPOINT"):
        if case.earlier is None:
            return flink.make(case.job, target, format_=case.format)
        earlier = CASES[case.earlier].folder / case.earlier
        return _over(_lines(earlier), flink.make(case.job, target, format_=case.format, earlier=earlier))
    made = flink.make_in_place(case.job, format_=case.format)
    chosen = made.path
    if case.carried_to is not None:
        chosen = flink.carry(chosen, replace(case.job, parallelism=case.carried_to), format_=case.format)
    shutil.copytree(chosen.parent, target)
    shutil.rmtree(_CHECKPOINTS)
    return Made(target, made.lines)


def _lines(savepoint: Path) -> list[Line]:
    with (savepoint / "expected.jsonl").open(encoding="ascii") as lines:
        return [json.loads(line) for line in lines]


def _over(earlier: list[Line], made: Made) -> Made:
    """What there is after a job has written over a part of an earlier savepoint."""

    def place(line: Line) -> str:
        return json.dumps([line["state"], line["key"], line.get("user_key")])

    written = {place(line) for line in made.lines}
    return Made(made.path, [*made.lines, *(line for line in earlier if place(line) not in written)])


if __name__ == "__main__":
    make(sys.argv[1:] or list(CASES))
