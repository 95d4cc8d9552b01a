"""The options of a run on the command line, and the plan that they make."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateferry.errors import UsageError

if TYPE_CHECKING:
    from stateferry.runs.plan import MigrationPlan

_STATE_OPTIONS = ("legacy_state", "new_state")


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of a plan."""
    parser.add_argument("--operator", metavar="NAME", help="the operator's id, uid or unique name")
    parser.add_argument("--legacy-state", metavar="NAME", help="the ValueState<Map> to migrate")
    parser.add_argument("--new-state", metavar="NAME", help="the MapState that it becomes")
    parser.add_argument("--flag-state", metavar="NAME", help="the job's own flag of the keys it has migrated, if any")
    parser.add_argument(
        "--no-flag-state",
        action="store_true",
        default=None,
        help="the job has no such flag, though a Boolean state may look like one",
    )
    parser.add_argument("--job", metavar="NAME", help="what the run belongs to (default: the operator's name or uid)")
    parser.add_argument("--ttl", metavar="DURATION", help="the states' time to live: 90s, 15m, 12h, 30d, or ms")
    parser.add_argument("--parallelism", type=int, metavar="N", help="of the migrated operator (default: as it is)")
    parser.add_argument("--max-parallelism", type=int, metavar="N", help="of every operator (default: as it is)")
    parser.add_argument("--now", type=int, metavar="MS", help="what counts as now for expiry (default: this moment)")
    parser.add_argument("--keep-expired", action="store_true", default=None, help="carry expired entries over too")
    parser.add_argument("--accept-expired", metavar="SHARE", help="the share of a state that may expire: 60%% or 0.6")
    parser.add_argument(
        "--clock-tolerance", metavar="DURATION", help="timestamps may be later than now by this much (default: 10m)"
    )
    parser.add_argument("--keep-legacy", action="store_true", default=None, help="keep the legacy state and flag too")
    parser.add_argument(
        "--drop-unrepresentable-nulls",
        action="store_true",
        default=None,
        help="leave out null values that a MapState with TTL can't hold",
    )
    parser.add_argument(
        "--on-contradiction",
        choices=("stop", "blob", "rows"),
        help="who wins where a key is flagged as migrated and still has a blob (default: stop)",
    )
    parser.add_argument("--plan", metavar="FILE", help="the plan as JSON; options given beside it override it")


def plan_values_of(options: argparse.Namespace) -> dict[str, Any]:
    """The values in the plan file and the options; values that neither gives are left out."""
    from stateferry.runs.plan import plan_values

    values: dict[str, Any] = {}
    if options.plan is not None:
        try:
            values = plan_values(Path(options.plan).read_bytes(), options.plan)
        except OSError as error:
            raise UsageError(f"the plan can't be read: {error}") from None
    given = {
        "source": options.source,
        "target": options.target,
        "job": options.job,
        "now": options.now,
        "parallelism": options.parallelism,
        "max_parallelism": options.max_parallelism,
        "keep_expired": options.keep_expired,
        "accept_expired": options.accept_expired,
        "clock_tolerance_ms": options.clock_tolerance,
        "keep_legacy": options.keep_legacy,
        "drop_unrepresentable_nulls": options.drop_unrepresentable_nulls,
        "on_contradiction": options.on_contradiction,
        "rehearse": getattr(options, "rehearse", None),
    }
    values |= {name: value for name, value in given.items() if value is not None}
    of_a_state = (options.operator, options.legacy_state, options.new_state, options.flag_state, options.no_flag_state)
    if any(of_a_state) or options.ttl:
        values["operators"] = [_operator(options)]
    for name, option in (("source", "--savepoint"), ("target", "--target"), ("operators", "--operator")):
        if name not in values:
            raise UsageError(f"{option} is missing (or --plan with a file that says it)")
    return values


def _operator(options: argparse.Namespace) -> dict[str, Any]:
    missing = [name for name in ("operator", *_STATE_OPTIONS) if getattr(options, name) is None]
    if missing:
        named = " and ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise UsageError(f"{named} missing: operator, legacy and new state are named together")
    state = {"legacy": options.legacy_state, "new": options.new_state}
    if options.flag_state is not None:
        state["flag"] = options.flag_state
    if options.no_flag_state is not None:
        state["no_flag"] = options.no_flag_state
    if options.ttl is not None:
        state["ttl_ms"] = options.ttl
    return {"operator": options.operator, "states": [state]}


def plan_of_options(options: argparse.Namespace) -> MigrationPlan:
    """The plan that the plan file and the options make."""
    from stateferry.runs.plan_check import planned

    return planned(plan_values_of(options))
