"""Which keys a lazy run moves: the snapshot turns the plan's share or budget into one number for each state.

A budget is turned into bytes of blobs by the rate of the job's earlier runs: the bytes of state that they have
migrated and validated (and with which a new job has started, where that is known) in a second. Catch-ups, which handle
only what has changed, and runs in reverse don't count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from flinkstate.errors import RejectedError
from stateferry.basics.durations import format_duration
from stateferry.basics.state_ref import StateRef
from stateferry.changes.lazy_cut import Order, RankCounts
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.plan_fields import folder_of
from stateferry.runs.record.facts import JobStarted
from stateferry.runs.record.run_list import readable_runs
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.step_facts import LazyChoice, MigrateFacts, RescaleFacts, SnapshotFacts, ValidateFacts

_NEWEST = 5


def order_of(plan: MigrationPlan) -> Order | None:
    """The order in which the plan's run moves keys; None if it isn't lazy."""
    if not plan.lazy:
        return None
    return Order.LARGEST if plan.largest_first else Order.HASH


def choose(plan: MigrationPlan, ranks: Mapping[StateRef, RankCounts], rate: float | None) -> tuple[LazyChoice, ...]:
    """The choice for each legacy state, from the keys that the snapshot has counted by operator and state."""
    order = order_of(plan)
    if order is None:
        return ()
    every = sum(int(of_state.sizes.sum()) for of_state in ranks.values())
    budget = None if plan.budget_ms is None or rate is None else rate * plan.budget_ms / 1000
    return tuple(_of_state(plan, order, name, ranks[name], budget, every) for name in sorted(ranks))


def _of_state(
    plan: MigrationPlan, order: Order, name: StateRef, ranks: RankCounts, budget: float | None, every: int
) -> LazyChoice:
    left, size = int(ranks.keys.sum()), int(ranks.sizes.sum())
    if budget is not None:
        # Several states share the budget by their bytes.
        bins = ranks.first(int(budget * (size / every if every else 1)), ranks.sizes)
    else:
        bins = ranks.first(round((plan.share or 0) * (left + ranks.migrated)), ranks.keys)
    last = ranks.last_rank(order, bins) if bins < len(ranks.bins) else None
    moved, moved_size = int(ranks.keys[:bins].sum()), int(ranks.sizes[:bins].sum())
    return LazyChoice(*name, order.value, last, ranks.migrated, left, moved, size, moved_size)


def chosen_by_base(of_base: Sequence[LazyChoice], changes: Mapping[StateRef, RankCounts]) -> tuple[LazyChoice, ...]:
    """The choice of a catch-up: that of its base, with the keys that came since, and without those that went."""
    return tuple(_with(one, changes.get(StateRef(one.operator, one.state), RankCounts())) for one in of_base)


def _with(choice: LazyChoice, changes: RankCounts) -> LazyChoice:
    bins = changes.up_to(Order(choice.order), choice.last)
    return replace(
        choice,
        migrated=choice.migrated + changes.migrated,
        left=choice.left + int(changes.keys.sum()),
        moved=choice.moved + int(changes.keys[:bins].sum()),
        bytes_left=choice.bytes_left + int(changes.sizes.sum()),
        bytes_moved=choice.bytes_moved + int(changes.sizes[:bins].sum()),
    )


def chosen_before(plan: MigrationPlan, run_id: str | None) -> tuple[LazyChoice, ...]:
    """What the lazy run that made the plan's target has chosen; refuses a target of which no run is known.

    That is the run named, else one that was published, else the newest: later runs may have the same target.
    """
    published = (RunState.PUBLISHED, RunState.ROLLED_BACK)
    for run in (*readable_runs(plan.home, plan.job, published), *readable_runs(plan.home, plan.job)):
        if not run.plan.lazy or folder_of(run.plan.target) != folder_of(plan.target):
            continue
        if run_id not in (None, run.plan.run_id):
            continue
        snapshot = run.facts_if_sound(SnapshotFacts)
        if snapshot is not None and snapshot.lazy is not None:
            return snapshot.lazy
    raise RejectedError(
        f"job {plan.job} has no lazy run with the target {plan.target} in {plan.home}: only the facts of the run that "
        "made it say which keys were to be moved. Name the job and the home of that run"
    )


def measured_rate(plan: MigrationPlan) -> float | None:
    """Bytes of state per second in the job's earlier runs, for a plan with a budget; refuses one without a rate.

    A catch-up moves what its base has chosen.
    """
    if plan.budget_ms is None or plan.since is not None:
        return None
    rates = list(_rates(plan))[:_NEWEST]
    if not rates:
        raise RejectedError(
            f"job {plan.job} has no earlier run whose rates would tell how many keys fit into the budget of "
            f"{format_duration(plan.budget_ms)}: rehearse first (--rehearse with --share), or give --share instead"
        )
    return median(rates)


def _rates(plan: MigrationPlan) -> Iterator[float]:
    for run in readable_runs(plan.home, plan.job):
        if run.plan.run_id == plan.run_id or run.plan.since is not None or run.plan.reverse:
            continue
        snapshot = run.facts_if_sound(SnapshotFacts)
        done = [run.facts_if_sound(of) for of in (MigrateFacts, RescaleFacts, ValidateFacts)]
        if snapshot is None or None in done or not snapshot.size:
            continue
        timed = [*done, run.facts_if_sound(JobStarted)]
        seconds = sum(one.seconds or 0.0 for one in timed if one is not None)
        if seconds > 0:
            yield snapshot.size / seconds
