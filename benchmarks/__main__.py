"""`python -m benchmarks [SUBJECT ...]`: measures, prints tables and writes them to a file.

Each subject is a module. A new one is listed in `SUBJECTS`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks import (
    accessing,
    catching_up,
    exchanging,
    hashing,
    kryo_maps,
    moving,
    native_nights,
    native_reading,
    native_runs,
    native_writing,
    object_store,
    outage,
    outage_by_dag,
    pipeline,
    planning,
    publishing,
    reading,
    rescaling,
    scheduling,
    sections,
    snappy,
    starting,
    walking,
)
from benchmarks.measuring import ENTRIES, KEYS, ROUNDS, Scale, Subject, stay_on_one_core
from benchmarks.report import circumstances, tables

SUBJECTS: dict[str, Subject] = {
    "walking": walking.SUBJECT,
    "kryo_maps": kryo_maps.SUBJECT,
    "kryo_runs": kryo_maps.RUNS,
    "upgrades": kryo_maps.UPGRADES,
    "sections": sections.SUBJECT,
    "reading": reading.SUBJECT,
    "native_reading": native_reading.SUBJECT,
    "native_writing": native_writing.SUBJECT,
    "hashing": hashing.SUBJECT,
    "exchanging": exchanging.SUBJECT,
    "snappy": snappy.SUBJECT,
    "starting": starting.SUBJECT,
    "moving": moving.SUBJECT,
    "planning": planning.SUBJECT,
    "scheduling": scheduling.SUBJECT,
    "pipeline": pipeline.SUBJECT,
    "publishing": publishing.SUBJECT,
    "native_runs": native_runs.SUBJECT,
    "native_nights": native_nights.SUBJECT,
    "catching_up": catching_up.SUBJECT,
    "catching_up_large": catching_up.GROWTH,
    "rescaling": rescaling.SUBJECT,
    "accessing": accessing.SUBJECT,
    "accessing_layers": accessing.LAYERS,
    "object_store": object_store.SUBJECT,
    "outage": outage.SUBJECT,
    "outage_large": outage.LARGE,
    "outage_by_dag": outage_by_dag.SUBJECT,
}
_DESCRIPTION = (
    "Measures how fast kernels, steps and whole runs are. All but whole runs use one core. In parentheses: defaults."
)
_INTRODUCTION = """\
# How fast it is

Each figure is the median of several rounds on one core, after a first round that does not count. "per CPU second"
counts only the processor time of the measured process, without waiting for the disk. "plain Python" does the same work
value by value, on fewer entries. "faster by" compares both by processor time. When the clock stops, all output is on
disk. All input is in memory before the clock starts, unless a title says otherwise. Whole runs use all cores, every
round counts, and each step reads from disk what an earlier step wrote. Variants of a whole run are measured once.
Outages are measured once each, on all cores: the new job starts as soon as its savepoint is published, and a part that
takes over 15 minutes is stopped."""


def main(argv: list[str] | None = None) -> int:
    """Measures the subjects that are named, or all."""
    parser = argparse.ArgumentParser("python -m benchmarks", description=_DESCRIPTION)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"what to measure: {', '.join(SUBJECTS)} (all)")
    parser.add_argument("--entries", type=int, default=ENTRIES, help="map entries in each measurement (%(default)s)")
    parser.add_argument(
        "--keys", type=int, default=KEYS, help="keys of a whole run, with 100 entries each (%(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each measurement (%(default)s)")
    parser.add_argument("--folder", help="folder for generated savepoints (the system's folder for temporary files)")
    parser.add_argument("--out", type=Path, help="file for the tables (benchmarks/results.md if all is measured)")
    options = parser.parse_args(argv)
    if unknown := set(options.subjects) - set(SUBJECTS):
        parser.error(f"there is no subject {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}")
    if min(options.entries, options.rounds, options.keys) < 1:
        parser.error("entries, rounds and keys are at least 1")
    core = stay_on_one_core()
    parts = [_INTRODUCTION]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        scale = Scale(Path(folder), options.entries, options.rounds, options.keys)
        for name in options.subjects or SUBJECTS:
            subject = SUBJECTS[name]
            parts.append(f"## {subject.title}\n\n{tables(subject.measure(scale))}")
            sys.stdout.write(f"{parts[-1]}\n\n")
            sys.stdout.flush()
    command = " ".join(["python -m benchmarks", *(argv if argv is not None else sys.argv[1:])])
    parts.append(f"## Measured with\n\n{circumstances(core, command)}")
    sys.stdout.write(f"{parts[-1]}\n")
    out = options.out or (None if options.subjects else Path(__file__).with_name("results.md"))
    if out is not None:
        out.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
