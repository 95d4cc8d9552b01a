"""The folder of a run, which records how far the run has come, and all runs of a home.

| path under `runs/<job>/<run id>/` | holds |
|---|---|
| plan.json | the plan; it is written first |
| state.json | the states that the run went through, each with time and reason |
| state.lock | nothing; it is locked while state.json is written (on an object store the job's lease instead) |
| steps/<name>.json | the facts of a finished step, and others of `facts.py`, with the plan's fingerprint and a digest |
| blob-times | the timestamps of legacy blobs with time to live, if the next night can go on from this run |
| report.json | what the validation found |
| report.html | the same and more as a page |
| progress.json | how far the step at work has come |
| rescale-plan.json | which bytes each new subtask reads |
| staged/ | the staged savepoint |
| to-publish/_metadata | the target's `_metadata`, until the publication stands |
| exchange/ | entries on their way to key groups of another max parallelism, from the migrate step to the rescale step |
| temporary.json | the temporary folders of the run's processes |

`format.json` beside `runs/` holds the version of these formats. Every file appears complete or not at all.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeVar

from flinkstate.did_you_mean import there_are
from flinkstate.errors import DamagedError, PlanError, StateferryError, TransientError, UsageError
from flinkstate.files.storage import Location, side_by_side
from flinkstate.metadata.file_names import METADATA
from stateferry.basics.formats import FIELD, FIRST, FORMAT, check_format
from stateferry.basics.private_files import private_files
from stateferry.runs.catalog.control_tables import check_catalog
from stateferry.runs.catalog.lease import job_locked
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.plan_json import plan_of_json
from stateferry.runs.record.facts import FACTS_OF, RunFacts, Step, steps_of
from stateferry.runs.record.run_states import (
    ENDED,
    RunState,
    StateChange,
    changes_of_json,
    changes_to_json,
    check_change,
    check_reason,
)

_PLAIN = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._-]{0,99}", re.ASCII)
_PLAN, _FORMAT, _DIGEST = "plan.json", "format.json", "digest"

Facts = TypeVar("Facts", bound=RunFacts)


def folder_name(job: str) -> str:
    """A folder name for the job that every filesystem accepts and no other job has: the job's own name if possible."""
    if _PLAIN.fullmatch(job):
        return job
    like = re.sub(r"[^0-9A-Za-z_-]+", "-", job)[:60].strip("-")
    return f"{like or 'job'}~{hashlib.sha256(job.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def run_folder(home: str, job: str, run_id: str) -> Location:
    """The folder of a run under the home."""
    return _runs(home).child(folder_name(job)).child(run_id)


