"""`stateferry where`: shows to which key group, subtask and bytes a key belongs, today and in another layout."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from stateferry.cli.savepoint_options import add_files_from, add_savepoint, opened

if TYPE_CHECKING:
    from rich.table import Table

    from stateferry.look.balance.key_place import KeyFinder, KeyPlace, StateRows

HELP = "say to which key group and subtask a key belongs"
DESCRIPTION = """\
Say where a key belongs: its hash, its key group, the subtask that has this key group, the subtask's range, and the
file and offset of the key group. With --parallelism or --max-parallelism also where it belongs in that layout.

KEY is in the form that `stateferry dump` prints: a number or a text as it is; tuples, rows, lists and POJOs as JSON.
A KEY that begins with - comes last, behind --.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_savepoint(parser)
    parser.add_argument("--operator", required=True, metavar="NAME", help="the operator's id, uid or unique name")
    parser.add_argument("key", metavar="KEY", help="the key, as `stateferry dump` prints it")
    parser.add_argument("--parallelism", type=int, metavar="N", help="of the other layout (default: as it is)")
    parser.add_argument("--max-parallelism", type=int, metavar="N", help="of the other layout (default: as it is)")
    parser.add_argument(
        "--look", action="store_true", help="also say what each state has of the key; reads its key group"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    add_files_from(parser)


def run(options: argparse.Namespace) -> int:
    from flinkstate.hashing.key_groups import check_layout
    from stateferry.look.balance.key_place import KeyFinder

    savepoint = opened(options)
    operator = savepoint.operator(options.operator)
    layout = (options.parallelism, options.max_parallelism)
    parallelism = operator.parallelism if layout[0] is None else layout[0]
    max_parallelism = operator.max_parallelism if layout[1] is None else layout[1]
    check_layout(max_parallelism, parallelism)
    finder = KeyFinder(savepoint, operator, options.key)
    found_in, states = finder.rows() if options.look else (None, None)
    today = finder.place(found_in)
    after = None if layout == (None, None) else finder.place_in(today, parallelism, max_parallelism)
    if options.json:
        sys.stdout.write(json.dumps(_facts(finder, today, after, states), indent=2) + "\n")
    else:
        _show(finder, today, after, states)
    return 0


def _facts(
    finder: KeyFinder, today: KeyPlace, after: KeyPlace | None, states: tuple[StateRows, ...] | None
) -> dict[str, Any]:
    from flinkstate.hashing.key_groups import murmur
    from flinkstate.serializers.types import type_name

    code = finder.hash_code
    return {
        "operator": finder.operator.hex_id,
        "key_type": type_name(finder.type),
        "key": json.loads(_key_text(finder)),
        "hash_code": code,
        "murmur": None if code is None else murmur(code),
        "today": _place_facts(today),
        "after": after and _place_facts(after),
        "states": states
        if states is None
        else [{"name": state.state, "rows": state.rows, "bytes": state.bytes} for state in states],
    }


def _place_facts(place: KeyPlace) -> dict[str, Any]:
    return {
        "parallelism": place.parallelism,
        "max_parallelism": place.max_parallelism,
        "key_group": place.key_group,
        "subtask": place.subtask,
        "key_groups": [place.key_groups.start, place.key_groups.end],
        "file": place.bytes and place.bytes.file,
        "offset": place.bytes and place.bytes.offset,
        "bytes": place.bytes and place.bytes.size,
    }


def _key_text(finder: KeyFinder) -> str:
    from flinkstate.values.codecs import decode_whole
    from flinkstate.values.value_json import value_json

    return value_json(finder.type, decode_whole(finder.type, finder.data))


def _show(finder: KeyFinder, today: KeyPlace, after: KeyPlace | None, states: tuple[StateRows, ...] | None) -> None:
    from flinkstate.hashing.key_groups import murmur
    from flinkstate.serializers.types import type_name
    from stateferry.basics.people_text import console_on, print_line

    code = finder.hash_code
    with console_on(sys.stdout) as console:
        hashed = f"hash not known: {finder.unstable}" if code is None else f"hash code {code}, murmur {murmur(code)}"
        line = f"{_key_text(finder)} ({type_name(finder.type)}) of operator {finder.operator.label}: {hashed}"
        print_line(console, line)
        if not finder.is_certain and code is not None and states is None:
            note = "A Row is hashed by position. If the job sets its fields by name, --look finds its key group."
            console.print(note, soft_wrap=True)
        console.print(_places_table(today, after))
        if states is not None:
            console.print(_states_table(states) if states else "No state of the operator has this key.")


def _places_table(today: KeyPlace, after: KeyPlace | None) -> Table:
    from rich.table import Table

    from stateferry.basics.people_text import plain

    table = Table("", "today", *([] if after is None else ["after"]))
    columns = [_column(place, today) for place in (today, after) if place is not None]
    for name in columns[0]:
        table.add_row(name, *(plain(column[name]) for column in columns))
    return table


def _column(place: KeyPlace, today: KeyPlace) -> dict[str, str]:
    where = place.bytes
    if where is not None:
        file = where.file
        offset = "among others in RocksDB's files" if where.offset is None else f"{where.offset:,}"
        size = "" if where.size is None else f"{where.size:,}"
    else:
        is_new = place.max_parallelism != today.max_parallelism
        file, offset, size = "written anew by stateferry run" if is_new else "none: the key group is empty", "", ""
    return {
        "key group": f"{place.key_group} of {place.max_parallelism}",
        "subtask": f"{place.subtask} of {place.parallelism}",
        "its key groups": str(place.key_groups),
        "file": file,
        "offset of the key group": offset,
        "bytes of the key group": size,
    }


def _states_table(states: tuple[StateRows, ...]) -> Table:
    from rich.table import Table

    from stateferry.basics.people_text import plain

    table = Table("state")
    for heading in ("rows of the key", "bytes"):
        table.add_column(heading, justify="right")
    for state in states:
        table.add_row(plain(state.state, "bold"), f"{state.rows:,}", f"{state.bytes:,}")
    return table
