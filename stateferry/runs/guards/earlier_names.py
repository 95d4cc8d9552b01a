"""Holds the names in a plan, of the job and of states, against what earlier runs have made of the same states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flinkstate.basics.did_you_mean import is_alike
from flinkstate.errors import PlanError
from flinkstate.metadata.metadata import Operator
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.record.run_list import RunSummary, runs_of
from stateferry.runs.record.run_states import GREEN, RunState


def history_errors(resolved: ResolvedPlan) -> list[PlanError]:
    """The error of a plan whose names earlier runs contradict."""
    plan = resolved.plan
    runs = [] if plan.rescales_only else _green(plan, plan.job)
    problems = [*_other_jobs(resolved, runs), *_contradictions(resolved, runs, plan.accept_empty)]
    return [PlanError("\n".join(problems))] if problems else []


def _other_jobs(resolved: ResolvedPlan, own_runs: Sequence[RunSummary]) -> Iterator[str]:
    """A job that nobody names has the name of its operator, which has several: an id, often a uid, and a name.

    Under another one of them nobody finds the leases, publications and earlier runs of the job.
    """
    plan = resolved.plan
    for operator in {one.operator.hex_id: one.operator for one, _ in resolved.migrations}.values():
        names = _names_of(operator)
        if plan.job not in names or _of_operator(own_runs, names):
            continue
        for job in sorted(names - {plan.job}):
            if runs := _of_operator(_green(plan, job), names):
                yield (
                    f"operator {operator.label}: this run would be one of the job {plan.job}, and run "
                    f"{runs[0].run_id} of the job {job} has read the same operator: did you mean --job {job}?"
                )


def history_problems(resolved: ResolvedPlan, accepted: float | None) -> list[str]:
    """What earlier runs say against the names; nothing with an accepted share of 100 %, and nothing in reverse."""
    return list(_contradictions(resolved, _green(resolved.plan, resolved.plan.job), accepted))


def _contradictions(resolved: ResolvedPlan, runs: Sequence[RunSummary], accepted: float | None) -> Iterator[str]:
    plan = resolved.plan
    if not plan.reverse and accepted != 1:
        for one, rules in resolved.migrations:
            yield from _problems(plan, runs, one, rules.legacy.name, rules.new_name)


def _problems(
    plan: MigrationPlan, runs: Sequence[RunSummary], one: OperatorChanges, legacy: str, new: str
) -> Iterator[str]:
    # Of the runs that name the legacy state the newest counts: a name may have changed, and a run in reverse has made
    # the maps anew.
    those = [(run, names) for run in runs if (names := _new_states(run, one.operator, legacy))]
    for run, names in those[:1]:
        if new not in one.states and new not in names and is_alike(new, min(names)):
            yield (
                f"operator {one.operator.label}: run {run.run_id} has made {min(names)} of {legacy}, and this one "
                f"would make {new}, which the savepoint doesn't have: did you mean --new-state {min(names)}? If the "
                f"new job calls it {new} now, say so: --accept-empty 100%"
            )
    for run, names in [one for one in those if one[0].state is RunState.PUBLISHED][:1]:
        kept = run.plan is not None and run.plan.keep_legacy and run.plan.source != plan.source
        if kept and new in names and new in one.states:
            yield (
                f"operator {one.operator.label}: run {run.run_id} has made {new} of {legacy} and kept {legacy} beside "
                f"it (--keep-legacy). Since then {new} counts, and entries that the job has removed there would come "
                f"back from {legacy}: leave {legacy} out of the plan. If the old job has gone on with it instead, say "
                "so: --accept-empty 100%"
            )


def _new_states(run: RunSummary, operator: Operator, legacy: str) -> set[str]:
    """Which new states the run has made of this legacy state, or in reverse it of them."""
    names = _names_of(operator)
    operators = run.plan.operators if run.plan is not None else ()
    return {state.new for one in operators if one.operator in names for state in one.states if state.legacy == legacy}


def _green(plan: MigrationPlan, job: str) -> list[RunSummary]:
    """The job's green runs but the plan's, the newest first. Of others nobody has seen what comes of their names."""
    return [run for run in runs_of(plan.home, job) if run.state in GREEN and run.run_id != plan.run_id]


def _of_operator(runs: Sequence[RunSummary], operator_names: set[str]) -> list[RunSummary]:
    return [
        run
        for run in runs
        if run.plan is not None and any(one.operator in operator_names for one in run.plan.operators)
    ]


def _names_of(operator: Operator) -> set[str]:
    """All by which a plan may call it, as far as the savepoint shows them."""
    return {name for name in (operator.hex_id, operator.uid, operator.name) if name is not None}
