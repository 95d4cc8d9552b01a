"""Notes on times to live: what a person should hold against the job's code, as the savepoint can't say it."""

from __future__ import annotations

from collections.abc import Iterator

from flinkstate.ttl import StateVisibility
from stateferry.basics.durations import format_duration, rough_duration
from stateferry.basics.quantities import noun, percent
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.guards.expiry_guard import FEW
from stateferry.runs.record.state_ages import FoundAges, Holds, StateAges

# Ages are read from a histogram, and a time to live that differs by less isn't worth a note.
_NEAR = 0.98


def ttl_notes(resolved: ResolvedPlan, ages: FoundAges | None) -> Iterator[str]:
    """The notes; without ages only those on what the savepoint's descriptions show."""
    for one in resolved.operators:
        yield from _of_flags(one)
    if ages is not None:
        yield from _of_short_ones(ages)
        yield from _of_small_states(resolved, ages)
        yield from _of_visible_entries(resolved, ages)


def _of_flags(one: OperatorChanges) -> Iterator[str]:
    """Notes on flags with time to live of maps without it, and the other way round."""
    for rules in one.rules:
        flag = one.states.get(rules.flag_name) if rules.flag_name is not None else None
        if flag is None or flag.ttl == rules.legacy.ttl:
            continue
        if flag.ttl:
            yield (
                f"{flag.name} of {one.operator.label} has a time to live, {rules.legacy.name} has none: in the job a "
                "flag that has expired no longer says that its key was moved. This run counts every flag that is in "
                "the savepoint. Look into the job's code whether it is meant so"
            )
        else:
            yield (
                f"{rules.legacy.name} of {one.operator.label} has a time to live, {flag.name} has none: a flag stays "
                "when all rows of its key have expired. Look into the job's code whether it is meant so"
            )


def _of_short_ones(ages: FoundAges) -> Iterator[str]:
    """Notes on times to live under which entries go that the job seems to keep."""
    for one in ages.states:
        if one.holds is not Holds.FLAGS and not one.kept and _is_short(one):
            assert one.sharp_end is not None
            assert one.suggested_ttl is not None
            option = "--state-ttl" if one.holds is Holds.OTHERS else "--ttl"
            yield (
                f"{one.expired:,} {noun(one.expired, 'entry', 'entries')} of {one.state} of {one.operator} "
                f"({percent(one.share)}) {noun(one.expired, 'expires', 'expire')} under {option} "
                f"{format_duration(one.ttl)}, but the ages end all at once at {rough_duration(one.sharp_end)}, which "
                f"suggests a time to live of {format_duration(one.suggested_ttl)} (or that the job has run for no "
                "longer): if that is the job's, the run drops what the job still has"
            )


def _of_small_states(resolved: ResolvedPlan, ages: FoundAges) -> Iterator[str]:
    """Notes on small states of which all expires: a run stops only for many entries."""
    for one in ages.states:
        if one.holds is Holds.FLAGS or one.kept or one.expired < one.counted or not 0 < one.counted < FEW:
            continue
        if resolved.plan.accept_expired is None and not _is_short(one):
            option = "--state-ttl" if one.holds is Holds.OTHERS else "--ttl"
            yield (
                f"all {one.counted:,} {noun(one.counted, 'entry', 'entries')} of {one.state} of {one.operator} "
                f"{noun(one.counted, 'expires', 'expire')} under {option} {format_duration(one.ttl)}, the youngest is "
                f"{rough_duration(one.youngest)} old. For so few a run doesn't stop: look whether the time to live is "
                "the job's"
            )


def _is_short(one: StateAges) -> bool:
    if one.sharp_end is None or one.suggested_ttl is None or not one.expired:
        return False
    return one.ttl < one.suggested_ttl and one.ttl < _NEAR * one.sharp_end


def _of_visible_entries(resolved: ResolvedPlan, ages: FoundAges) -> Iterator[str]:
    """Says where entries go that the job could still have read."""
    others = {
        (one.operator.label, planned.state.name): planned.config for one in resolved.changes for planned in one.ttls
    }
    migrated = {
        (one.operator.label, rules.legacy.name): rules.planned_ttl
        for one, rules in resolved.migrations
        if rules.planned_ttl is not None
    }
    for one in ages.states:
        of_others = one.holds is Holds.OTHERS
        config = others.get((one.operator, one.state)) if of_others else migrated.get((one.operator, one.legacy))
        if config is None or one.holds is Holds.FLAGS or one.kept or not one.expired:
            continue
        if config.visibility is StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP:
            yield (
                f"{one.expired:,} expired {noun(one.expired, 'entry', 'entries')} of {one.state} of {one.operator} "
                f"{noun(one.expired, 'goes', 'go')}, which the job could still have read (drop-visible)"
            )
