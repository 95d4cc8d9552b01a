"""What is wrong in a form is refused before any work, in words."""

from __future__ import annotations

import pytest

from local_airflow.api import RequestRefusedError
from local_airflow.server import Server
from tests.standalone.migration import DAG, Migration

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(3000)]


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        (
            {"source": "nowhere"},
            "param source: 'nowhere' is not one of ['demo', 'path', 'folder', 'flink', 'checkpoint']",
        ),
        ({"parallelism": 0}, "param parallelism: 0 is less than the minimum of 1"),
        ({"approval_timeout": "soon"}, "param approval_timeout: 'soon' does not match"),
        ({"approval": "perhaps"}, "param approval: 'perhaps' is not of type 'boolean'"),
    ],
)
def test_airflow_refuses_what_the_form_does_not_allow(airflow: Server, params: dict[str, object], problem: str) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        airflow.api.trigger(DAG, params)
    assert refused.value.status == 400
    assert problem in refused.value.text


@pytest.mark.parametrize(
    ("params", "problems"),
    [
        pytest.param(
            {"savpoint": "/tmp/legacy", "colour": "blue"},
            ["savpoint: unknown field: did you mean savepoint?", "colour: unknown field; there are: "],
            marks=pytest.mark.full,
        ),
        pytest.param(
            {"new_state": None},
            ["new_state: missing: operator, legacy_state and new_state are named together"],
            marks=pytest.mark.full,
        ),
        pytest.param(
            {"savepoint": "/nowhere"}, ["/nowhere is no savepoint: it has no _metadata"], marks=pytest.mark.full
        ),
        ({"operator": "mian"}, ["has no operator 'mian'. Did you mean main? There are: main"]),
    ],
)
def test_what_airflow_lets_through_the_first_task_refuses(
    migration: Migration, params: dict[str, object], problems: list[str]
) -> None:
    run = migration.trigger(**params)
    assert migration.end_of(run) == "failed"
    assert migration.states(run) == _all_upstream_failed(migration, run) | {"plan": "failed", "conclude": "failed"}
    said = migration.log(run, "plan")
    for problem in problems:
        assert problem in said
    assert migration.airflow.api.tasks(DAG, run)["plan"]["try_number"] == 1
    assert not (migration.airflow.settings.stateferry_home / "runs" / migration.job).exists()


def _all_upstream_failed(migration: Migration, run: str) -> dict[str, str]:
    # What would start the old job again has nothing to go back from.
    return dict.fromkeys(migration.states(run), "upstream_failed") | {"return_to_old_job": "skipped"}
