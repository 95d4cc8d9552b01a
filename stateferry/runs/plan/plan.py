"""The migration plan: the complete configuration of a run.

Options that are left out get their values when the run is planned, and keep them in every re-run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from pydantic import model_validator

from flinkstate.classfiles.job_classes import JobClasses, job_classes
from flinkstate.errors import PlanError, StateferryError, UsageError
from stateferry.basics.formats import FIELD, FORMAT
from stateferry.runs.plan.homes import default_catalog, default_home, default_rest_catalog, default_warehouse
from stateferry.runs.plan.plan_fields import absolute_place, raise_problems, valid_jars
from stateferry.runs.plan.plan_rules import problems_of
from stateferry.runs.plan.run_options import RunOptions

# Fields that may differ in another request for the same work.
_OF_THE_RUN = {"run_id", "now", "now_from"}


class MigrationPlan(RunOptions):
    """All options of a run, which have been found to fit together."""

    @model_validator(mode="before")
    @classmethod
    def _with_home(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        home = values.get("home", default_home())
        try:
            absolute_place(home)
        except UsageError as error:
            raise ValueError(f"home: {error}") from None
        defaults: dict[str, object] = {"home": home}
        if "catalog_uri" not in values:
            defaults["catalog_uri"] = default_catalog(str(home))
        if (rest := default_rest_catalog()) is not None:
            defaults["rest_catalog"] = rest
        return {**defaults, "warehouse": default_warehouse(str(home)), **values}

    @model_validator(mode="after")
    def _fits_together(self) -> MigrationPlan:
        raise_problems(problems_of(self))
        return self

    @model_validator(mode="before")
    @classmethod
    def _with_digest_of_classes(cls, values: object) -> object:
        if not isinstance(values, Mapping) or values.get("classes_digest") is not None or not values.get("classes"):
            return values
        try:
            places = valid_jars(values["classes"])
            digest = job_classes(places).digest if isinstance(places, tuple) else None
        except StateferryError as error:
            raise ValueError(f"classes: {error}") from None
        return {**values, "classes_digest": digest}

    @property
    def job_classes(self) -> JobClasses | None:
        """The classes of the job, which must be those with which the run was planned."""
        if not self.classes:
            return None
        found = job_classes(self.classes)
        if found.digest != self.classes_digest:
            raise PlanError(
                f"the classes in {', '.join(self.classes)} are others than when the run was planned: plan another run"
            )
        return found

    @property
    def has_tables_step(self) -> bool:
        """Whether the run ends with the step tables: without tables it only reads what a catch-up has published."""
        return not self.rescales_only or (self.since is not None and not self.rehearse)

    @property
    def fingerprint(self) -> str:
        """A hash of all options; facts of a plan with another fingerprint don't count for this plan."""
        values = self.model_dump(mode="json")
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def is_asked_for_again_by(self, other: MigrationPlan) -> bool:
        """Whether the other plan asks for the same work: run id and `now` count only if the other plan gives them.

        A night that catches up has both `now` and base of itself.
        """
        of_night = {"since"} if self.is_night and other.since is None else set[str]()
        left_out = (_OF_THE_RUN - other.model_fields_set) | of_night
        return self.model_dump(exclude=left_out) == other.model_dump(exclude=left_out)

    def to_json(self) -> str:
        values = self.model_dump(mode="json")
        # Plans of format version 1 have no version field.
        marked = {FIELD: FORMAT, **values} if FORMAT > 1 else values
        return json.dumps(marked, indent=2, ensure_ascii=False) + "\n"
