"""What the documentation gives to Airflow's command and its variable is what the DAG takes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stateferry.airflow.requests.jobs import configuration
from stateferry.airflow.requests.request import migration_request

DOCS = Path(__file__).parents[3] / "docs"
BLOCKS = [
    (page.name, block)
    for page in sorted(DOCS.glob("*.md"))
    for block in re.findall(r"^```\w*\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
]


def commands() -> Iterator[tuple[str, list[str]]]:
    for page, block in BLOCKS:
        for text in re.findall(r"^(?:\$ )?(airflow (?:dags trigger|variables set) [^']*'.*?')$", block, re.M | re.S):
            yield page, shlex.split(text)


@pytest.mark.parametrize(("page", "command"), [(page, one) for page, one in commands() if "--conf" in one])
def test_each_request_is_one(page: str, command: list[str]) -> None:
    assert command[3] in ("state_migration", "state_migration_orders")
    migration_request(json.loads(command[command.index("--conf") + 1]), page)


def configurations() -> Iterator[tuple[str, Any]]:
    yield from ((page, json.loads(one[-1])) for page, one in commands() if one[1] == "variables")
    yield from ((page, json.loads(block)) for page, block in BLOCKS if block.startswith('{"jobs"'))


@pytest.mark.parametrize(("page", "values"), list(configurations()))
def test_each_configuration_of_jobs_is_one(page: str, values: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_STATE_MIGRATION", json.dumps(values))
    assert configuration().problems == ()
    assert configuration().jobs


def test_there_are_some() -> None:
    assert len(list(commands())) >= 6
    assert len(list(configurations())) >= 2
