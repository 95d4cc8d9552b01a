"""The migration plan: what is filled in, what is refused and how it says so, and that JSON keeps all of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import PlanError
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.plan_json import plan_of, plan_of_json
from stateferry.runs.plan.run_options import new_run_id

STATE = {"legacy": "mainState", "new": "newMainState"}
VALUES: dict[str, Any] = {
    "job": "orders",
    "source": "/savepoints/source",
    "target": "/savepoints/target",
    "operators": [{"operator": "main", "states": [STATE]}],
}


def with_state(**more: object) -> dict[str, Any]:
    return {**VALUES, "operators": [{"operator": "main", "states": [{**STATE, **more}]}]}


def problems(values: dict[str, Any]) -> list[str]:
    with pytest.raises(PlanError) as caught:
        plan_of(values)
    lines = str(caught.value).splitlines()
    assert all(line.startswith("the plan: ") for line in lines)
    return [line.removeprefix("the plan: ") for line in lines]


def test_what_is_left_out_has_a_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path))
    plan = plan_of(VALUES)
    assert plan.home == str(tmp_path)
    assert plan.catalog_uri == f"sqlite:///{tmp_path}/catalog.db"
    assert plan.warehouse == f"{tmp_path}/warehouse"
    assert (plan.parallelism, plan.max_parallelism, plan.operators[0].states[0].flag) == (None, None, None)
    assert (plan.on_contradiction, plan.nulls) == ("stop", "stop")
    assert not any((plan.keep_expired, plan.keep_legacy, plan.rehearse))


def test_without_the_variable_home_is_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATEFERRY_HOME", raising=False)
    assert plan_of(VALUES).home == os.path.expanduser("~/.stateferry")


def test_a_home_that_is_told_has_the_catalog_too() -> None:
    plan = plan_of({**VALUES, "home": "/data/ferry/"})
    assert (plan.home, plan.catalog_uri) == ("/data/ferry", "sqlite:////data/ferry/catalog.db")
    assert plan_of({**VALUES, "home": "/a", "warehouse": "s3://bucket/w"}).warehouse == "s3://bucket/w"


def test_run_ids_sort_by_time_and_differ() -> None:
    ids = {new_run_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(id_) == len("20260102T030405Z-1a2b3c") for id_ in ids)


def test_places_are_absolute_so_that_a_run_may_go_on_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_of({**VALUES, "source": "in/../a", "target": "file:///b/c%20d"})
    assert (plan.source, plan.target) == (f"{tmp_path}/a", "/b/c d")
    assert plan_of({**VALUES, "source": "s3://bucket/a"}).source == "s3://bucket/a"


@pytest.mark.parametrize(("told", "milliseconds"), [("30d", 2_592_000_000), (5, 5), ("5ms", 5), ("90s", 90_000)])
def test_times_to_live_may_be_written_as_durations(told: object, milliseconds: int) -> None:
    assert plan_of(with_state(ttl_ms=told)).operators[0].states[0].ttl_ms == milliseconds


NAMES = st.text(min_size=1, max_size=8)


@given(
    operators=st.lists(
        st.tuples(
            NAMES,
            st.lists(
                st.tuples(st.integers(0, 99), st.none() | st.integers(0, 9), st.none() | st.integers(1, 2**63 - 1)),
                min_size=1,
                max_size=3,
                unique_by=lambda state: state[0],
            ),
        ),
        min_size=1,
        max_size=3,
        unique_by=lambda operator: operator[0],
    ),
    now=st.integers(0, 2**63 - 1),
    job=NAMES,
    threshold=st.floats(0, 1),
)
def test_json_keeps_all_of_it(operators: list[Any], now: int, job: str, threshold: float) -> None:
    plan = plan_of(
        {
            **VALUES,
            "job": job,
            "now": now,
            "accept_vanished": threshold,
            "operators": [
                {
                    "operator": name,
                    "states": [
                        {
                            "legacy": f"l{number}",
                            "new": f"n{number}",
                            "flag": None if flag is None else f"f{flag}",
                            "ttl_ms": ttl,
                        }
                        for number, flag, ttl in states
                    ],
                }
                for name, states in operators
            ],
        }
    )
    again = plan_of_json(plan.to_json())
    assert again == plan
    assert again.fingerprint == plan.fingerprint


def test_what_is_unknown_is_refused_with_the_name_that_was_meant() -> None:
    assert problems({**VALUES, "paralelism": 3}) == ["paralelism: unknown field: did you mean parallelism?"]
    (line,) = problems(with_state(xyz=1))
    assert line == (
        "operators[0].states[0].xyz: unknown field; there are: legacy, new, field, rest, flag, no_flag, flag_ttl, "
        "ttl_ms, map_type, widen"
    )
    (line,) = problems({**VALUES, "operators": [{**VALUES["operators"][0], "stats": 1}]})
    assert line == "operators[0].stats: unknown field: did you mean states?"


def test_each_problem_has_its_own_line() -> None:
    *lines, last = problems({"now": True, "operators": [{"operator": "", "states": [{**STATE, "ttl_ms": "soon"}]}]})
    assert lines == [
        "job: missing, and it has no default: add it",
        "source: missing, and it has no default: add it",
        "target: missing, and it has no default: add it",
        "now: expected a valid integer, found True",
        "operators[0].operator: expected at least one character, found none",
    ]
    assert last.startswith("operators[0].states[0].ttl_ms: expected a duration such as 90s, 11.5s, 15m, 12h or 30d")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {**VALUES, "operators": []},
            "operators: missing: name the operator with its legacy and new state; or, without a migration",
        ),
        ({**VALUES, "operators": [{"operator": "main", "states": []}]}, "operators[0].states: expected at least one"),
        ({**VALUES, "parallelism": 0}, "parallelism: expected a number from 1 to 32768, found 0"),
        ({**VALUES, "parallelism": True}, "parallelism: expected a number from 1 to 32768, found True"),
        ({**VALUES, "parallelism": "main"}, "parallelism: expected a number for all operators, or operator=number"),
        ({**VALUES, "parallelism": "main=4,enrich"}, "several with commas between them, such as main=4,enrich=8"),
        ({**VALUES, "parallelism": "a=4,a=5"}, "parallelism: operator 'a' is there twice in 'a=4,a=5'"),
        ({**VALUES, "parallelism": "a=0"}, "parallelism: expected a number from 1 to 32768 for operator 'a', found 0"),
        ({**VALUES, "parallelism": {}}, "parallelism: expected a parallelism for at least one operator, found none"),
        ({**VALUES, "parallelism": "=4"}, "parallelism: expected the uid, name or id of an operator before '='"),
        ({**VALUES, "parallelism": {"a": 9}, "max_parallelism": 8}, "parallelism 9 of operator 'a' is above"),
        ({**VALUES, "max_parallelism": 32769}, "max_parallelism: expected less than or equal to 32768"),
        ({**VALUES, "parallelism": 9, "max_parallelism": 8}, "lower the one or raise the other"),
        ({**VALUES, "now": -1}, "now: expected greater than or equal to 0, found -1"),
        ({**VALUES, "now": 2**63}, "now: expected less than or equal to"),
        ({**VALUES, "keep_legacy": 1}, "keep_legacy: expected a valid boolean, found 1"),
        ({**VALUES, "accept_vanished": float("nan")}, "accept_vanished: expected a share such as 60%"),
        ({**VALUES, "accept_vanished": 1.1}, "accept_vanished: expected a share such as 60%"),
        ({**VALUES, "target": "/savepoints/source"}, "lie one in the other"),
        ({**VALUES, "target": "/savepoints/source/_metadata"}, "lie one in the other"),
        ({**VALUES, "target": "/savepoints/source/new"}, "lie one in the other"),
        ({**VALUES, "source": "s3://b/a/", "target": "s3://b/a"}, "lie one in the other"),
        ({**VALUES, "run_id": "a/b"}, "run_id: expected up to 100 letters"),
        ({**VALUES, "run_id": "../x"}, "run_id: expected up to 100 letters"),
        ({**VALUES, "run_id": ""}, "run_id: expected up to 100 letters"),
        ({**VALUES, "keep_expired": True}, "keep_expired: no state has a ttl_ms"),
        ({**VALUES, "on_contradiction": "rows"}, "only a flag can contradict a blob"),
        ({**VALUES, "on_contradiction": "both"}, "on_contradiction: expected 'stop', 'blob' or 'rows', found 'both'"),
        ({**VALUES, "operators": VALUES["operators"] * 2}, "'main' is there more than once"),
        (with_state(new="mainState"), "legacy and new state are both 'mainState'"),
        (with_state(flag="newMainState"), "flag 'newMainState' is also the legacy or new state"),
        (with_state(flag="f", no_flag=True), "no_flag: a flag is named, and no_flag says that there is none"),
        (with_state(ttl_ms=0), "operators[0].states[0].ttl_ms: expected greater than or equal to 1, found 0"),
        (with_state(ttl_ms=True), "operators[0].states[0].ttl_ms: expected a valid integer, found True"),
        (with_state(ttl_ms=1.5), "operators[0].states[0].ttl_ms: expected a valid integer, found 1.5"),
        ({**VALUES, "chunk_bytes": 1}, "chunk_bytes: expected greater than or equal to 1048576"),
    ],
)
def test_what_contradicts_itself_is_refused(values: dict[str, Any], said: str) -> None:
    (line,) = problems(values)
    assert said in line


def test_neighbours_are_not_one_in_the_other() -> None:
    assert plan_of({**VALUES, "target": "/savepoints/source-2"}).target == "/savepoints/source-2"


def test_a_state_can_be_named_once_and_a_flag_may_be_shared() -> None:
    states = [{"legacy": "a", "new": "b", "flag": "f"}, {"legacy": "c", "new": "d", "flag": "f"}]
    plan = plan_of({**VALUES, "operators": [{"operator": "main", "states": states}]})
    assert [state.flag for state in plan.operators[0].states] == ["f", "f"]
    twice = [{"legacy": "a", "new": "b"}, {"legacy": "c", "new": "b"}]
    (line,) = problems({**VALUES, "operators": [{"operator": "main", "states": twice}]})
    assert "state 'b' is named 2 times" in line
    crossed = [{"legacy": "a", "new": "b"}, {"legacy": "c", "new": "d", "flag": "a"}]
    (line,) = problems({**VALUES, "operators": [{"operator": "main", "states": crossed}]})
    assert "state 'a' of operator 'main' is a flag and a map" in line


def test_a_password_is_refused_and_never_shown() -> None:
    for address in ("postgresql://ferry:s3c/r@t@db/catalog", "mysql://ferry:s3c/r@t@db/catalog"):
        (line,) = problems({**VALUES, "catalog_uri": address})
        assert "://ferry:***@db/catalog" in line
        assert "s3c" not in line


def test_a_login_for_a_rest_catalog_is_refused_and_never_shown() -> None:
    for address in ("https://me:s3c@host/catalog", "https://host/catalog?token=s3c", "s3://host/catalog", "host"):
        (line,) = problems({**VALUES, "rest_catalog": address})
        assert line.startswith("rest_catalog: expected an address without login and query")
        assert "s3c" not in line


def test_the_environment_names_the_rest_catalog_unless_the_plan_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan_of(VALUES).rest_catalog is None
    monkeypatch.setenv("STATEFERRY_REST_CATALOG", "https://host/catalog")
    assert plan_of(VALUES).rest_catalog == "https://host/catalog"
    assert plan_of({**VALUES, "rest_catalog": "http://other:8181"}).rest_catalog == "http://other:8181"


def test_what_is_no_plan_is_refused() -> None:
    for text in ("", "[]", "{", '{"job": "a", "job": "b"}', "[" * 100_000):
        with pytest.raises(PlanError, match=r"^orders\.json: expected "):
            plan_of_json(text, "orders.json")


def test_a_plan_can_t_be_changed() -> None:
    plan = plan_of(VALUES)
    with pytest.raises(ValueError, match="frozen"):
        plan.now = 5


def test_the_same_request_is_recognised_whatever_was_filled_in() -> None:
    first = plan_of(VALUES)
    earlier = plan_of_json(json.dumps({**json.loads(first.to_json()), "now": 5, "run_id": "earlier"}))
    assert earlier.is_asked_for_again_by(plan_of(VALUES))
    assert earlier.is_asked_for_again_by(plan_of({**VALUES, "now": 5}))
    assert earlier.is_asked_for_again_by(plan_of({**VALUES, "run_id": "earlier"}))
    for other in ({"now": 6}, {"run_id": "other"}, {"target": "/elsewhere"}, {"keep_legacy": True}, {"rehearse": True}):
        assert not earlier.is_asked_for_again_by(plan_of({**VALUES, **other}))


def test_the_fingerprint_is_of_everything() -> None:
    plan = plan_of({**VALUES, "now": 5, "run_id": "a"})
    changes: list[dict[str, object]] = [{"now": 6}, {"run_id": "b"}, {"keep_expired": False, "keep_legacy": True}]
    prints = {plan.fingerprint} | {
        plan_of({**VALUES, "now": 5, "run_id": "a", **change}).fingerprint for change in changes
    }
    assert len(prints) == 4
    assert MigrationPlan.model_validate(plan.model_dump()).fingerprint == plan.fingerprint


def test_a_plan_that_says_there_is_no_flag_is_another_plan() -> None:
    without, told, said = (plan_of({**VALUES, "run_id": "a", "now": 5, **with_state(**more)}) for more in MORE)
    assert without.fingerprint == told.fingerprint
    assert not without.is_asked_for_again_by(said)
    assert plan_of_json(said.to_json()).operators[0].states[0].no_flag


MORE: tuple[dict[str, Any], ...] = ({}, {"no_flag": False}, {"no_flag": True})
