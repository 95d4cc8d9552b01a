"""Mode *check only*: has a savepoint looked into, and tells what is in it. There is no run, and nothing is migrated."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from flinkstate.files.storage import Location
from stateferry.airflow.dag_runs.application_ends import (
    application_file,
    ended_text,
    exit_code,
    own_refusal,
    what_is_next,
)
from stateferry.airflow.dag_runs.dag_run import (
    PLAN_TASK,
    REFUSED,
    fail_if_refused,
    request_of,
)
from stateferry.airflow.dag_runs.page_links import NOTE
from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.flink.foreseen_failures import foreseen
from stateferry.airflow.requests.sources import home_folder
from stateferry.basics.printable import printable
from stateferry.basics.quantities import noun, shown_amount
from stateferry.runs.predict.estimates import Prediction, estimate_text, prediction_lines
from stateferry.runs.predict.prediction import predicted_of_size
from stateferry.verdict.outcomes import Outcome

if TYPE_CHECKING:
    from airflow.sdk import Context

_RESTORES = Outcome.RESTORES.word
_OUTCOMES = {one.word: one.value for one in Outcome}


class CheckSavepoint(SparkSubmitOperator):
    """Submits the look into the savepoint that `plan` has chosen, and tells its answer."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            name="stateferry-check",
            application="{{ task.application_file() }}",
            # A look changes nothing, so it may be taken again.
            durable=False,
            **kwargs,
        )

    def application_file(self) -> str:
        """The application's file, as the driver sees it."""
        return application_file("check")

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # its answer becomes an XCom
        planned = context["ti"].xcom_pull(task_ids=PLAN_TASK)
        self.application_args = planned["arguments"]
        try:
            super().execute(context)
        except Exception as error:
            if why := own_refusal(str(error)):
                context["ti"].xcom_push(key=REFUSED, value=printable(why))
                raise refusal(f"{planned['savepoint']}: {printable(why)}") from None
            if (code := exit_code(str(error))) is not None:
                self.log.error("%s. %s", ended_text("check", code), what_is_next(context["ti"]))
                foreseen(error)
            raise
        with fail_if_refused():
            found = json.loads(Location.of(planned["report"]).read())
            foreseen_times = self._predicted(context, planned["job"], found)
        lines = [printable(line) for line in answer_lines(found, planned["job"], foreseen_times)]
        for line in lines:
            self.log.info("%s", line)
        outage = None if foreseen_times is None else foreseen_times.outage
        context["ti"].xcom_push(key=NOTE, value=note_of(found, foreseen_times))
        return {
            "savepoint": planned["savepoint"],
            "report": planned["report"],
            "migratable": [f"{operator}/{state}" for operator, state in migratable(found)],
            "problems": found.get("problems"),
            "verdict": found.get("verdict"),
            "outage": None if outage is None else outage.seconds,
            "answer": lines,
        }

    def _predicted(self, context: Context, job: str | None, found: Mapping[str, Any]) -> Prediction | None:
        """How long a cut-over is likely to take; None if the job isn't named."""
        if job is None:
            return None
        size, request = sum(state["bytes"] for _, state in _states(found)), request_of(context)
        is_given = {name: bool(request.given_options().get(name)) for name in ("lazy", "reverse")}
        return predicted_of_size(home_folder(), job, size, rescales_only=request.work == "rescale only", **is_given)


