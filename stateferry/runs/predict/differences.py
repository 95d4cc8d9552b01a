"""What differs between the sources of two runs of a job: entries, the share that has expired, and the layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from flinkstate.metadata.metadata import Metadata
from stateferry.basics.quantities import percent
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.record.facts import RunFacts
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts

# Of so few entries, a large share is no news.
_FEW = 100


@dataclass(frozen=True, slots=True)
class SourceLayout(RunFacts):
    """The checkpoint that a run has read, and the parallelism and max parallelism of each of its operators."""

    name: ClassVar[str] = "layout"

    checkpoint_id: int
    operators: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def layout_of(metadata: Metadata) -> SourceLayout:
    """The layout that the `_metadata` describes."""
    operators = {one.label: (one.parallelism, one.max_parallelism) for one in metadata.operators}
    return SourceLayout(metadata.checkpoint_id, operators)


@dataclass(frozen=True, slots=True)
class Difference:
    """What was so before and is so now; `share` says by how much, as a part of 1."""

    what: str
    before: str
    now: str
    share: float

    @property
    def text(self) -> str:
        """The difference in words."""
        return f"{self.what}: {self.before} before, {self.now} now"


def differences(before: Run, now: Run) -> tuple[Difference, ...]:
    """What differs; a run whose facts are missing or damaged differs in nothing that they would tell."""
    return (*_of_contents(before, now), *_of_layouts(before, now))


def beyond(before: Run, now: Run, may_differ: float) -> tuple[Difference, ...]:
    """The differences that are larger than this share."""
    return tuple(one for one in differences(before, now) if one.share > may_differ)


def _of_contents(before: Run, now: Run) -> Iterator[Difference]:
    old, new = before.facts_if_sound(SnapshotFacts), now.facts_if_sound(SnapshotFacts)
    if old is None or new is None:
        return
    entries = [_entries(now.plan, facts) for facts in (old, new)]
    for state in dict.fromkeys((*entries[0], *entries[1])):
        was, is_now = (one.get(state, 0) for one in entries)
        if was != is_now:
            off = abs(is_now - was)
            share = 0.0 if off < _FEW else off / max(was, 1)
            yield Difference(f"entries of {state}", f"{was:,}", f"{is_now:,}", share)
    expired = [_expired(facts) for facts in (old, new)]
    for state in dict.fromkeys((*expired[0], *expired[1])):
        (was_of, was_counted), (of, counted) = (one.get(state, (0, 0)) for one in expired)
        share_before, share_now = (some / max(all_, 1) for some, all_ in ((was_of, was_counted), (of, counted)))
        if share_before != share_now:
            share = 0.0 if abs(of - was_of) < _FEW else abs(share_now - share_before)
            yield Difference(f"expired of {state}", percent(share_before), percent(share_now), share)


def _entries(plan: MigrationPlan, facts: SnapshotFacts) -> dict[str, int]:
    """The entries of each state that is migrated; if none is, those of all states together.

    Other states, such as timers and what windows hold, come and go.
    """
    states = [state for operator in plan.operators for state in operator.states]
    if not states:
        return {"all states": facts.rows}
    # The name of an operator may have a slash too.
    ends = tuple(f"/{name}" for state in states for name in (state.legacy, state.new))
    return {name: size.entries for name, size in facts.states.items() if name.endswith(ends)}


def _expired(facts: SnapshotFacts) -> dict[str, tuple[int, int]]:
    """How many entries of each state have expired, of how many."""
    found = facts.ages.states if facts.ages is not None else ()
    return {f"{one.operator}/{one.state}": (one.expired, one.counted) for one in found}


def _of_layouts(before: Run, now: Run) -> Iterator[Difference]:
    """Any difference of the layout counts as a whole one: what was rehearsed is another way then."""
    old, new = before.facts_if_sound(SourceLayout), now.facts_if_sound(SourceLayout)
    if old is None or new is None:
        return
    for operator in dict.fromkeys((*old.operators, *new.operators)):
        was, is_now = (_layout_text(layout.operators.get(operator)) for layout in (old, new))
        if was != is_now:
            yield Difference(f"operator {operator}", was, is_now, 1.0)


def _layout_text(layout: tuple[int, int] | None) -> str:
    return "not there" if layout is None else f"parallelism {layout[0]} of at most {layout[1]}"


def is_newer(before: Run, now: Run) -> bool:
    """Whether the source of the later run is of a later checkpoint; true also if that isn't known of both."""
    old, new = before.facts_if_sound(SourceLayout), now.facts_if_sound(SourceLayout)
    return old is None or new is None or new.checkpoint_id > old.checkpoint_id
