"""Merge patches of specs, and options of Flink in them, flat and nested."""

from __future__ import annotations

from typing import Any

import pytest

from stateferry.airflow.kubernetes.spec import changes, difference, is_applied, merged, option, with_options
from stateferry.airflow.runs_on.operator_spec import MEANWHILE_OFF, started_spec
from tests.airflow.kubernetes.conftest import AS_PROVEN

NAME = "kubernetes.operator.savepoint.format.type"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}, "d": [1]}),
        ({"a": [1, 2]}, {"a": [2]}),
        ({"a": {"b": 1}}, {"a": "text"}),
        ({"a": "text"}, {"a": {"b": {"c": 1}}}),
        ({}, {}),
    ],
)
def test_a_difference_makes_the_one_of_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    patch = difference(before, after)
    assert merged(before, patch) == after
    assert is_applied(after, patch)
    assert is_applied(before, patch) == (before == after)
    assert bool(list(changes(before, after))) == (before != after)


def test_what_changes_is_told_field_by_field() -> None:
    before = {"image": "orders:1", "job": {"args": ["--old"], "parallelism": 2}}
    after = {"image": "orders:2", "job": {"args": ["--new", "x"], "parallelism": 2, "entryClass": "a.B"}}
    assert list(changes(before, after)) == [
        ("image", "orders:1", "orders:2"),
        ("job.args", '["--old"]', '["--new", "x"]'),
        ("job.entryClass", "–", "a.B"),
    ]


@pytest.mark.parametrize(
    ("configuration", "patched"),
    [
        ({}, {NAME: "NATIVE"}),
        ({NAME: "CANONICAL"}, {NAME: "NATIVE"}),
        (
            {"kubernetes": {"operator": {"savepoint": {"format.type": "CANONICAL"}}, "x": 1}},
            {"kubernetes": {"operator": {"savepoint": {"format.type": "NATIVE"}}, "x": 1}},
        ),
        (
            {"kubernetes.operator": {"savepoint": {"format": {"type": "CANONICAL"}}}},
            {"kubernetes.operator": {"savepoint": {"format": {"type": "NATIVE"}}}},
        ),
    ],
)
def test_an_option_is_changed_where_it_is(configuration: dict[str, Any], patched: dict[str, Any]) -> None:
    spec = {"flinkConfiguration": configuration}
    assert option(spec, NAME) == ("CANONICAL" if configuration else None)
    assert merged(spec, with_options({NAME: "NATIVE"}, spec)) == {"flinkConfiguration": patched}
    if configuration:
        assert option(merged(spec, with_options({NAME: None}, spec)), NAME) is None


def test_several_options_in_one_object_are_one_patch() -> None:
    spec = {"flinkConfiguration": {"kubernetes": {"operator": {"a": "1", "b": True}}}}
    assert option(spec, "kubernetes.operator.b") == "true"
    patch = with_options({"kubernetes.operator.a": None, "kubernetes.operator.b": "false", "c.d": "x"}, spec)
    assert merged(spec, patch) == {"flinkConfiguration": {"kubernetes": {"operator": {"b": "false"}}, "c.d": "x"}}


@pytest.mark.parametrize(
    "configuration",
    [
        {"execution.savepoint-restore-mode": "CLAIM", "execution.savepoint.ignore-unclaimed-state": "true"},
        {"execution": {"state-recovery": {"claim-mode": "LEGACY", "ignore-unclaimed-state": True}}},
        {"execution.state-recovery.claim-mode": "NO_CLAIM"},
    ],
)
def test_a_job_starts_with_all_state_and_without_a_claim_whatever_its_spec_says(configuration: dict[str, Any]) -> None:
    spec = {"job": {"allowNonRestoredState": True}, "flinkConfiguration": configuration}
    started = started_spec(spec, "/savepoint", 1)
    assert started["job"]["allowNonRestoredState"] is False
    for name in ("execution.savepoint", "execution.state-recovery"):
        assert option(started, f"{name}.ignore-unclaimed-state") == "false"
    for name in ("execution.savepoint-restore-mode", "execution.state-recovery.claim-mode"):
        assert option(started, name) == "NO_CLAIM"
    # What the spec doesn't say, the operator's defaults may.
    plain = started_spec({"job": {}}, "/savepoint", 1)
    assert is_applied(plain, AS_PROVEN)
    assert plain["flinkConfiguration"].keys() == {*AS_PROVEN["flinkConfiguration"], *MEANWHILE_OFF}
