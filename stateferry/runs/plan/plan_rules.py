"""What contradicts itself in a plan: checked when the plan is made, before anybody looks at the savepoint."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from flinkstate.errors import UsageError
from flinkstate.files.uris import store_in
from flinkstate.metadata.moved_files import ADDRESS
from stateferry.basics import catalog_address
from stateferry.runs.plan.exclusions import ASK_WITHOUT_STATES, broken, given_fields
from stateferry.runs.plan.homes import CATALOG_VARIABLE
from stateferry.runs.plan.plan_fields import absolute_place, check_name_of_home, folder_of, repeated
from stateferry.runs.plan.planned_states import StatePlan
from stateferry.runs.plan.run_options import RunOptions

_RUN_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}", re.ASCII)
# A file without its whole path would be another one in another working folder.
_CATALOGS = ("sqlite:////", "postgresql://", "postgresql+")
# A login would be in the file of the plan.
_REST = re.compile(r"https?://[^\s/@?#]+(/[^\s@?#]*)?")


def problems_of(plan: RunOptions) -> Iterator[str]:
    """Yields what contradicts itself in the plan, one sentence each."""
    if not _RUN_ID.fullmatch(plan.run_id):
        yield (
            f"run_id: expected up to 100 letters, digits, '.', '_' or '-', found {plan.run_id!r}: "
            "give another one, or leave it out"
        )
    source, target = (folder_of(name) for name in (plan.source, plan.target))
    if f"{target}/".startswith(f"{source}/") or f"{source}/".startswith(f"{target}/"):
        yield f"target {plan.target} and source {plan.source} lie one in the other: give the target its own folder"
    for operator in repeated(operator.operator for operator in plan.operators):
        yield f"operators: {operator!r} is there more than once: put its states into one list"
    for named in repeated(f"{one.operator}/{one.state}" for one in plan.state_ttls):
        yield f"state_ttls: {named} is there more than once: give it one time to live"
    yield from _catalog_problems(plan)
    yield from _place_problems(plan)
    yield from _layout_problems(plan)
    yield from _option_problems(plan)


def _catalog_problems(plan: RunOptions) -> Iterator[str]:
    if not plan.catalog_uri.startswith(_CATALOGS):
        yield (
            "catalog_uri: expected sqlite:////absolute/path.db or postgresql://host/database, found "
            f"{plan.catalog_shown!r}"
        )
    elif catalog_address.has_password(plan.catalog_uri):
        yield (
            f"catalog_uri: {plan.catalog_shown} has a password, which would be in the file of the plan: leave it out "
            f"there, and give it by {CATALOG_VARIABLE}, PGPASSFILE or PGPASSWORD"
        )
    if plan.rest_catalog is not None and not _REST.fullmatch(plan.rest_catalog):
        yield (
            "rest_catalog: expected an address without login and query, such as https://host/catalog, found "
            f"{catalog_address.hidden(plan.rest_catalog).partition('?')[0]!r}: logins and the name of a warehouse "
            "belong into pyiceberg's configuration of the catalog stateferry"
        )


def _place_problems(plan: RunOptions) -> Iterator[str]:
    """What is wrong with the names of places, by themselves."""
    for what, name in (("home", plan.home), ("warehouse", plan.warehouse), ("catalog_uri", plan.catalog_shown)):
        try:
            # In the address of a server such signs have their usual meaning.
            if what != "catalog_uri" or name.startswith("sqlite:"):
                check_name_of_home(name, f"{what}:")
        except UsageError as error:
            yield str(error)
            break  # The others are in the home, if the plan doesn't say where they are.
    if plan.claimable and (store := store_in(plan.target)) and not store.startswith("s3:"):
        yield (
            f"claimable: {plan.target} is on a store that copies no files itself, and what a job may claim is made of "
            "hard links, or of copies of S3's: give a target on a disk or S3, or leave claimable out"
        )
    for old, new in (plan.files_from or {}).items():
        try:
            for place in (old, new):
                if not ADDRESS.match(place):
                    raise UsageError(f"expected an absolute path or a URI, found {place!r}")
            absolute_place(new)
        except UsageError as error:
            yield f"files_from: {error}"


def _layout_problems(plan: RunOptions) -> Iterator[str]:
    wanted = plan.parallelism if isinstance(plan.parallelism, dict) else {"": plan.parallelism}
    for operator, parallelism in wanted.items():
        if parallelism and plan.max_parallelism and parallelism > plan.max_parallelism:
            of = f" of operator {operator!r}" if operator else ""
            yield (
                f"parallelism {parallelism}{of} is above max_parallelism {plan.max_parallelism}: "
                "lower the one or raise the other"
            )


def _option_problems(plan: RunOptions) -> Iterator[str]:
    """What is wrong with options beside others, or without them."""
    given = given_in(dict(plan), (dict(state) for operator in plan.operators for state in operator.states))
    asked = given & ASK_WITHOUT_STATES
    if plan.rescales_only and asked <= {"state_ttls"} and not any(one.drops for one in plan.state_ttls):
        yield (
            "operators: missing: name the operator with its legacy and new state; or, without a migration, give "
            "parallelism, max_parallelism or format native to rescale, or the Flink that the result is for (to)"
        )
    yield from (row.why for row in broken(given))
    if not plan.keep_legacy:
        yield from _open_questions(plan)
    if plan.lazy and not plan.rescales_only and not plan.keep_legacy:
        yield from _lazy_problems(plan)


def _open_questions(plan: RunOptions) -> Iterator[str]:
    """Yields which states of several have a field, but no word for the rest of the POJO."""
    states = [state for operator in plan.operators for state in operator.states]
    if any(state.rest != "stop" for state in states):
        for state in states:
            if state.field is not None and state.rest == "stop":
                yield f"rest: state {state.legacy!r} has a field {state.field!r}, but no rest: give keep or drop"


def _lazy_problems(plan: RunOptions) -> Iterator[str]:
    if (plan.share is None) == (plan.budget_ms is None):
        found = "neither" if plan.share is None else "both"
        yield f"lazy: expected a share or a budget, found {found}: say how many keys the run may move"
    states = [state for operator in plan.operators for state in operator.states]
    for state in states:
        if state.field is not None:
            yield (
                f"lazy: the map of state {state.legacy!r} is in a field: a POJO of which only the map was moved looks "
                "like one whose map is still to be moved: migrate it without lazy"
            )
        elif state.flag is None:
            yield (
                f"lazy: state {state.legacy!r} has no flag: the job knows by the flag which keys are moved: name "
                "the job's flag state (flag)"
            )
    for flag in repeated(state.flag for state in states if state.flag is not None):
        if any(len([one for one in operator.states if one.flag == flag]) > 1 for operator in plan.operators):
            yield (
                f"lazy: flag {flag!r} is of several states: a lazy run may move a key in one of them alone. Give "
                "each its own flag, or migrate them without lazy"
            )


def given_in(values: Mapping[str, object], states: Iterable[Mapping[str, object]]) -> set[str]:
    """The options that the values of a plan and of its states give."""
    return given_fields(values, RunOptions).union(*(given_fields(state, StatePlan) for state in states))