class _Inside:
    """A path in the folder of a run."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __get__(self, run: RunFolder, _: object) -> Location:
        return reduce(Location.child, self._names, run.folder)


class RunFolder:
    """The paths in the folder of a run, which the table above describes. Other modules ask here for them."""

    __slots__ = ()
    folder: Location

    plan_file = _Inside(_PLAN)
    state_file = _Inside("state.json")
    state_lock = _Inside("state.lock")
    blob_times = _Inside("blob-times")
    report = _Inside("report.json")
    report_page = _Inside("report.html")
    progress = _Inside("progress.json")
    rescale_plan = _Inside("rescale-plan.json")
    staged = _Inside("staged")
    staged_metadata = _Inside("staged", METADATA)
    target_metadata = _Inside("to-publish", METADATA)
    exchange = _Inside("exchange")
    temporary_folders = _Inside("temporary.json")
    _steps = _Inside("steps")

    def file_of(self, kind: type[RunFacts]) -> Location:
        """The file of these facts."""
        return self._steps.child(f"{kind.name}.json")


@dataclass(frozen=True, slots=True)
class Run(RunFolder):
    """A run and its folder.

    Only the holder of the job's lease may change the folder. A person's approval or rejection is an exception.
    """

    plan: MigrationPlan
    folder: Location
    # The content of files by their names, which an object store takes long to give back: those that this object has
    # written, or read ahead. `_facts` are all files of facts that there were then.
    _known: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    _facts: frozenset[str] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def create(cls, plan: MigrationPlan, now: int) -> Run:
        """The run of this plan; creates its folder if there is none."""
        recorded = check_home(plan.home)
        folder = run_folder(plan.home, plan.job, plan.run_id)
        run = cls(plan, folder)
        file = run.plan_file
        content = file.read_if_there()
        if content is not None:
            run = cls(plan_of_json(content, file.shown), folder)
            if plan != run.plan:
                raise PlanError(
                    f"run {plan.run_id} of job {plan.job} exists already, with another plan ({file.shown}): "
                    "give another run_id, or none"
                )
        else:
            # One that can't be reached now is told by the first step that needs it.
            with suppress(TransientError):
                check_catalog(plan.catalog_uri)
            if recorded < FORMAT:
                _write(Location.of(plan.home).child(_FORMAT), f"{json.dumps({FIELD: FORMAT})}\n")
            _write(file, plan.to_json())
        if not run.changes():
            run.enter(RunState.PLANNED, now)
        return run

    @classmethod
    def open(cls, folder: Location) -> Run:
        """The run in this folder."""
        check_home(folder.parent.parent.parent.shown)
        return cls._opened(folder)

    @classmethod
    def if_there(cls, folder: Location) -> Run | None:
        """The run in this folder; None if there is none yet."""
        return cls.open(folder) if folder.child(_PLAN).is_file() else None

    @classmethod
    def _opened(cls, folder: Location) -> Run:
        file = folder.child(_PLAN)
        return cls(plan_of_json(file.read(), file.shown), folder)

    @classmethod
    def find(cls, home: str, job: str, run_id: str) -> Run:
        """The run with this id, or the only run whose id begins with it."""
        of_job = runs_of(home, job)
        found = [one for one in of_job if one.run_id == run_id] or [
            one for one in of_job if one.run_id.startswith(run_id)
        ]
        if len(found) != 1:
            known = [one.run_id for one in of_job]
            how_many = "no run" if not found else f"{len(found)} runs"
            raise UsageError(f"job {job} has {how_many} {run_id!r}. {there_are(run_id, known)}")
        return cls.open(found[0].folder)

    def changes(self) -> tuple[StateChange, ...]:
        """The states that the run went through, the present one last."""
        content = self.content(self.state_file)
        return () if content is None else changes_of_json(content, self.state_file.shown)

    @property
    def state(self) -> RunState:
        """The present state."""
        return self.changes()[-1].state

    def enter(self, state: RunState, now: int, reason: str = "") -> None:
        """Puts the run into a state, if that may follow the present one.

        Nothing changes if the run is in this state already, for the same reason.
        """
        self._change(StateChange(state, now, reason), check=True)

    def note(self, state: RunState, at: int, reason: str = "") -> None:
        """Records a state that the run has according to the catalog, whatever the present one is."""
        self._change(StateChange(state, at, reason), check=False)

    def check(self, state: RunState) -> None:
        """Raises an error if the run can't get this state; called before any work that leads to the state."""
        changes = self.changes()
        check_change(changes[-1] if changes else None, state)

    def _change(self, change: StateChange, *, check: bool) -> None:
        # The lock keeps two processes that do this at once from losing each other's change.
        with private_files(), self._locked():
            self._known.pop(self.state_file.shown, None)
            changes = self.changes()
            last = changes[-1] if changes else None
            if last is not None and (last.state, last.reason) == (change.state, change.reason):
                return
            check_reason(change.state, change.reason)
            if check:
                check_change(last, change.state)
            _write(self.state_file, changes_to_json((*changes, change)))

    def _locked(self) -> AbstractContextManager[None]:
        return self.state_lock.locked() if self.folder.is_local else job_locked(self.plan.catalog_uri, self.plan.job)

    def facts(self, kind: type[Facts]) -> Facts | None:
        """The facts of this kind; None if the run has none, or has them for another plan."""
        stored = self.stored(kind)
        return None if stored is None else kind.of_json(stored, self.file_of(kind).shown)

    def facts_if_sound(self, kind: type[Facts]) -> Facts | None:
        """The facts of this kind; None also if their file is damaged, because another run must not fail for that."""
        try:
            return self.facts(kind)
        except DamagedError:
            return None

    def stored(self, kind: type[RunFacts]) -> dict[str, Any] | None:
        """The facts of this kind as they are stored."""
        file = self.file_of(kind)
        content = _object(file, self.content(file)) or {}
        if content.get("plan") != self.plan.fingerprint or not isinstance(content.get("facts"), dict):
            return None
        facts: dict[str, Any] = content["facts"]
        if content.get(_DIGEST) != _digest(facts):
            what = "to have the step done again, remove the file" if kind in FACTS_OF.values() else "start a new run"
            raise DamagedError(f"facts of digest {content.get(_DIGEST)}", f"other ones: {what}", file=file.shown)
        return facts

    def keep(self, *facts: RunFacts) -> None:
        """Stores the facts, in place of those of the same kind.

        A step's facts mark it as done; all files that it wrote must be on disk before.
        """
        list(side_by_side(self.folder, self._keep, facts))

    def _keep(self, facts: RunFacts) -> None:
        stored = facts.to_json()
        content = {"step": facts.name, "plan": self.plan.fingerprint, "facts": stored, _DIGEST: _digest(stored)}
        text = f"{json.dumps(content, indent=2, allow_nan=False)}\n"
        file = self.file_of(type(facts))
        self._known.pop(file.shown, None)
        _write(file, text)
        if not self.folder.is_local:
            self._known[file.shown] = text.encode()

    def forget(self, *kinds: type[RunFacts]) -> None:
        """Removes the facts of these kinds, so a step with such facts is done again."""
        for kind in kinds:
            file = self.file_of(kind)
            if self._known.pop(file.shown, None) is not None or self._may_have(file):
                file.remove()

    def read_ahead(self, *others: Location, kinds: Collection[type[RunFacts]] | None = None) -> Run:
        """The same run, after it has read its facts, or those of some kinds, and other files of the folder.

        On an object store these are read side by side. What others write later, the returned object doesn't notice.
        """
        if self.folder.is_local:
            return self
        listed = self._steps.entries()
        names = None if kinds is None else {self.file_of(kind).name for kind in kinds}
        files = [*others, *(file for file in listed if names is None or file.name in names)]
        contents = zip(files, side_by_side(self.folder, Location.read_if_there, files), strict=True)
        known = {file.shown: content for file, content in contents if content is not None}
        return Run(self.plan, self.folder, known, frozenset(file.shown for file in listed))

    def looked_at(self) -> Run:
        """The run as it is now, for one look at it: on an object store its files are read side by side."""
        return self.read_ahead(self.state_file, self.report, self.rescale_plan)

    def content(self, file: Location) -> bytes | None:
        """The content of a file in the folder; None if it is missing."""
        if file.shown in self._known:
            return self._known[file.shown]
        return file.read_if_there() if self._may_have(file) else None

    def _may_have(self, file: Location) -> bool:
        return self._facts is None or file.shown in self._facts or file.parent != self._steps

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the run, in their order."""
        return steps_of(rehearses=self.plan.rehearse, rescales_only=self.plan.rescales_only)

    def has_done(self, step: Step) -> bool:
        """Whether the step is done, for this plan."""
        return self.stored(FACTS_OF[step]) is not None


@dataclass(frozen=True, slots=True)
class RunSummary(RunFolder):
    """One run in a list of runs; a folder that can't be read has a `problem` and no plan."""

    job: str
    run_id: str
    folder: Location
    plan: MigrationPlan | None
    changes: tuple[StateChange, ...]
    problem: str = ""

    @property
    def state(self) -> RunState | None:
        """The present state; None if there is none."""
        return self.changes[-1].state if self.changes else None

    @property
    def reason(self) -> str:
        """The problem, or the reason of the present state."""
        return self.problem or (self.changes[-1].reason if self.changes else "")

    @property
    def planned_at(self) -> int:
        """When the run was planned, in milliseconds; 0 if that isn't known."""
        return self.changes[0].at if self.changes else 0

    @property
    def changed_at(self) -> int:
        """When the run got its present state, in milliseconds; 0 if that isn't known."""
        return self.changes[-1].at if self.changes else 0

    def remove(self) -> None:
        """Removes the folder; the plan goes last, because a folder without one counts as a run that never began."""
        for entry in self.folder.entries():
            if entry.name != _PLAN:
                entry.remove()
        self.folder.remove()


