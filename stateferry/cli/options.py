"""Options that several commands have: those of a plan, with the plan that they make, the home, the catalog, a run."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flinkstate.errors import PlanError, UsageError
from stateferry.basics.durations import parse_duration
from stateferry.basics.quantities import parse_share
from stateferry.cli.parser import checked

if TYPE_CHECKING:
    from stateferry.runs.plan.option_marks import OptionField
    from stateferry.runs.plan.plan import MigrationPlan
    from stateferry.runs.record.runs import Run

# Values of a plan that a command asks for in its own way, if it does.
_OF_THE_COMMAND = ("source", "target", "rehearse", "home")


# The groups in which --help shows the options of a plan, by their names; those of no other group are in the last one.
_GROUPS = {
    "which state becomes which": (
        "operator",
        "legacy_state",
        "new_state",
        "field",
        "rest",
        "flag_state",
        "no_flag_state",
        "as",
        "widen",
        "job",
    ),
    "where the savepoint's files are": ("files_from",),
    "time to live": ("ttl", "state_ttl", "keep_expired", "accept_expired", "clock_tolerance", "now"),
    "the new savepoint": (
        "parallelism",
        "max_parallelism",
        "compression",
        "format",
        "since",
        "full_every",
        "keep_legacy",
    ),
    "the Flink of the new job": ("to", "declared", "all_by_kryo_5", "before", "restore_lost", "restore_keys"),
    "lazy runs, which move some of the keys": ("lazy", "share", "budget", "largest_first", "flag_ttl"),
    "the way back to the old job": ("reverse", "drop_legacy_blobs", "like"),
}
_LAST_GROUP = "what a run refuses unless you allow it"


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of a plan, the file that may have them, and the places of runs and catalog."""
    from stateferry.runs.plan.plan_from_options import PLAN_OPTIONS

    options = {one.name: one for one in PLAN_OPTIONS}
    last = tuple(name for name in options if not any(name in names for names in _GROUPS.values()))
    for title, names in {**_GROUPS, _LAST_GROUP: last}.items():
        group = parser.add_argument_group(title)
        for one in (options[name] for name in names):
            group.add_argument(one.flag, dest=one.name, help=_help(one), **_settings(one))
    group = parser.add_argument_group("the plan, and where runs are kept")
    group.add_argument("--plan", metavar="FILE", help="the plan as JSON; options given beside it override it")
    add_place_options(group)


def _help(one: OptionField) -> str:
    default = f" (default: {one.if_not_given})" if one.if_not_given else ""
    return f"{one.option.help}{default}".replace("%", "%%")


def _settings(one: OptionField) -> dict[str, Any]:
    from stateferry.runs.plan.option_marks import Kind

    match one.option.kind:
        case Kind.SWITCH:
            return {"action": "store_true", "default": None}
        case Kind.CHOICE:
            return {"choices": one.choices}
        case Kind.NUMBER:
            return {"type": int, "metavar": one.option.metavar or "N"}
        case Kind.PARALLELISM:
            return {"metavar": "N|OP=N,..."}
        case Kind.DURATION:
            return {"metavar": "DURATION", "type": checked(parse_duration)}
        case Kind.SHARE:
            return {"metavar": "SHARE", "type": checked(parse_share)}
        case Kind.LINES:
            return {"action": "append", "metavar": one.option.metavar}
        case _:
            return {"metavar": one.option.metavar or "NAME"}


def plan_values_of_options(options: argparse.Namespace, of_run: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The values in the plan file and the options; values that neither gives are those of a run, or are left out."""
    from stateferry.runs.plan.exclusions import ASK_WITHOUT_STATES
    from stateferry.runs.plan.plan_from_options import plan_values_of
    from stateferry.runs.plan.plan_json import plan_values

    given = vars(options)
    values = dict(of_run or {})
    if options.plan is not None:
        try:
            values = _overridden(values, plan_values(Path(options.plan).read_bytes(), options.plan))
        except OSError as error:
            raise UsageError(f"the plan can't be read: {error}") from None
    _check_names(given)
    values |= {name: given[name] for name in _OF_THE_COMMAND if given.get(name) is not None}
    if given.get("catalog") is not None:
        values["catalog_uri"] = given["catalog"]
    values = _overridden(values, plan_values_of(given))
    for name, option in (("source", "--savepoint"), ("target", "--target")):
        if name not in values:
            raise UsageError(f"{option} is missing: give it, or a plan file (--plan) that has {name}")
    if "operators" not in values and not ASK_WITHOUT_STATES & values.keys():
        raise UsageError(
            "--operator is missing: give it with --legacy-state and --new-state, or a plan file (--plan) that has "
            "operators; without a migration, give --parallelism or --max-parallelism to rescale, or --to for another "
            "Flink"
        )
    return values


def _overridden(values: Mapping[str, Any], by: Mapping[str, Any]) -> dict[str, Any]:
    """The values with those of `by` in their place; a digest goes with the classes of which it is."""
    left_out = {"classes_digest"} if "classes" in by else set[str]()
    return {name: value for name, value in values.items() if name not in left_out} | dict(by)


def _check_names(given: dict[str, Any]) -> None:
    """Refuses options of a state that don't name the state."""
    from stateferry.runs.plan.plan_from_options import STATE_OPTIONS

    if all(given[one.name] is None for one in STATE_OPTIONS):
        return
    missing = [one.flag for one in STATE_OPTIONS if one.required and given[one.name] is None]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} missing: operator, legacy and new state are named together. To rescale without a "
            "migration, name none of them"
        )


