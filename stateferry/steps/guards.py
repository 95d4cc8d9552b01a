"""What the snapshot step refuses: each guard raises an error if the run must not go on, before anything is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from flinkstate.files.storage import Location
from stateferry.inventory.inventory import Inventory
from stateferry.runs.checks.space import check_files, check_room, estimate, on_one_disk
from stateferry.runs.guards.cleanup_promise import check_promises
from stateferry.runs.guards.expiry_guard import check_ages
from stateferry.runs.guards.kept_values import check_kept_values
from stateferry.runs.guards.lost_values import check_before
from stateferry.runs.guards.migrated_before import check_migrated_before
from stateferry.runs.guards.other_flink import check_other_flink
from stateferry.runs.guards.timer_guard import check_timers
from stateferry.runs.record.run_list import find_run
from stateferry.runs.record.state_ages import FoundAges
from stateferry.runs.record.target_claim import check_can_be_made
from stateferry.steps.run_at_work import RunAtWork


@dataclass(frozen=True, slots=True)
class Seen:
    """What a guard looks at; what the snapshot has counted is empty before it has."""

    work: RunAtWork
    inventory: Inventory
    ages: FoundAges


Guard = Callable[[Seen], None]


def _room(seen: Seen) -> None:
    work, plan, sizes = seen.work, seen.work.run.plan, seen.inventory.sizes
    check_files(work.resolved, work.files, sizes)
    places = (work.files, work.run.exchange, Location.of(plan.warehouse))
    if not any(place.is_local for place in places) and plan.output_format != "native":
        # Nothing is known of the room in an object store, and nothing waits on a disk.
        return
    room = estimate(work.resolved, sizes, work.workers.at_once, _linked(work))
    # What of a key group was written before it is merged stays until then.
    needs = Counter({work.files.shown: room.bytes + room.merged})
    is_catch_up = plan.since is not None
    if not (plan.rescales_only or is_catch_up):
        # The tables hold the entries of the staged savepoint once more, compressed. After a catch-up only those of
        # changed keys are written.
        needs[plan.warehouse] += room.bytes // 2
    if work.workers.temporary_folder is not None:
        # Files on an object store can't be drafts there, so these are here too.
        needs[work.workers.temporary_folder] += room.merged if work.files.is_local else 2 * room.merged
    if any(one.changes_key_groups and not (is_catch_up and one.writes_rows) for one in work.resolved.changes):
        needs[work.run.exchange.shown] += room.bytes
    check_room(needs, room.how)


def _linked(work: RunAtWork) -> frozenset[bytes]:
    """The operators whose files a catch-up has from its base, on whose disk they only get other names."""
    plan = work.run.plan
    if plan.since is None or not work.files.is_local:
        return frozenset()
    if not on_one_disk(find_run(plan.home, plan.job, plan.since).staged, work.files):
        return frozenset()
    return frozenset(one.operator.id for one in work.resolved.changes if one.writes_rows)


def _rest_catalog(seen: Seen) -> None:
    plan = seen.work.run.plan
    if plan.rest_catalog is not None and not plan.rescales_only:
        from stateferry.steps.table_states import table_home

        table_home(seen.work.resolved).rest_catalog()


def _target(seen: Seen) -> None:
    if not seen.work.run.plan.rehearse:
        check_can_be_made(seen.work.run.plan.target)


BEFORE_COUNTING: tuple[Guard, ...] = (
    _target,
    _room,
    lambda seen: check_timers(seen.work.run.plan, seen.work.resolved.source),
    lambda seen: check_migrated_before(seen.work.resolved),
    lambda seen: check_other_flink(seen.work.resolved),
    _rest_catalog,
)
AFTER_COUNTING: tuple[Guard, ...] = (
    # Before, nothing was known of what grows.
    _room,
    lambda seen: check_ages(seen.work.run.plan, seen.ages),
    lambda seen: check_promises(seen.work.resolved, seen.ages, seen.inventory.promised),
    lambda seen: check_kept_values(seen.work.resolved, seen.inventory),
    lambda seen: check_before(seen.work.resolved, seen.inventory),
)
