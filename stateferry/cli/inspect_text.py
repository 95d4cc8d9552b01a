"""The output of `stateferry inspect` for people."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.table import Table

from flinkstate.keyed.compression import Compression
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import Scalar, type_name
from stateferry.basics.people_text import console_on, plain, print_line
from stateferry.basics.quantities import noun, shown_amount
from stateferry.look.declaration import declared
from stateferry.look.kryo_maps import OF_FLINK_2, maps_line, upgrade_note
from stateferry.look.survey import KeyedSurvey, OperatorSurvey, StateSurvey, bytes_to_read


def show(savepoint: Savepoint, operators: tuple[OperatorSurvey, ...], files_from: Mapping[str, str]) -> None:
    """Prints a table of each operator's states, and the commands that migrate them."""
    metadata = savepoint.metadata
    with console_on(sys.stdout) as console:
        console.print(
            plain(
                f"{savepoint.folder.shown}: {savepoint.taken_as}, _metadata version {metadata.version}, "
                f"checkpoint {metadata.checkpoint_id}, {len(operators)} {noun(len(operators), 'operator')}, "
                f"{shown_amount(bytes_to_read(savepoint), 'B')} of keyed state"
            )
        )
        for operator in operators:
            console.print()
            _show_operator(console, operator)
        for operator in operators:
            for state in operator.keyed.states if operator.keyed else ():
                if state.state.why_not_migratable is None:
                    console.print()
                    console.print(plain(f"to migrate {state.state.name} of {operator.operator.label}:"))
                    for line in (*_of_kryo(savepoint, state), *_how_to_migrate(savepoint, operator, state, files_from)):
                        print_line(console, f"  {line}")


def _of_kryo(savepoint: Savepoint, survey: StateSurvey) -> Iterator[str]:
    """Yields what the maps of a state by Kryo are."""
    if survey.maps is None:
        return
    yield f"{maps_line(survey.state.type_name, survey.maps)}: can be migrated"
    of_flink_2 = savepoint.metadata.version >= OF_FLINK_2
    if (note := upgrade_note(survey.state.name, survey.maps, of_flink_2=of_flink_2)) is not None:
        yield f"note: {note}"


def _show_operator(console: Console, survey: OperatorSurvey) -> None:
    operator = survey.operator
    facts = [f"id {operator.hex_id}"]
    facts += [f"uid {operator.uid}"] if operator.uid else []
    facts += [f"name {operator.name}"] if operator.name else []
    facts.append(f"parallelism {operator.parallelism}, max {operator.max_parallelism}")
    facts += (
        [f"{survey.finished_subtasks} {noun(survey.finished_subtasks, 'subtask')} finished"]
        if survey.finished_subtasks
        else []
    )
    facts += [f"{shown_amount(survey.coordinator_bytes, 'B')} of coordinator state"] if survey.coordinator_bytes else []
    facts += [f"{shown_amount(survey.raw_bytes, 'B')} of raw state"] if survey.raw_bytes else []
    console.print(plain(operator.label, "bold"), plain(f"({'; '.join(facts)})"), soft_wrap=True)
    if survey.keyed is not None:
        console.print(plain(f"keyed state by {type_name(survey.keyed.key)}{_compression(survey)}"))
        console.print(_keyed_table(survey.keyed))
        if any(state.blobs for state in survey.keyed.states):
            console.print("is a migration to MapState worth it?")
            console.print(_worth_table(survey.keyed))
    if survey.operator_states:
        console.print("operator state")
        console.print(_operator_table(survey))
    if survey.keyed is None and not survey.operator_states:
        console.print("neither keyed nor operator state")


def _keyed_table(keyed: KeyedSurvey) -> Table:
    table = Table("state", "kind", "type")
    for heading in ("entries", "bytes"):
        table.add_column(heading, justify="right")
    for heading in ("TTL", "key groups", "can be migrated"):
        table.add_column(heading)
    for state in keyed.states:
        reason = state.why_not_migratable
        table.add_row(
            plain(state.state.name, "bold"),
            state.state.kind.value,
            plain(_type(state)),
            f"{state.entries:,}",
            shown_amount(state.bytes, "B"),
            "yes" if state.state.ttl else "no",
            _key_groups(state),
            plain("yes", "green") if reason is None else plain(f"no: {reason}"),
        )
    return table


def _compression(survey: OperatorSurvey) -> str:
    """Says how key groups are compressed, if they are framed."""
    framed = sorted(survey.keyed.compressions - {Compression.NONE}) if survey.keyed else []
    return f" (compression: {', '.join(framed)})" if framed else ""


