"""`stateferry dump`: prints the entries of one keyed state as JSON lines."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from flinkstate.errors import UsageError
from stateferry.cli.savepoint_options import add_classes, add_files_from, add_savepoint, classes_of, opened

if TYPE_CHECKING:
    from flinkstate.keyed.state import KeyedState
    from flinkstate.metadata.metadata import Operator
    from flinkstate.reading.entries import Entry

HELP = "print a state's entries as JSON lines"
DESCRIPTION = """\
Print the entries of one keyed state, one JSON object on each line:
  {"key":..., "namespace":..., "user_key":..., "value":..., "timestamp":ms, "key_group":n}
Parts that don't apply are absent. The timestamp is the last access, with TTL, or when a timer fires; a ListState with
TTL has one for each element. Integers are exact, NaN and infinities strings, byte arrays base64. A POJO of a subclass
has its class as "@class".
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_savepoint(parser)
    parser.add_argument("--operator", required=True, metavar="NAME", help="the operator's id, uid or unique name")
    parser.add_argument("--state", required=True, metavar="NAME", help="the state's name, as in the job's descriptor")
    parser.add_argument("--limit", type=int, metavar="N", help="stop after so many entries")
    parser.add_argument("--key-group", type=int, metavar="N", help="only the entries of this key group")
    add_classes(parser)
    add_files_from(parser)


def run(options: argparse.Namespace) -> int:
    from flinkstate.reading.entries import read_entries

    if options.limit is not None and options.limit < 0:
        raise UsageError(f"expected a --limit of 0 or more, found {options.limit}")
    limit = None if options.limit is None else min(options.limit, sys.maxsize)
    savepoint = opened(options)
    operator = savepoint.operator(options.operator)
    state = savepoint.state(operator, options.state).with_classes(classes_of(options))
    _check_key_group(options.key_group, operator)
    line = _line_of(state)
    # If the output isn't a terminal, its encoding may be another one. JSON is UTF-8.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")
    entries = read_entries(savepoint, operator, state, options.key_group)
    for number, entry in enumerate(itertools.islice(entries, limit)):
        sys.stdout.write(line(entry))
        if number == 0:
            sys.stdout.flush()
    return 0


def _check_key_group(key_group: int | None, operator: Operator) -> None:
    if key_group is not None and not 0 <= key_group < operator.max_parallelism:
        raise UsageError(
            f"expected a --key-group of 0 to {operator.max_parallelism - 1}, by the max parallelism of "
            f"{operator.label}, found {key_group}"
        )


def _line_of(state: KeyedState) -> Callable[[Entry], str]:
    """A function that turns an entry of the state into a line of JSON."""
    from flinkstate.keyed.state import StateKind
    from flinkstate.serializers.types import ListType, Scalar
    from flinkstate.values.value_json import json_text

    key = json_text(state.key)
    namespace = None if state.namespace is Scalar.VOID_NAMESPACE else json_text(state.namespace)
    user_key = json_text(state.user_key) if state.user_key is not None else None
    value_type = ListType(state.value) if state.kind is StateKind.LIST and state.value is not None else state.value
    value = json_text(value_type) if value_type is not None else None

    def line(entry: Entry) -> str:
        parts = [f'"key":{key(entry.key)}']
        if namespace is not None:
            parts.append(f'"namespace":{namespace(entry.namespace)}')
        if user_key is not None:
            parts.append(f'"user_key":{user_key(entry.user_key)}')
        if value is not None:
            parts.append(f'"value":{value(entry.value)}')
        if entry.timestamp is not None:
            parts.append(f'"timestamp":{str(entry.timestamp).replace(" ", "")}')
        parts.append(f'"key_group":{entry.key_group}')
        return f"{{{','.join(parts)}}}\n"

    return line