def runs_of(home: str, job: str | None = None) -> list[RunSummary]:
    """The runs of the job, or of all jobs, the newest first."""
    check_home(home)
    jobs = [_runs(home).child(folder_name(job))] if job is not None else _runs(home).folders()
    folders = [folder for of_job in jobs for folder in of_job.folders()]
    runs = side_by_side(_runs(home), _summary, folders)
    return sorted(runs, key=lambda run: (run.planned_at, run.run_id), reverse=True)


def run_folders(home: str) -> list[Location]:
    """The folders of all runs, in no order."""
    return [folder for job in _runs(home).folders() for folder in job.folders()]


def run_stamps(home: str) -> list[tuple[Location, tuple[object, ...]]]:
    """The folders of all runs, each with a value that changes when anything in the folder does.

    On an object store this is one listing of all of them.
    """
    runs = _runs(home)
    if runs.is_local:
        names = ("state.json", "report.json", "steps")
        return [(folder, tuple(folder.child(name).modified_at() for name in names)) for folder in run_folders(home)]
    found: dict[tuple[str, str], list[object]] = {}
    for one in runs.listed(recursive=True):
        job, _, rest = one.location.path.removeprefix(f"{runs.path}/").partition("/")
        run_id, _, name = rest.partition("/")
        if name and not one.is_folder:
            found.setdefault((job, run_id), []).append((name, one.modified_at, one.size))
    return [(runs.child(job).child(run_id), tuple(stamp)) for (job, run_id), stamp in found.items()]


