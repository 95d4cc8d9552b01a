"""The command by which `stateferry inspect` says how a state is migrated, ready to be copied."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import Scalar
from stateferry.look.declaration import declared
from stateferry.look.survey import OperatorSurvey, StateSurvey


def how_to_migrate(
    savepoint: Savepoint, survey: OperatorSurvey, of_legacy: StateSurvey, files_from: Mapping[str, str]
) -> Iterator[str]:
    """Yields the command, and a line for each thing in it that a person has to fill in or to know."""
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