@contextmanager
def named_by_options(options: argparse.Namespace) -> Iterator[None]:
    """Lets the problems of a plan name options instead of fields, unless a file has the plan."""
    try:
        yield
    except PlanError as error:
        if options.plan is None:
            from stateferry.runs.plan.plan_from_options import in_words_of_options

            text = re.sub(r"^source(?=: )", "--savepoint", in_words_of_options(str(error)), flags=re.MULTILINE)
            text = re.sub(r"^catalog_uri(?=: )", "the catalog", text, flags=re.MULTILINE)
            error.args = (re.sub(r"^(?=target: )", "--", text, flags=re.MULTILINE),)
        raise


def plan_of_options(options: argparse.Namespace) -> MigrationPlan:
    """The plan that the plan file and the options make."""
    from stateferry.runs.checks.plan_check import planned

    values = plan_values_of_options(options)
    # In a plan file it isn't refused: that may be of a job's nights and of its cut-over.
    if vars(options).get("full_every") is not None and not values.get("rehearse"):
        # With `since`, --rehearse would only lead to the next refusal.
        or_so = "give --rehearse as well, or " if values.get("since") is None else ""
        raise PlanError(f"full_every: only a rehearsal goes on from an earlier one: {or_so}leave full_every out")
    if values.get("rehearse") and values.get("full_every") is not None and values.get("since") is not None:
        raise PlanError(
            "full_every: since says from which rehearsal this one goes on, so none is chosen: leave one of them out"
        )
    plan = planned(values)
    if "now" in values and plan.is_night and plan.full_every != 1:
        raise PlanError(
            "full_every: a night that converts only what has changed has the now of an earlier one: leave out the one "
            "that is given (now), or give full_every 1, which converts everything"
        )
    return plan


def add_place_options(parser: argparse._ActionsContainer) -> None:
    """Declares the options for the home and the catalog: a parser, or a group of its options."""
    parser.add_argument(
        "--home", metavar="DIR", help="the folder of the runs (default: $STATEFERRY_HOME, else ~/.stateferry)"
    )
    parser.add_argument(
        "--catalog",
        metavar="URI",
        help="the catalog's database (default: $STATEFERRY_CATALOG, else catalog.db in the home)",
    )


def catalog_of(options: argparse.Namespace) -> tuple[str, str]:
    """The home and the catalog's address that the options name."""
    from stateferry.runs.plan.homes import default_catalog, default_home
    from stateferry.runs.plan.plan_fields import absolute_place, check_name_of_home
    from stateferry.runs.record.runs import check_home

    home = str(absolute_place(options.home or default_home())).rstrip("/")
    check_name_of_home(home, "home")
    check_home(home)
    return home, options.catalog or default_catalog(home)


def named_run(name: str, job: str | None, home_of: Callable[[], str]) -> Run:
    """The run of this id, or one that begins so, or in this folder; the home is needed only for an id."""
    from flinkstate.files.storage import Location
    from stateferry.runs.record.run_list import find_run, runs_of, those_named
    from stateferry.runs.record.runs import Run

    if "/" in name:
        folder = Run.if_there(Location.of(name.rstrip("/")))
        if folder is None:
            raise UsageError(f"{name} is not the folder of a run: it has no plan.json")
        return folder
    home = home_of()
    if job is not None:
        return find_run(home, job, name)
    found = those_named(runs_of(home), name)
    if len(found) != 1:
        several = ", ".join(f"{one.run_id} of job {one.job}" for one in found)
        raise UsageError(
            f"{home} has {f'{len(found)} runs' if found else 'no run'} {name!r}"
            + (f": {several}. Name the job with --job, or more of the id" if found else ": `stateferry runs` lists all")
        )
    return Run.open(found[0].folder)
