"""Where the jobs of a request live, and what the request says of that place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, StrictStr

from flinkstate.errors import PlanError
from stateferry.airflow.kubernetes.resource import PLURALS
from stateferry.airflow.kubernetes.spec import Spec
from stateferry.airflow.requests.request_parts import PLACE, Connection, Request, Text
from stateferry.runs.plan.option_marks import Kind, Option

RESOURCE = re.compile(r"(?:(?P<kind>[a-z]+)/)?(?P<name>[a-z0-9]([-a-z0-9.]*[a-z0-9])?)")
BLUE_GREEN = "flinkbluegreendeployment"
_KIND = "flinkdeployment"
# What a new program may need in another way. The run itself sets state, savepoint and nonce.
_SPEC = ("image", "flinkVersion", "flinkConfiguration", "job", "jobManager", "taskManager", "podTemplate")
_JOB = ("jarURI", "entryClass", "args", "parallelism")
_OF_KUBERNETES = ("resource", "new_spec", "namespace")


def _spec_text(value: object) -> object:
    """The patch as a text, however it is given: the form has a text, a configuration may have an object."""
    if isinstance(value, Mapping):
        return yaml.safe_dump(dict(value), sort_keys=True)
    return None if isinstance(value, str) and not value.strip() else value


class Place(Request):
    """The place where the jobs of the request live."""

    runs_on: Annotated[
        Literal["session", "kubernetes", "own tasks"],
        Option(
            Kind.CHOICE,
            "Jobs run on",
            "`session`: a session cluster, whose jars were uploaded. `kubernetes`: the Flink Kubernetes Operator stops "
            "and starts the job. `own tasks`: tasks of your own do; a configured job names them",
            section=PLACE,
        ),
    ] = "session"
    kubernetes_conn_id: Annotated[
        Connection,
        Option(Kind.TEXT, "Kubernetes connection", "Airflow's connection of type Kubernetes", section=PLACE),
    ] = "kubernetes_default"
    namespace: Annotated[
        Text,
        Option(
            Kind.TEXT, "Namespace", "that of the resource", section=PLACE, if_empty="the connection's, else `default`"
        ),
    ] = None
    resource: Annotated[
        Text,
        Option(
            Kind.TEXT,
            "Resource",
            "the name of the job's FlinkDeployment, such as `orders`, or `flinksessionjob/orders`",
            section=PLACE,
        ),
    ] = None
    new_spec: Annotated[
        StrictStr | None,
        BeforeValidator(_spec_text),
        Option(
            Kind.LINES,
            "New job's spec",
            "what differs in the spec of the new job, as a merge patch in YAML or JSON, or the path of such a file: "
            "`{image: orders:2, job: {entryClass: com.example.NewJob}}`",
            section=PLACE,
        ),
    ] = None
    patch: Annotated[
        Literal["apply", "show"],
        Option(
            Kind.CHOICE,
            "Patches",
            "`apply`: the run changes the resource. `show`: the run shows each patch, and waits until a person or a "
            "pull request has applied it",
            section=PLACE,
        ),
    ] = "apply"

    @property
    def resource_parts(self) -> tuple[str, str]:
        """Kind and name of the resource."""
        found = RESOURCE.fullmatch(str(self.resource))
        assert found is not None, "checked before"
        return found["kind"] or _KIND, found["name"]

    def new_spec_patch(self) -> dict[str, Any]:
        """The merge patch of the new job's spec; raises a `PlanError` if it can't be read or sets what the run sets."""
        text = str(self.new_spec)
        if "\n" not in text.strip() and text.strip().endswith((".json", ".yaml", ".yml")):
            try:
                text = Path(text.strip()).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise PlanError(f"new_spec: {error}") from None
        try:
            found = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise PlanError(f"new_spec: not YAML: {' '.join(str(error).split())}") from None
        if not isinstance(found, dict):
            raise PlanError(f"new_spec: expected an object such as {{image: orders:2}}, found {text.strip()!r}")
        problems = list(_spec_problems(found))
        if problems:
            raise PlanError("\n".join(problems))
        return found

    def place_problems(self, *, stops_job: bool, starts_job: bool) -> Iterator[str]:
        """What is wrong with these fields."""
        if self.runs_on != "kubernetes":
            for name in _OF_KUBERNETES:
                if self.has(name):
                    yield f"{name}: given, but runs_on is '{self.runs_on}': choose 'kubernetes', or leave {name} empty"
        if self.runs_on != "session" and starts_job and not stops_job:
            yield (
                f"runs_on: '{self.runs_on}' starts a job only where it has stopped one: choose source 'flink' or "
                "'checkpoint' with a running job, or turn start_job off"
            )
        if self.runs_on == "kubernetes":
            yield from self._resource_problems(stops_job=stops_job, starts_job=starts_job)

    def _resource_problems(self, *, stops_job: bool, starts_job: bool) -> Iterator[str]:
        if self.resource is None:
            if stops_job:
                yield "resource: missing, and runs_on 'kubernetes' needs it: name the job's FlinkDeployment"
        elif (found := RESOURCE.fullmatch(self.resource)) is None:
            yield f"resource: expected a name such as 'orders' or 'flinkdeployment/orders', found {self.resource!r}"
        else:
            yield from _kind_problems(found["kind"] or _KIND)
        if starts_job and self.new_spec is None:
            yield "new_spec: missing, and start_job needs it: say what differs in the new job's spec"
        if self.new_spec is not None:
            if not starts_job and stops_job:
                yield "new_spec: given, but start_job is off: turn it on, or leave new_spec empty"
            try:
                self.new_spec_patch()
            except PlanError as error:
                yield str(error)


def _kind_problems(kind: str) -> Iterator[str]:
    if kind == BLUE_GREEN:
        yield (
            "resource: a FlinkBlueGreenDeployment can't be cut over: it starts the new job beside the old one, and "
            "takes its savepoint by itself. Stop the job by hand, and migrate that savepoint with source 'path'"
        )
    elif kind not in PLURALS:
        yield f"resource: expected a kind of {', '.join(PLURALS)}, found {kind!r}"


def _spec_problems(patch: Spec) -> Iterator[str]:
    job = patch.get("job")
    for name in patch:
        if name not in _SPEC:
            yield f"new_spec: {name}: expected some of {', '.join(_SPEC)}"
    if job is not None and not isinstance(job, dict):
        yield f"new_spec: job: expected an object, found {job!r}"
    elif job:
        for name in job:
            if name not in _JOB:
                yield f"new_spec: job.{name}: expected some of {', '.join(_JOB)}; the run sets the others itself"
