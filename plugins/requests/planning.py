"""Makes a plan from a request, before any work."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from flinkstate.errors import PlanError
from flinkstate.files.storage import Location
from stateferry.airflow.requests.request import MigrationRequest, migration_request
from stateferry.airflow.requests.sources import (
    check_operators,
    completed_at,
    demo_now,
    demo_savepoint,
    home_folder,
    newest_checkpoint_of_job,
    newest_savepoint,
    read_metadata,
)
from stateferry.runs.checks.separate_places import check_buckets, check_separate_places
from stateferry.runs.plan import homes
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.plan.upgrade_options import FLINK_1
from stateferry.runs.record.held_checkpoint import hold_newest, newest_checkpoint_in
from stateferry.runs.record.run_folder import HELD, folder_name, run_folder
from stateferry.runs.record.runs import Run

_log = logging.getLogger(__name__)
_NOT_IN_A_RUN_ID = re.compile(r"[^0-9A-Za-z._-]+")


def default_catalog() -> str:
    """The catalog's address: from the environment, else a SQLite database in the home."""
    return homes.default_catalog(home_folder())


@dataclass(frozen=True, slots=True)
class Occasion:
    """What a plan needs to know of the DAG run; the same in every try."""

    run_id: str
    as_of: datetime
    is_backfill: bool = False

    @property
    def now(self) -> int:
        """The time that counts as now, in milliseconds."""
        return int(self.as_of.timestamp() * 1000)

    def not_before(self, moment: datetime) -> Occasion:
        """The occasion, moved to the moment if that is later."""
        return replace(self, as_of=moment, is_backfill=False) if moment > self.as_of else self

    def rehearsal(self, which: str = "rehearsal") -> Occasion:
        """The occasion of a rehearsal before the cut-over."""
        return replace(self, run_id=f"{self.run_id}.{which}")

    @property
    def short_id(self) -> str:
        """A run id that a folder can have, since Airflow's ids contain other characters."""
        digest = hashlib.sha256(self.run_id.encode()).hexdigest()[:6]
        return f"{_NOT_IN_A_RUN_ID.sub('-', self.run_id)[:80]}-{digest}"


def requested_by_form(params: Mapping[str, object], conf: Mapping[str, object]) -> MigrationRequest:
    """The request of a form; refuses keys that the form doesn't have, because Airflow passes them on."""
    return migration_request({**params, **conf}, "the form")


def source_of(request: MigrationRequest, occasion: Occasion, *, holds: bool = False) -> str | None:
    """The savepoint to read; None if it must still be taken. With `holds` Flink may drop a checkpoint meanwhile."""
    match request.source:
        case "demo":
            return demo_savepoint()
        case "path":
            return str(request.savepoint)
        case "folder":
            return newest_savepoint(str(request.savepoint_folder), occasion.as_of)
        case "checkpoint":
            return None if request.stops_job else _checkpoint(request, occasion, holds=holds)
        case "flink":
            return None


def _checkpoint(request: MigrationRequest, occasion: Occasion, *, holds: bool) -> str:
    """The checkpoint that the run has read before, if it exists; else the newest, or for a backfill that of its day."""
    run = Run.if_there(run_folder(home_folder(), str(request.plan_values()["job"]), occasion.short_id))
    if run is not None:
        return run.plan.source
    as_of = occasion.as_of if occasion.is_backfill else None
    newest = _newest(request, as_of)
    # What is held is the newest one, and a backfill reads that of its day.
    return held(newest, str(request.plan_values()["job"]), occasion) if holds and as_of is None else newest()


def _newest(request: MigrationRequest, as_of: datetime | None) -> Callable[[], str]:
    """What finds the newest checkpoint, or the newest by that time."""
    if (folder := request.checkpoint_folder) is not None:
        return lambda: newest_checkpoint_in(folder, as_of)
    # A plan is also made where Airflow isn't installed; then it has another source.
    from stateferry.airflow.flink.hook import FlinkHook

    job, hook = str(request.flink_job), FlinkHook(request.flink_conn_id)
    return lambda: newest_checkpoint_of_job(hook.completed_checkpoints(job), job, as_of)


def held(newest: Callable[[], str], job: str, occasion: Occasion) -> str:
    """The checkpoint that the call names, or a newer one beside it, held for the run of this occasion."""
    return hold_newest(newest, run_folder(home_folder(), job, occasion.short_id).child(HELD), _log.warning).shown


