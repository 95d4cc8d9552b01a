"""What was foreseen is logged in words; only what nobody has foreseen needs Python's stack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from flink_provider.errors import FlinkRefusedError
from flink_provider.task import for_good
from state_migration.dag_run import fail_if_refused
from state_migration.foreseen import foreseen, refusal

from stateferry.errors import PassingError


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    """What a log like that of Airflow's tasks has: errors as objects with frames."""
    before, events = structlog.get_config(), list[Any]()

    def keep(_: object, __: str, event: Any) -> Any:
        events.append(event)
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.processors.dict_tracebacks, keep], cache_logger_on_first_use=False)
    yield events
    structlog.configure(**before)


def test_what_flink_refuses_is_logged_without_a_stack_too(logged: list[Any]) -> None:
    with pytest.raises(AirflowFailException) as caught, for_good():
        raise FlinkRefusedError("POST /jars", 400, "no jar")
    try:
        raise caught.value
    except AirflowFailException:
        structlog.get_logger("task").exception("Task failed with exception")
    (refused,) = logged[0]["exception"]
    assert (refused["exc_value"], refused["frames"]) == ("POST /jars was answered with 400: no jar", [])


def test_an_error_that_may_pass_is_logged_without_a_stack(logged: list[Any]) -> None:
    with pytest.raises(PassingError) as caught, fail_if_refused():
        raise PassingError("the catalog can't be reached")
    try:
        raise caught.value
    except PassingError:
        structlog.get_logger("task").exception("Task failed with exception")
    (passing,) = logged[0]["exception"]
    assert (passing["exc_value"], passing["frames"]) == ("the catalog can't be reached", [])


@pytest.mark.parametrize("error", [refusal("no savepoint"), AirflowException("exit code -9")])
def test_a_foreseen_failure_is_logged_without_its_stack(error: Exception, logged: list[Any]) -> None:
    log = structlog.get_logger("task")
    for one in (foreseen(error), RuntimeError("a bug")):
        try:
            raise one
        except Exception:
            log.exception("Task failed with exception")
    refused, bug = (event["exception"][0] for event in logged)
    assert (refused["exc_value"], refused["frames"]) == (str(error), [])
    assert (bug["exc_value"], len(bug["frames"])) == ("a bug", 1)
