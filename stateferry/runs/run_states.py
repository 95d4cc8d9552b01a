"""The states of a run, and which may follow which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from pydantic import TypeAdapter, ValidationError

from stateferry.errors import RejectedError, StateferryError, UsageError


class RunState(Enum):
    PLANNED = "planned"
    RUNNING = "running"
    STAGED = "staged"
    VERIFIED = "verified"
    APPROVED = "approved"
    PUBLISHED = "published"
    ROLLED_BACK = "rolled back"
    FAILED = "failed"
    REJECTED = "rejected"


# Nothing leads out of these but a rollback: a no of a person is as final as a publication.
ENDED = frozenset({RunState.PUBLISHED, RunState.ROLLED_BACK, RunState.REJECTED})
_NEED_A_REASON = frozenset({RunState.FAILED, RunState.REJECTED})
_BEFORE_PUBLICATION = frozenset(RunState) - ENDED
_FOLLOWS = {
    # A run that goes on, and one that is verified once more, may find anything.
    **dict.fromkeys(
        (RunState.RUNNING, RunState.STAGED, RunState.VERIFIED, RunState.FAILED, RunState.REJECTED), _BEFORE_PUBLICATION
    ),
    RunState.PLANNED: frozenset[RunState](),
    # A cut-over that failed may be approved once more.
    RunState.APPROVED: frozenset({RunState.VERIFIED, RunState.FAILED}),
    RunState.PUBLISHED: frozenset({RunState.VERIFIED, RunState.APPROVED}),
    RunState.ROLLED_BACK: frozenset({RunState.PUBLISHED}),
}


@dataclass(frozen=True, slots=True)
class StateChange:
    """`at` is in milliseconds; the reason says why it stopped or what it waits for."""

    state: RunState
    at: int
    reason: str = ""


_CHANGES = TypeAdapter(tuple[StateChange, ...])


def check_reason(state: RunState, reason: str) -> None:
    if state in _NEED_A_REASON and not reason:
        raise UsageError(f"a run that {state.value} says why: give a reason")


def check_change(last: StateChange | None, state: RunState) -> None:
    if last is None:
        if state is not RunState.PLANNED:
            raise RejectedError(f"a run begins by being planned, not {state.value}")
    elif state is not last.state and last.state not in _FOLLOWS[state]:
        raise RejectedError(f"a run that is {last.state.value} can't become {state.value}")


def changes_to_json(changes: Sequence[StateChange]) -> str:
    return _CHANGES.dump_json(tuple(changes), indent=2).decode() + "\n"


def changes_of_json(text: bytes, file: str) -> tuple[StateChange, ...]:
    try:
        return _CHANGES.validate_json(text)
    except ValidationError as error:
        raise StateferryError(f"{file}: expected the states of a run, found {error.errors()[0]['msg']}") from None
