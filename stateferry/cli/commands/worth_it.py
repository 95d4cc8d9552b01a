"""`stateferry worth-it`: says what a migration to MapState gains, by the sizes of the maps or measured on RocksDB."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flinkstate.errors import UsageError
from stateferry.cli.progress import progress_bar
from stateferry.cli.savepoint_options import add_files_from, add_savepoint, opened

if TYPE_CHECKING:
    from flinkstate.reading.reader import Savepoint
    from stateferry.look.access_times import AccessTimes, MapSize
    from stateferry.look.blob_sizes import BlobSizes

HELP = "say what a migration gains, by sizes or measured on RocksDB"
DESCRIPTION = """\
Say for each ValueState of a map whether a migration to MapState is worth it. With --measure, changes and reads of maps
of the same size are timed on Flink's own RocksDB: as one value for each map, and as one row for each entry. Java isn't
needed for that, but a jar of Flink. Nothing is changed; 32 MB of databases are written into a temporary folder.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_savepoint(parser)
    parser.add_argument("--measure", action="store_true", help="time accesses to maps of these sizes on RocksDB")
    parser.add_argument(
        "--jar",
        metavar="JAR",
        help="the jar with RocksDB: flink-dist or frocksdbjni (default: that of the Flink in FLINK_HOME)",
    )
    parser.add_argument(
        "--threads", type=int, default=2, metavar="N", help="time changes by N threads too (default: 2)"
    )
    parser.add_argument(
        "--seconds", type=float, default=2.0, metavar="S", help="time each kind of access for so long (default: 2)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    add_files_from(parser)


def run(options: argparse.Namespace) -> int:
    from stateferry.look.survey import bytes_to_read, survey

    if not (1 <= options.threads <= 64 and 0 < options.seconds <= 60):
        raise UsageError("expected --threads of 1 to 64 and --seconds above 0 and up to 60")
    if options.jar is not None and not options.measure:
        raise UsageError("expected --measure with --jar: only a measurement needs RocksDB")
    savepoint = opened(options)
    with progress_bar("reading", bytes_to_read(savepoint)) as bytes_read:
        operators = survey(savepoint, bytes_read)
    found = {
        f"{one.operator.label}/{state.state.name}": state.blobs
        for one in operators
        if one.keyed is not None
        for state in one.keyed.states
        if state.blobs is not None
    }
    times = _measured(found, options) if options.measure else {}
    if options.json:
        _show_json(savepoint, found, times)
    else:
        _show(found, times)
    return 0


def _measured(found: dict[str, BlobSizes], options: argparse.Namespace) -> dict[str, list[AccessTimes]]:
    import tempfile

    from flinkstate.files.temporary_folder import make_temporary_folder
    from stateferry.look.access_times import measure
    from stateferry.look.rocksdb_library import find_jar, load_library

    jar = find_jar() if options.jar is None else Path(options.jar)
    folder = Path(make_temporary_folder())
    library = load_library(jar, folder)
    times = {}
    for name, blobs in found.items():
        with tempfile.TemporaryDirectory(dir=folder) as databases:
            times[name] = measure(library, Path(databases), _size(blobs), options.threads, options.seconds)
    return times


def _size(blobs: BlobSizes) -> MapSize:
    """The average map; one without entries counts as one entry."""
    from stateferry.look.access_times import MapSize

    entries = max(round(blobs.total_entries / blobs.blobs), 1)
    return MapSize(entries, max(round(blobs.key_bytes / blobs.blobs), 4), max(round(blobs.entry_bytes), 1))


def _show(found: dict[str, BlobSizes], times: dict[str, list[AccessTimes]]) -> None:
    from rich.table import Table

    from stateferry.basics.people_text import console_on, plain

    with console_on(sys.stdout) as console:
        if not found:
            console.print("no ValueState of a map with entries, so there is nothing to migrate")
        for name, blobs in found.items():
            mean = blobs.total_entries / blobs.blobs
            console.print(
                plain(
                    f"{name}: {blobs.blobs:,} maps of {mean:,.1f} entries and {blobs.entry_bytes:,.0f} bytes an entry"
                )
            )
            if name in times:
                table = Table("on RocksDB, microseconds", "threads", "whole map", "one entry", "times as fast")
                for one in times[name]:
                    cells = (f"{one.whole:,.1f}", f"{one.entry:,.1f}", f"{one.gain:,.1f}")
                    table.add_row(one.what, str(one.threads), *cells)
                console.print(table)
                console.print(
                    plain("A job gains more: for a whole map Java also reads and writes each entry as objects.")
                )
            reason = blobs.why_not_worth_it
            console.print(
                plain(f"worth it: {blobs.yes}", "green") if reason is None else plain(f"worth it: no: {reason}")
            )


def _show_json(savepoint: Savepoint, found: dict[str, BlobSizes], times: dict[str, list[AccessTimes]]) -> None:
    from stateferry.cli.commands.inspect import worth_facts

    states = [
        {
            "state": name,
            **worth_facts(blobs),
            "measured": [
                {"access": one.what, "threads": one.threads, "whole_map_us": one.whole, "one_entry_us": one.entry}
                for one in times.get(name, ())
            ],
        }
        for name, blobs in found.items()
    ]
    sys.stdout.write(json.dumps({"path": savepoint.folder.shown, "states": states}, indent=2) + "\n")
