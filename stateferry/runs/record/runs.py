"""A run: how far it has come, and its facts, as its folder records them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flinkstate.errors import DamagedError, PlanError, TransientError
from flinkstate.files.storage import Location, side_by_side
from stateferry.basics.formats import FIELD, FIRST, FORMAT, check_format
from stateferry.basics.private_files import private_files
from stateferry.runs.catalog.control_tables import check_catalog
from stateferry.runs.catalog.lease import job_locked
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.plan_json import plan_of_json
from stateferry.runs.record.facts import NightChoice, RunFacts
from stateferry.runs.record.run_folder import PLAN_FILE, RunFolder, run_folder
from stateferry.runs.record.run_states import (
    RunState,
    StateChange,
    changes_of_json,
    changes_to_json,
    check_change,
    check_reason,
)
from stateferry.runs.record.step_facts import FACTS_OF
from stateferry.runs.record.steps import Step, steps_of

_FORMAT, _DIGEST = "format.json", "digest"

Facts = TypeVar("Facts", bound=RunFacts)


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
    # Whether `create` has made the folder.
    is_new: bool = field(default=False, repr=False, compare=False)

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
            if plan != run.plan and plan != run.plan_as_given():
                raise PlanError(
                    f"run {plan.run_id} of job {plan.job} exists already, with another plan ({file.shown}): "
                    "give another run_id, or none"
                )
        else:
            # One that can't be reached now is reported by the first step that needs it.
            with suppress(TransientError):
                check_catalog(plan.catalog_uri)
            if recorded < FORMAT:
                _write(Location.of(plan.home).child(_FORMAT), f"{json.dumps({FIELD: FORMAT})}\n")
            _write(file, plan.to_json())
            run = cls(plan, folder, is_new=True)
        if not run.changes():
            run.enter(RunState.PLANNED, now)
        return run

    @classmethod
    def open(cls, folder: Location) -> Run:
        """The run in this folder."""
        check_home(folder.parent.parent.parent.shown)
        return cls.of_checked(folder)

    @classmethod
    def if_there(cls, folder: Location) -> Run | None:
        """The run in this folder; None if there is none yet."""
        return cls.open(folder) if folder.child(PLAN_FILE).is_file() else None

    @classmethod
    def of_checked(cls, folder: Location) -> Run:
        """The run in this folder of a home that was checked before."""
        file = folder.child(PLAN_FILE)
        return cls(plan_of_json(file.read(), file.shown), folder)

    def plan_as_given(self) -> MigrationPlan:
        """The plan with which the run was created: a night that catches up gets the now of its base afterwards."""
        choice = self.facts(NightChoice)
        if choice is None:
            return self.plan
        return self.plan.model_copy(update={"since": None, "now": choice.now, "now_from": choice.now_from})

    def replanned(self, plan: MigrationPlan, kinds: Iterable[type[RunFacts]]) -> Run:
        """The same run with another plan; of its facts only those of these kinds count for it too."""
        other = Run(plan, self.folder)
        # After a kill between the two, the run still has its old plan, and needs them for that.
        other._keep_all([facts for kind in kinds if (facts := self.facts(kind)) is not None], self.plan)
        _write(self.plan_file, plan.to_json())
        return other

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
        """Records a state that the run has according to the catalog, whatever the present one is.

        A run that was rolled back isn't published again: a driver that says so late was overtaken by the rollback.
        """
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
            elif last is not None and (last.state, change.state) == (RunState.ROLLED_BACK, RunState.PUBLISHED):
                return
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
        if self.plan.fingerprint not in (content.get("plan"), content.get("plan_before")):
            return None
        if not isinstance(content.get("facts"), dict):
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
        self._keep_all(facts)

    def _keep_all(self, facts: Sequence[RunFacts], before: MigrationPlan | None = None) -> None:
        """Stores the facts; they count for the plan that the run had before, too, if there is one."""
        plans = {"plan": self.plan.fingerprint} | ({"plan_before": before.fingerprint} if before is not None else {})
        list(side_by_side(self.folder, lambda one: self._keep(one, plans), facts))

    def _keep(self, facts: RunFacts, plans: Mapping[str, str]) -> None:
        stored = facts.to_json()
        content = {"step": facts.name, **plans, "facts": stored, _DIGEST: _digest(stored)}
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
        return steps_of(rehearses=self.plan.rehearse, with_tables=self.plan.has_tables_step)

    def has_done(self, step: Step) -> bool:
        """Whether the step is done, for this plan."""
        return self.stored(FACTS_OF[step]) is not None


def check_home(home: str) -> int:
    """The version that the home records, 1 if it records none; refuses a newer one than this program knows."""
    file = Location.of(home).child(_FORMAT)
    content = _read_object(file)
    return FIRST if content is None else check_format(content.get(FIELD), f"the home {file.parent.shown}")


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