def asked_for_before(plan: MigrationPlan, now_is_enough: Collection[RunState] = ()) -> Run | None:
    """The newest run for which this plan asks again, or None.

    The run has not ended, or it is in one of the states `now_is_enough`.
    """
    for run in runs_of(plan.home, plan.job):
        wanted = run.state is not None and (run.state not in ENDED or run.state in now_is_enough)
        if wanted and run.plan is not None and run.plan.is_asked_for_again_by(plan):
            return Run(run.plan, run.folder)
    return None


def _runs(home: str) -> Location:
    return Location.of(home).child("runs")


def check_home(home: str) -> int:
    """The version that the home records, 1 if it records none; refuses a newer one than this program knows."""
    file = Location.of(home).child(_FORMAT)
    content = _read_object(file)
    return FIRST if content is None else check_format(content.get(FIELD), f"the home {file.parent.shown}")


def _summary(folder: Location) -> RunSummary:
    try:
        run = Run._opened(folder)
        return RunSummary(run.plan.job, run.plan.run_id, folder, run.plan, run.changes())
    except TransientError:
        # This error passes. If the run were listed as unreadable now, another run might be started instead of this one.
        raise
    except StateferryError as error:
        return RunSummary(folder.parent.name, folder.name, folder, None, (), str(error))


def _write(file: Location, text: str) -> None:
    # Airflow's processes have another umask. To a store it is nothing, and threads must not change it.
    with private_files() if file.is_local else nullcontext():
        file.parent.make_folder()
        file.write_atomically(text.encode())


def _read_object(file: Location) -> dict[str, Any] | None:
    """The JSON object in the file; None if there is no file."""
    return _object(file, file.read_if_there())


def _digest(facts: dict[str, Any]) -> str:
    """The digest of facts as JSON, with which they are stored: what else changes them is noticed."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _object(file: Location, text: bytes | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        content = json.loads(text)
    except ValueError as error:
        raise DamagedError("JSON", f"something else: {error}", file=file.shown) from None
    return content if isinstance(content, dict) else {}
