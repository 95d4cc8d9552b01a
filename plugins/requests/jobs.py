"""The configured jobs: from the Airflow variable `state_migration`, or from the file that STATEFERRY_JOBS_FILE names.

The configuration is a JSON object. It has either the fields of a request, which the DAG `state_migration` then
rehearses every midnight (UTC), or `jobs`, each of which gets a DAG of its own:

    {"jobs": {"orders": {"request": {...}, "schedule": "0 2 * * *", "timezone": "Europe/Berlin"}}, "notify": [...]}

A bad entry becomes a problem, and takes no other entry down.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from zoneinfo import ZoneInfo

from airflow.sdk import Variable
from croniter import croniter
from pydantic import AfterValidator, Field, StrictStr

from flinkstate.errors import PlanError
from stateferry.airflow.requests.request import MigrationRequest, migration_request
from stateferry.airflow.requests.request_parts import Request, Text, checked
from stateferry.runs.plan.plan_json import plan_values

VARIABLE, FILE_VARIABLE = "state_migration", "STATEFERRY_JOBS_FILE"
DAG_ID = "state_migration"
NIGHTLY = "0 0 * * *"

Event = Literal["waiting", "reminder", "rejected", "red", "returned", "late", "missed", "nothing", "done"]
# Those of which a notice tells unless it names its own: a success needs nobody.
EVENTS: tuple[Event, ...] = ("waiting", "reminder", "rejected", "red", "returned", "late", "missed", "nothing")

_T = TypeVar("_T")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", re.ASCII)
_MODULE = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
_CLASS = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$"


def _cron(text: str | None) -> str | None:
    # croniter also takes expressions with seconds and years, which Airflow's timetables don't.
    if text is not None and not (text.startswith("@") or len(text.split()) == len(NIGHTLY.split())):
        raise ValueError(f"expected a cron expression of five fields such as {NIGHTLY!r}, found {text!r}")
    if text is not None and not croniter.is_valid(text):
        raise ValueError(f"expected a cron expression such as {NIGHTLY!r}, found {text!r}")
    return text


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise ValueError(f"expected a time zone such as 'UTC' or 'Europe/Berlin', found {name!r}") from None
    return name


class Notice(Request):
    """Which notifier of Airflow hears of which events; it gets its arguments with templates filled in."""

    notifier: Annotated[StrictStr, Field(pattern=_CLASS)]
    arguments: Annotated[dict[str, Any], Field(default_factory=dict)]
    events: Annotated[tuple[Event, ...], Field(min_length=1)] = EVENTS


class _Entry(Request):
    """A job, as the configuration has it."""

    request: dict[str, Any]
    schedule: Annotated[Text, AfterValidator(_cron)] = NIGHTLY
    timezone: Annotated[StrictStr, AfterValidator(_zone)] = "UTC"
    pool: Text = None
    by_schedule: Literal["rehearse", "cut over"] = "rehearse"
    own_tasks: Annotated[StrictStr | None, Field(pattern=_MODULE)] = None
    notify: Annotated[list[Any], Field(default_factory=list)]


@dataclass(frozen=True, slots=True)
class ConfiguredJob:
    """A job of the configuration; its name is empty if the configuration is a single request."""

    name: str
    origin: str
    values: Mapping[str, object]
    request: MigrationRequest
    schedule: str | None = NIGHTLY
    timezone: str = "UTC"
    pool: str | None = None
    cuts_over: bool = False
    notices: tuple[Notice, ...] = ()
    own_tasks: str | None = None

    @property
    def dag_id(self) -> str:
        """The id of the job's DAG."""
        return f"{DAG_ID}_{self.name}" if self.name else DAG_ID

    @property
    def job(self) -> str:
        """The name under which the job is migrated, which its lease and its tables have."""
        return str(self.request.plan_values()["job"])

    def by_schedule(self, conf: Mapping[str, object], *, is_backfill: bool) -> MigrationRequest:
        """The request of a scheduled or backfill DAG run: a rehearsal, unless the job is cut over by schedule."""
        request = migration_request({**self.values, **conf}, self.origin)
        return request if self.cuts_over and not is_backfill and not request.rehearses else request.night()


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configured jobs, the notices of all DAGs, and what is wrong in the configuration."""

    jobs: tuple[ConfiguredJob, ...] = ()
    notices: tuple[Notice, ...] = ()
    problems: tuple[str, ...] = ()

    def of_dag(self, dag_id: str) -> ConfiguredJob | None:
        """The job whose DAG it is."""
        return next((one for one in self.jobs if one.dag_id == dag_id), None)

    def of_job(self, job: str) -> ConfiguredJob | None:
        """The configured job that is migrated under this name."""
        return next((one for one in self.jobs if one.job == job), None)

    def notices_of(self, dag_id: str, job: str) -> tuple[Notice, ...]:
        """Who hears of events of this DAG, and of this job in a DAG that isn't its own."""
        one = self.of_dag(dag_id) or self.of_job(job)
        return (*self.notices, *(one.notices if one is not None else ()))