def plan_for(
    request: MigrationRequest,
    occasion: Occasion,
    source: str,
    *,
    no_timers: bool = False,
    base: MigrationPlan | None = None,
) -> MigrationPlan:
    """The plan for the request and this source; raises a `PlanError` if the request can't be fulfilled.

    `no_timers` says that a native source lacks no timers, as a rehearsal has shown. `base` is the plan of the run since
    which is caught up; what has expired by its now counts.
    """
    home = home_folder()
    asked = request.plan_values()
    target = request.target or f"{home}/savepoints/{folder_name(asked['job'])}/{occasion.short_id}"
    now = demo_now(source) if request.source == "demo" else None
    values: dict[str, Any] = {
        **asked,
        "run_id": occasion.short_id,
        "now": occasion.now if now is None else now,
        "now_from": "savepoint" if now is not None else "backfill" if occasion.is_backfill else "clock",
        "source": source,
        "target": target,
        "home": home,
    }
    if no_timers:
        values["no_timers"] = True
    if base is not None:
        values |= {"since": base.run_id, "now": base.now, "now_from": base.now_from}
    return plan_of(values)


@dataclass(frozen=True, slots=True)
class CheckOfSavepoint:
    """A look into a savepoint, by the `arguments` of its application; the answer goes to the file `report`."""

    job: str | None
    savepoint: str
    report: str
    arguments: list[str]


def check_of(request: MigrationRequest, occasion: Occasion) -> CheckOfSavepoint:
    """The savepoint that the request wants to be looked into, and the plan to hold it against, if it has names."""
    source = source_of(request, occasion)
    assert source is not None, "a check takes no savepoint"
    metadata = read_metadata(source)
    given = request.given_options()
    named = request.plan_values()["job"] if request.names_states else given.get("job")
    report = Location.of(home_folder()).child("checks").child(f"{occasion.short_id}.json")
    arguments = ["--savepoint", source, "--into", report.shown]
    for name, flag in (("files_from", "--files-from"), ("to", "--for"), ("classes", "--classes")):
        arguments += [flag, str(given[name])] if name in given else []
    if request.names_states:
        plan = plan_for(request, occasion, source)
        check_operators(metadata, plan.operator_names, source)
        # A run has it for the way back alone. The address of a catalog may hold a password.
        wanted = plan.model_copy(update={} if plan.to == FLINK_1 else {"all_by_kryo_5": False})
        arguments += ["--wanted", wanted.model_dump_json(exclude={"catalog_uri"})]
    return CheckOfSavepoint(named, source, report.shown, [*arguments, *_asked_of_verdict(request)])


def _asked_of_verdict(request: MigrationRequest) -> Iterator[str]:
    """What `stateferry check` is asked beside the Flink and the classes."""
    given = request.given_options()
    if "before" in given:
        yield from ("--before", given["before"])
        yield from ("--state-ttl", given["state_ttl"]) if "state_ttl" in given else ()
    if "all_by_kryo_5" in given and not (request.names_states and given["to"] == FLINK_1):
        yield "--all-by-kryo-5"
    if request.read_all:
        yield "--all"


def planned(request: MigrationRequest, occasion: Occasion, *, holds: bool = False) -> tuple[MigrationPlan, Run | None]:
    """The plan, and its run, which is None if the savepoint must still be taken.

    In that case the plan's source is only a preliminary folder. `holds` is as in `source_of`.
    """
    occasion = _as_planned_before(request, occasion)
    source = source_of(request, occasion, holds=holds)
    if source is None:
        plan = plan_for(request, occasion, f"{request.savepoint_directory}/{occasion.short_id}")
        check_buckets(plan)
        return plan, None
    if request.source == "checkpoint" and not occasion.is_backfill:
        # The checkpoint may be newer than the DAG run.
        occasion = occasion.not_before(completed_at(source))
    plan = plan_for(request, occasion, source)
    check_separate_places(plan)
    check_buckets(plan)
    check_operators(read_metadata(source), plan.operator_names, source)
    return plan, Run.create(plan, occasion.now)


def _as_planned_before(request: MigrationRequest, occasion: Occasion) -> Occasion:
    """The occasion; a day that the schedule has planned stays one of the schedule when a backfill does it again.

    Airflow takes the DAG run that is there, which the backfill then owns. One that cuts over is refused.
    """
    if not occasion.is_backfill:
        return occasion
    before = Run.if_there(run_folder(home_folder(), str(request.plan_values()["job"]), occasion.short_id))
    if before is None:
        return occasion
    if not before.plan.rehearse:
        raise PlanError(
            f"job {before.plan.job} was cut over on this day, or that was tried (run {before.plan.run_id}), and a "
            "backfill only rehearses: leave this day out"
        )
    return replace(occasion, is_backfill=before.plan_as_given().now_from == "backfill")
