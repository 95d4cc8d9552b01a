"""The states of a run, and which state may follow which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from pydantic import TypeAdapter, ValidationError

from flinkstate.errors import RejectedError, StateferryError, UsageError


class RunState(Enum):
    """How far a run has come."""

    PLANNED = "planned"
    RUNNING = "running"
    STAGED = "staged"
    VERIFIED = "verified"
    APPROVED = "approved"
    PUBLISHED = "published"
    ROLLED_BACK = "rolled back"
    FAILED = "failed"
    REJECTED = "rejected"


GREEN = frozenset({RunState.VERIFIED, RunState.APPROVED, RunState.PUBLISHED})
"""The states of a run whose report is green."""
# These states are final, except that a published run can be rolled back.
ENDED = frozenset({RunState.PUBLISHED, RunState.ROLLED_BACK, RunState.REJECTED})
_NEED_A_REASON = frozenset({RunState.FAILED, RunState.REJECTED})
_BEFORE_PUBLICATION = frozenset(RunState) - ENDED
_MAY_COME_AFTER = {
    # A run may continue, or be verified again, from any state before the publication.
    **dict.fromkeys(
        (RunState.RUNNING, RunState.STAGED, RunState.VERIFIED, RunState.FAILED, RunState.REJECTED), _BEFORE_PUBLICATION
    ),
    RunState.PLANNED: frozenset[RunState](),
    # After a failed cut-over, the run may be approved again.
    RunState.APPROVED: frozenset({RunState.VERIFIED, RunState.FAILED}),
    RunState.PUBLISHED: frozenset({RunState.VERIFIED, RunState.APPROVED}),
    RunState.ROLLED_BACK: frozenset({RunState.PUBLISHED}),
}


@dataclass(frozen=True, slots=True)
class StateChange:
    """A state that a run got at a time in milliseconds; the reason says why it stopped or what it waits for."""

    state: RunState
    at: int
    reason: str = ""


_CHANGES = TypeAdapter(tuple[StateChange, ...])


def check_reason(state: RunState, reason: str) -> None:
    """Refuses a state that needs a reason and has none."""
    if state in _NEED_A_REASON and not reason:
        raise UsageError(f"a run can't become {state.value} without a reason: give a reason")


def check_change(last: StateChange | None, state: RunState) -> None:
    """Refuses a state that may not follow the last one."""
    if last is None:
        if state is not RunState.PLANNED:
            raise RejectedError(f"the first state of a run is {RunState.PLANNED.value}, not {state.value}")
    elif state is not last.state and last.state not in _MAY_COME_AFTER[state]:
        raise RejectedError(f"a run that is {last.state.value} can't become {state.value}")


def changes_to_json(changes: Sequence[StateChange]) -> str:
    """The content of `state.json`."""
    return _CHANGES.dump_json(tuple(changes), indent=2).decode() + "\n"


def changes_of_json(text: bytes, file: str) -> tuple[StateChange, ...]:
    """The states in the content of `state.json`."""
    try:
        return _CHANGES.validate_json(text)
    except ValidationError as error:
        raise StateferryError(f"{file}: expected the states of a run, found {error.errors()[0]['msg']}") from None