def _worth_table(keyed: KeyedSurvey) -> Table:
    table = Table("legacy state")
    for heading in (
        *("maps", "entries: median", "90 %", "99 %", "largest", "bytes: median", "90 %", "99 %", "largest"),
        *("bytes an access now", "after", "extra bytes of keys"),
    ):
        table.add_column(heading, justify="right")
    table.add_column("worth it")
    for state in keyed.states:
        if (blobs := state.blobs) is None:
            continue
        spreads = [[one.median, one.ninety, one.ninety_nine, one.largest] for one in (blobs.entries, blobs.bytes)]
        counts = [blobs.blobs, *spreads[0], *spreads[1]]
        reason = blobs.why_not_worth_it
        table.add_row(
            plain(state.state.name, "bold"),
            *(f"{count:,}" for count in counts),
            *(f"{round(size):,}" for size in (blobs.access_before, blobs.access_after)),
            shown_amount(blobs.extra_key_bytes, "B"),
            plain(blobs.yes, "green") if reason is None else plain(f"no: {reason}"),
        )
    return table


def _type(survey: StateSurvey) -> str:
    state = survey.state
    if state.namespace is Scalar.VOID_NAMESPACE:
        return state.type_name
    return f"{state.type_name} per {type_name(state.namespace)}"


def _key_groups(survey: StateSurvey) -> str:
    largest = survey.largest_key_group
    if largest is None:
        return "all empty"
    return f"{survey.empty_key_groups} empty; largest: {largest.key_group} ({shown_amount(largest.bytes, 'B')})"


def _operator_table(survey: OperatorSurvey) -> Table:
    table = Table("state", "mode")
    table.add_column("elements", justify="right")
    for state in survey.operator_states:
        table.add_row(plain(state.name, "bold"), state.mode.label, f"{state.elements:,}")
    return table


def _how_to_migrate(
    savepoint: Savepoint, survey: OperatorSurvey, of_legacy: StateSurvey, files_from: Mapping[str, str]
) -> Iterator[str]:
    """Yields the command that migrates the state, and a line for each thing that a person has to fill in or to know."""
    assert survey.keyed is not None
    legacy = of_legacy.state
    states = [one.state for one in survey.keyed.states]
    new = _rows_of(legacy, survey.keyed.states)
    of_flags = (StateKind.VALUE, legacy.namespace, Scalar.BOOLEAN)
    flags = [one.name for one in states if (one.kind, one.namespace, one.value) == of_flags]
    # Without rows, the job has not begun to move keys, and a Boolean state is something else.
    has_begun = any(one.entries for one in new)
    flag = () if not (flags and has_begun) else ("--flag-state", flags[0] if len(flags) == 1 else "FLAG_STATE")
    yield shlex.join(
        [
            *("stateferry", "run", "--savepoint", savepoint.folder.shown),
            *(part for places in files_from.items() for part in ("--files-from", "=".join(places))),
            *("--target", "NEW_FOLDER", "--operator", savepoint.shortest_name(survey.operator)),
            *("--legacy-state", legacy.name, "--new-state", new[0].state.name if len(new) == 1 else "NEW_STATE"),
            *flag,
            *(("--ttl", "TTL") if legacy.ttl else ()),
        ]
    )
    yield "NEW_FOLDER: the folder that becomes the new savepoint"
    if len(new) != 1:
        known = f"; of its types there are: {', '.join(one.state.name for one in new)}" if new else ""
        yield f"NEW_STATE: the name of the MapState in the new job{known}"
    if flag:
        which = f"{flags[0]}: the state" if len(flags) == 1 else f"FLAG_STATE: the one of {', '.join(flags)}"
        yield f"{which} that is true for each key that the job has moved itself; if there is none, --no-flag-state"
    if legacy.map_type is not None:
        name = new[0].state.name if len(new) == 1 else "NEW_STATE"
        yield f"the new job declares {declared(name, legacy.map_type, legacy.value)}"
    if legacy.ttl:
        yield "TTL: the time to live in the job's StateTtlConfig, such as 30d; the savepoint doesn't contain it"


def _rows_of(legacy: KeyedState, states: tuple[StateSurvey, ...]) -> list[StateSurvey]:
    """The MapStates that have the types of the legacy state's maps; none if another legacy state has them too."""
    if (map_ := legacy.map_type) is None:
        return []
    alike = [one for one in states if one.state.map_type == map_ and one.state.why_not_migratable is None]
    types = (StateKind.MAP, legacy.namespace, map_.key, map_.value)
    found = [one for one in states if _types(one.state) == types]
    return found if len(alike) == 1 else []


def _types(state: KeyedState) -> tuple[object, ...]:
    return state.kind, state.namespace, state.user_key, state.value
