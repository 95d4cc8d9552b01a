"""Checks that the source, the target and the run's own folders are separate, whatever their paths are."""

from __future__ import annotations

from flinkstate.errors import PlanError
from flinkstate.files.storage import Location
from flinkstate.files.uris import lies_in, real_name, store_in
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.plan_fields import folder_of

_IN_FILE = "sqlite:///"


def check_separate_places(plan: MigrationPlan) -> None:
    """Refuses a target in or around the source's folder, and home, warehouse or catalog in the source's folder.

    A target among the runs or the tables is refused too: `stateferry clean` removes what it doesn't know there.

    The check follows symbolic links and mounts. Its result depends on the disk as it is now, so the step that writes
    the new savepoint and the cut-over repeat it before they write.
    """
    source, target = (_real_folder(name) for name in (plan.source, plan.target))
    if lies_in(target, source) or lies_in(source, target):
        raise PlanError(
            f"target {plan.target} is {target}, and source {plan.source} is {source}: symbolic links or mounts make "
            "the one contain the other. A run never writes into its source: give the target a folder of its own"
        )
    places = [("home (STATEFERRY_HOME)", plan.home), ("warehouse", plan.warehouse)]
    if plan.catalog_uri.startswith(_IN_FILE):
        places.append(("catalog", plan.catalog_uri.removeprefix(_IN_FILE)))
    for what, place in places:
        if lies_in(_real_folder(place), source):
            raise PlanError(
                f"{what} {place} is {_real_folder(place)}, which lies in the source {plan.source}. A run never writes "
                f"into its source: choose a folder elsewhere"
            )
    for what, place in (("runs", f"{plan.home}/runs"), ("tables", plan.warehouse)):
        folder = _real_folder(place)
        if lies_in(target, folder) or lies_in(folder, target):
            raise PlanError(
                f"target {plan.target} and {folder}, the folder of the {what}, lie one in the other, where `stateferry "
                "clean` removes what no run has: give the target a folder of its own"
            )


def check_buckets(plan: MigrationPlan) -> None:
    """Refuses a plan that writes into a bucket which is missing; asks for each bucket once."""
    places = [plan.home] if plan.rescales_only else [plan.home, plan.warehouse]
    places += [] if plan.rehearse else [plan.target]
    for place in {store_in(place): place for place in places if "://" in place}.values():
        Location.of(place).check_bucket()


def _real_folder(name: str) -> str:
    return real_name(folder_of(name))
