"""`stateferry demo-savepoint`: writes a legacy savepoint for experiments, without Flink."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from flinkstate.errors import UsageError
from stateferry.basics.durations import now_ms, parse_duration
from stateferry.basics.printable import say
from stateferry.basics.private_files import usual_files
from stateferry.cli.progress import progress_bar

if TYPE_CHECKING:
    from stateferry.demo_maps import Declared

_METADATA_VERSIONS = {"2.3": 6, "1.20": 4}

HELP = "write a savepoint to try things on"
DESCRIPTION = """\
Write a savepoint such as a job leaves that keeps its data in a ValueState of a map and has begun to move it to a
MapState: operator main with mainState (ValueState<Map<String,Long>>), and for the keys already moved newMainState
(MapState<String,Long>) and isMigratedState (ValueState<Boolean>). The same arguments and --now give the same bytes.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", metavar="DIR", help="where to write it: a folder that is empty or doesn't exist yet")
    add("--keys", type=int, default=10_000, metavar="N", help="keys (default %(default)s)")
    add("--entries", type=int, default=20, metavar="N", help="entries in each key's map (default %(default)s)")
    add("--ttl", type=_duration, metavar="DURATION", help="with time to live: ages up to a little more (default none)")
    add("--migrated", type=float, default=0.3, metavar="SHARE", help="of the keys, moved already (default %(default)s)")
    add("--parallelism", type=int, default=4, metavar="N", help="subtasks (default %(default)s)")
    add("--max-parallelism", type=int, default=128, metavar="N", help="key groups (default %(default)s)")
    add("--seed", type=int, default=1, metavar="N", help="of all that is random (default %(default)s)")
    add("--now", type=int, metavar="MS", help="the time that the ages count from (default now)")
    add("--compressed", action="store_true", help="with snappy, as a job with snapshot compression writes it")
    add("--flink", choices=tuple(_METADATA_VERSIONS), default="2.3", help="as this version writes it (default 2.3)")
    declared = parser.add_mutually_exclusive_group()
    declared.add_argument(
        "--nullable", action="store_true", help="mainState is declared by a TypeHint<Map<String, Long>> in Flink 2"
    )
    declared.add_argument(
        "--kryo", action="store_true", help="mainState is declared by a TypeHint<HashMap<String, Long>>"
    )


def _duration(text: str) -> int:
    try:
        return parse_duration(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _declared(options: argparse.Namespace) -> Declared:
    from stateferry.demo_maps import Declared

    if options.kryo:
        return Declared.KRYO_2 if options.flink == "1.20" else Declared.KRYO_5
    if options.nullable and options.flink == "1.20":
        raise UsageError("--nullable needs --flink 2.3: in Flink 1.20 a map declared by a TypeHint is Kryo (--kryo)")
    return Declared.NULLABLE if options.nullable else Declared.MAP


def run(options: argparse.Namespace) -> int:
    from flinkstate.files.storage import Location
    from stateferry.demo import DemoState, write_demo_savepoint

    folder = Location.of(options.folder)
    if folder.is_file() or folder.entries():
        raise UsageError(f"{folder.shown} exists and is not empty: name a new folder or remove it first")
    state = DemoState(
        keys=options.keys,
        entries=options.entries,
        migrated=options.migrated,
        ttl=options.ttl,
        now=now_ms() if options.now is None else options.now,
        parallelism=options.parallelism,
        max_parallelism=options.max_parallelism,
        seed=options.seed,
        compressed=options.compressed,
        metadata_version=_METADATA_VERSIONS[options.flink],
        declared=_declared(options),
    )
    with usual_files(), progress_bar("writing", state.size) as written:
        write_demo_savepoint(options.folder, state, written)
    say(
        f"wrote {folder.shown}: {state.keys:,} keys with {state.entries:,} entries each, "
        f"{state.migrated_keys:,} of the keys moved already"
    )
    say(f"try: stateferry inspect {options.folder}")
    if state.ttl is not None:
        say(f"its ages count from this moment: to migrate it another day, run with --now {state.now}")
    return 0