def configuration() -> Configuration:
    """The configuration as it is now; empty if there is none."""
    variable: str | None = Variable.get(VARIABLE, default=None)
    path = os.environ.get(FILE_VARIABLE)
    if not path:
        return configuration_of(variable, f"the Airflow variable {VARIABLE}")
    origin = f"the file {path}"
    try:
        found = configuration_of(Path(path).read_text(encoding="utf-8"), origin)
    except (OSError, UnicodeDecodeError) as error:
        found = Configuration(problems=(f"{origin}, which {FILE_VARIABLE} names, can't be read: {error}",))
    if variable is None:
        return found
    both = f"the Airflow variable {VARIABLE} has no effect, because {FILE_VARIABLE} names {path}: remove one of them"
    return Configuration(found.jobs, found.notices, (*found.problems, both))


def configuration_of(text: str | None, origin: str) -> Configuration:
    """The configuration in this JSON text; messages call it `origin`."""
    if text is None:
        return Configuration()
    try:
        values = plan_values(text, origin)
    except PlanError as error:
        return Configuration(problems=(str(error),))
    reading = _Reading(origin)
    jobs = tuple(reading.jobs(values) if "jobs" in values else reading.single(values))
    notices = tuple(reading.notices(values.get("notify", []), "notify")) if "jobs" in values else ()
    return Configuration(jobs, notices, tuple(reading.problems))


def _to_schedule(values: Mapping[str, object], origin: str) -> MigrationRequest:
    request = migration_request(values, origin)
    if request.checks_only:
        raise PlanError(f"{origin}: mode: 'check only' is for the form alone: choose 'rehearse' or 'cut over'")
    return request


class _Reading:
    """Reads entries and collects problems."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.problems: list[str] = []

    def single(self, values: Mapping[str, object]) -> Iterator[ConfiguredJob]:
        """The job of a configuration that is a single request."""
        request = self._right(lambda: _to_schedule(values, self.origin))
        if request is not None:
            yield ConfiguredJob("", self.origin, values, request)

    def jobs(self, values: Mapping[str, object]) -> Iterator[ConfiguredJob]:
        """The jobs that are right."""
        for name in values.keys() - {"jobs", "notify"}:
            self._tell(f"{name}: unknown field beside jobs: there are jobs and notify")
        entries = values["jobs"]
        if not isinstance(entries, dict):
            self._tell(f"jobs: expected an object with an entry for each job, found {type(entries).__name__}")
            return
        names: dict[str, str] = {}
        for name, entry in entries.items():
            one = self._job(name, entry)
            if one is None:
                continue
            if one.job in names:
                self._tell(
                    f"jobs.{name}: the job is {one.job!r}, as that of jobs.{names[one.job]}: they would share a lease "
                    "and tables. Give each another `job`, or remove one of them"
                )
                continue
            names[one.job] = name
            yield one

    def _job(self, name: str, values: object) -> ConfiguredJob | None:
        """The job; None if something is wrong with it, and then `problems` gets all of it."""
        place, before = f"jobs.{name}", len(self.problems)
        if not _NAME.fullmatch(name):
            self._tell(
                f"{place}: expected a name of letters, digits, '_', '-' and '.': it becomes part of the DAG's id"
            )
        if not isinstance(values, dict):
            self._tell(f"{place}: expected an object with request, schedule and so on, found {values!r}")
            return None
        entry = self._right(lambda: checked(_Entry, values, f"{self.origin}: {place}"))
        # Each part is looked at, even if another one is wrong.
        given, notify = values.get("request"), values.get("notify", [])
        wanted: dict[str, object] = {"job": name, **given} if isinstance(given, dict) else {}
        origin = f"{self.origin}: {place}.request"
        request = self._right(lambda: _to_schedule(wanted, origin)) if wanted else None
        cuts_over = values.get("by_schedule") == "cut over"
        if cuts_over and request is not None and request.rehearses:
            self._tell(f"{place}: by_schedule: 'cut over', but the mode of the request is 'rehearse': change one")
        own = values.get("own_tasks")
        if request is not None and (request.runs_on == "own tasks") != (own is not None):
            self._tell(
                f"{place}: own_tasks: {'missing' if own is None else 'given'}, but runs_on of the request is "
                f"'{request.runs_on}': each needs the other"
            )
        is_wrong = len(self.problems) > before
        # A wrong notice leaves its job.
        notices = tuple(self.notices(notify, f"{place}.notify")) if isinstance(notify, list) else ()
        if is_wrong or entry is None or request is None:
            return None
        return ConfiguredJob(
            name,
            origin,
            wanted,
            request,
            entry.schedule,
            entry.timezone,
            entry.pool,
            cuts_over,
            notices,
            entry.own_tasks,
        )

    def _right(self, read: Callable[[], _T]) -> _T | None:
        """What is read; None if it is wrong, and then `problems` gets why."""
        try:
            return read()
        except PlanError as error:
            self.problems += str(error).splitlines()
            return None

    def notices(self, values: object, place: str) -> Iterator[Notice]:
        """The notices that are right."""
        if not isinstance(values, list):
            self._tell(f"{place}: expected a list, found {type(values).__name__}")
            return
        for number, one in enumerate(values):
            where = f"{place}[{number}]"
            if not isinstance(one, dict):
                self._tell(f"{where}: expected an object with notifier, arguments and events, found {one!r}")
                continue
            notice = self._right(partial(checked, Notice, one, f"{self.origin}: {where}"))
            if notice is not None:
                yield notice

    def _tell(self, problem: str) -> None:
        self.problems.append(f"{self.origin}: {problem}")
