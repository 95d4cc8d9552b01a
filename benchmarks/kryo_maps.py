"""Measures maps that Kryo wrote: finding their classes, and their way into the form of Flink's own serializer.

Whole runs of the same state, declared by Types.MAP and by a TypeHint of HashMap, stand beside each other.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.executing import execute
from benchmarks.measuring import Comparison, Execution, Rate, Scale, Subject, expect, timed
from benchmarks.pipeline import Bench, run_command, run_without_states
from benchmarks.sections import NOW
from benchmarks.walking import ENTRIES_PER_BLOB, sections_of
from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.kryo.class_finder import ClassFinder
from flinkstate.kryo.to_flink_maps import KryoReader
from flinkstate.kryo.to_other_kryo import Recoder
from flinkstate.serializers.built_snapshots import kryo_snapshot
from flinkstate.serializers.programs import compile_type
from flinkstate.serializers.types import KryoMapType, KryoType, MapType, Scalar
from flinkstate.values.kryo_values import read_kryo_map
from stateferry.demo_maps import Declared
from tests.support.kryo_writing import kryo_map

_FIND_GOAL, _INTO_SECTIONS_GOAL, _MOST_TIMES = 15e6, 10e6, 1.5
_MOST_MEMORY = 2e9
_DISTINCT_MAPS = 250
_HEAD = 4
_TYPE = MapType(Scalar.STRING, Scalar.LONG)

Sections = list[tuple[Bytes, Positions, Positions]]


def kryo_type() -> KryoType:
    """The serializer of a `HashMap` of a job that registers no classes."""
    found = kryo_snapshot("java.util.HashMap").type
    assert isinstance(found, KryoType)
    return found


def maps_of(count: int, five: bool) -> list[bytes]:
    """Maps of 100 entries with user keys of 8 characters, each behind four bytes for its length."""
    distinct = [
        bytes(_HEAD) + kryo_map({f"item{one:04}": 1_000_003 * (one + turn) for one in range(ENTRIES_PER_BLOB)}, five)
        for turn in range(_DISTINCT_MAPS)
    ]
    return [distinct[number % len(distinct)] for number in range(count)]


def find(kryo: KryoType, sections: Sections) -> int:
    """Finds the classes in all sections and returns the number of entries."""
    finder = ClassFinder(kryo)
    for data, starts, ends in sections:
        finder.add(data, starts + _HEAD, ends)
    return finder.found().entries


def into_sections(reader: KryoReader, sections: Sections) -> int:
    """Writes all maps as Flink's own serializer does, and returns the number of entries."""
    made = (reader.to_flink(data, starts, starts, ends, timestamps=False) for data, starts, ends in sections)
    return sum(one.counts.entries for one in made)


def for_other_kryo(recoder: Recoder, sections: Sections) -> int:
    """Writes all maps as Kryo 5 does, and returns the number of entries."""
    made = (recoder.recode(data, starts + _HEAD, ends, np.zeros_like(starts)) for data, starts, ends in sections)
    return sum(len(one.ends) for one in made) * ENTRIES_PER_BLOB


def measure(scale: Scale) -> Iterator[Rate]:
    """Two rates for each Kryo, and of Kryo 2 a third: written for Kryo 5."""
    kryo = kryo_type()
    for name, five in (("Kryo 2", False), ("Kryo 5", True)):
        maps = maps_of(max(scale.entries // ENTRIES_PER_BLOB, 1), five)
        few = maps[: max(scale.twin_entries // ENTRIES_PER_BLOB, 1)]
        sections, reader = sections_of(maps), KryoReader(kryo, _TYPE)
        twin = timed(len(few) * ENTRIES_PER_BLOB, _plain(kryo, few), 3, first=False)
        count = len(maps) * ENTRIES_PER_BLOB
        expect(find(kryo, sections), count, "entries found")
        expect(into_sections(reader, sections), count, "entries written")
        what = f"HashMap<String,Long> by {name}, {ENTRIES_PER_BLOB} entries each"
        found = timed(count, partial(find, kryo, sections), scale.rounds)
        yield Rate(f"{what}: classes found", "entries", found, _FIND_GOAL, twin)
        written = timed(count, partial(into_sections, reader, sections), scale.rounds)
        yield Rate(f"{what}: into Flink's form", "entries", written, _INTO_SECTIONS_GOAL, twin)
        if not five:
            recoder = Recoder(compile_type(replace(kryo, five=False)))
            expect(for_other_kryo(recoder, sections), count, "entries written")
            upgraded = timed(count, partial(for_other_kryo, recoder, sections), scale.rounds)
            yield Rate(f"{what}: for Kryo 5", "entries", upgraded)


def _plain(kryo: KryoType, maps: list[bytes]) -> Callable[[], int]:
    type_ = KryoMapType(kryo.class_name, kryo.reason, kryo, _TYPE)
    return lambda: sum(len(read_kryo_map(type_, data, _HEAD)) for data in maps)


def measure_runs(scale: Scale) -> Iterator[Comparison]:
    """Rehearsals of the same state, as Types.MAP and as Kryo store it."""
    bench, nights = Bench(scale.folder, scale.keys), {}
    for declared in (Declared.MAP, Declared.KRYO_2, Declared.KRYO_5):
        source = bench.source(f"declared-{declared.name.lower()}", replace(bench.plain, declared=declared))
        nights[declared] = Comparison(f"declared by {declared.value}", (bench.night(source).execution,))
        shutil.rmtree(source)
        if declared is Declared.MAP:
            yield nights[declared]
            continue
        yield nights[declared].beside(nights[Declared.MAP], 1 / _MOST_TIMES)


def measure_upgrades(scale: Scale) -> Iterator[Comparison]:
    """The upgrade of maps that Kryo 2 wrote, beside the migration of the same state from Types.MAP."""
    bench = Bench(scale.folder, scale.keys)
    source = bench.source("of-types-map", bench.plain)
    migrated = Comparison("migration of Types.MAP", (_run(bench, run_command(source, bench.folder / "new")),))
    shutil.rmtree(source)
    yield migrated
    source = bench.source("of-kryo-2", replace(bench.plain, declared=Declared.KRYO_2))
    command = run_without_states(source, bench.folder / "new", "--to", "flink-2")
    upgraded = Comparison("upgrade of HashMap", (_run(bench, command),))
    shutil.rmtree(source)
    yield upgraded.beside(migrated, 1 / _MOST_TIMES, _MOST_MEMORY)


def _run(bench: Bench, command: list[str]) -> Execution:
    home = bench.folder / "home-of-upgrades"
    environment = {"STATEFERRY_HOME": str(home)}
    done = execute([*command, "--now", str(NOW)], bench.folder / "run.log", environment=environment)
    for folder in (bench.folder / "new", home):
        shutil.rmtree(folder)
    return done


SUBJECT = Subject("Maps that Kryo wrote", measure)
UPGRADES = Subject(
    "A whole run that writes maps by Kryo 2 for Kryo 5, 100 entries a key, on all cores", measure_upgrades
)
RUNS = Subject(
    "A whole run of maps that Kryo wrote, beside one of Types.MAP, 100 entries a key, on all cores", measure_runs
)