def migratable(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The states that can be migrated, with their operators."""
    return [(operator, state["name"]) for operator, state in _states(found) if state["migratable"]]


def note_of(found: Mapping[str, Any], foreseen_times: Prediction | None) -> str:
    """The answer in a line."""
    states = list(_states(found))
    names = ", ".join(f"{state} of {operator}" for operator, state in migratable(found)) or "none"
    parts = [f"{len(states)} {noun(len(states), 'keyed state')}", f"can be migrated: {names}"]
    if problems := found.get("problems"):
        parts.append(f"but not as the form says: {problems[0]}")
    if verdict := found.get("verdict"):
        parts.append(_verdict_line(verdict))
    if foreseen_times is not None and foreseen_times.outage is not None:
        parts.append(f"outage about {estimate_text(foreseen_times.outage)}")
    return printable(f"check {found['path']}: {'; '.join(parts)}")


def answer_lines(found: Mapping[str, Any], job: str | None, foreseen_times: Prediction | None) -> Iterator[str]:
    """The answer in short lines, as a log shows them."""
    operators = found["operators"]
    number = f"{len(operators)} {noun(len(operators), 'operator')}"
    size = shown_amount(sum(state["bytes"] for _, state in _states(found)), "B")
    yield f"{found['path']}"
    yield f"{found['format']}, checkpoint {found['checkpoint_id']}, {number}, {size} of keyed state"
    for operator in operators:
        yield from _operator_lines(operator)
    problems = found.get("problems")
    if problems is not None:
        yield "it can be migrated as the form says" if not problems else "it can't be migrated as the form says:"
        yield from (f"- {problem}" for problem in problems)
    if verdict := found.get("verdict"):
        yield _verdict_line(verdict)
        for state in verdict["states"]:
            if state["outcome"] != _RESTORES:
                yield f"- {state['operator']}: {state['state']}: {_OUTCOMES[state['outcome']]}: {state['reason']}"
        yield from _losses_lines(verdict.get("losses"))
    if foreseen_times is None:
        yield "how long a cut-over takes isn't known: give the job's name (the field job), if it has been rehearsed"
    else:
        yield f"job {job}:"
        yield from prediction_lines(foreseen_times)


def _verdict_line(verdict: Mapping[str, Any]) -> str:
    counts = verdict["counts"]
    listed = [f"{counts[one]} {words}" for one, words in _OUTCOMES.items() if counts.get(one)]
    return f"in Flink {verdict['for']}, of its states: {', '.join(listed) or 'there are none'}"


def _losses_lines(losses: Mapping[str, Any] | None) -> Iterator[str]:
    """What an upgrade lost; key by key it is in the whole answer."""
    if losses is None:
        return
    yield f"what the upgrade lost, by {losses['before']}:"
    yield from (f"- {state['operator']}: {state['state']}: {state['summary']}" for state in losses["states"])
    yield from (f"- not compared: {why}" for why in losses["not_compared"])


def _operator_lines(operator: Mapping[str, Any]) -> Iterator[str]:
    subtasks = f"parallelism {operator['parallelism']}, max parallelism {operator['max_parallelism']}"
    keyed = operator["keyed"]
    by = f", keyed by {keyed['key_type']}" if keyed else ""
    yield f"operator {_label(operator)}: {subtasks}{by}"
    for state in keyed["states"] if keyed else ():
        ttl = ", with time to live" if state["ttl"] else ""
        counted = f"{state['entries']:,} {noun(state['entries'], 'entry', 'entries')}"
        yield f"- {state['name']}: {state['kind']} of {state['type']}{ttl}, {counted}, {_size(state)}"
        by_kryo = f"{state['kryo']['line']}: " if state["kryo"] and state["kryo"]["line"] else ""
        yield f"  {by_kryo}can be migrated" if state["migratable"] else f"  can't be migrated: {state['reason']}"
        if state["migratable"]:
            yield f"  the new job declares {state['declaration']}"
        if (worth := state["worth"]) is not None:
            maps = (
                f"  {worth['blobs']:,} {noun(worth['blobs'], 'map')} of {worth['entries']['median']:,} entries (median)"
            )
            yes = f"worth it, {worth['condition']}" if worth["condition"] else "worth it"
            yield f"{maps}; {yes if worth['worth_it'] else worth['reason']}"
    for state in operator["operator_states"]:
        yield f"- {state['name']}: operator state ({state['mode']}), carried over"


def _size(state: Mapping[str, Any]) -> str:
    return shown_amount(state["bytes"], "B")


def _label(operator: Mapping[str, Any]) -> str:
    return str(operator["uid"] or operator["name"] or operator["id"])


def _states(found: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for operator in found["operators"]:
        for state in operator["keyed"]["states"] if operator["keyed"] else ():
            yield _label(operator), state
