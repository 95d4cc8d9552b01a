"""The runbook of managed Flink: its commands have the parameters that the service's API describes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from stateferry.cli import _parser

PAGE = (Path(__file__).parents[1] / "docs/managed-flink.md").read_text()
BLOCKS = "\n".join(re.findall(r"```\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = [shlex.split(one.replace("\\\n", " ")) for one in re.split(r"^\$ ", BLOCKS, flags=re.MULTILINE) if one]
OF_SERVICE = [one[2:] for one in COMMANDS if one[:2] == ["aws", "kinesisanalyticsv2"]]
OURS = [one[1:] for one in COMMANDS if one[0] == "stateferry"]
SERVICE = botocore.session.get_session().get_service_model("kinesisanalyticsv2")


def pascal(words: str) -> str:
    return "".join(word.capitalize() for word in words.strip("-").split("-"))


def parameters(words: list[str]) -> dict[str, Any]:
    """As the command line of the service makes them: JSON where it is an object."""
    found: dict[str, Any] = {}
    for word in words:
        if word.startswith("--"):
            name = pascal(word)
            found[name] = True
        else:
            found[name] = json.loads(word) if word.startswith("{") else word
    return found


@pytest.mark.parametrize("command", OF_SERVICE, ids=lambda one: one[0])
def test_a_command_has_the_parameters_of_the_api(command: list[str]) -> None:
    operation = SERVICE.operation_model(pascal(command[0]))
    given = parameters(command[1:])
    if not given:
        assert not operation.input_shape.required_members
        return
    report = ParamValidator().validate(given, operation.input_shape)
    assert not report.has_errors(), report.generate_report()
    # The validator takes members, and values of enumerations, that it doesn't know.
    for name, known in _named(given, operation.input_shape):
        assert name in known


def _named(given: Any, shape: Any) -> list[tuple[str, list[str]]]:
    """Each name of a member and each value of an enumeration, with those that there are."""
    if shape.type_name != "structure":
        return [(given, shape.enum)] if getattr(shape, "enum", None) else []
    here = [(name, list(shape.members)) for name in given]
    return here + [one for name, value in given.items() for one in _named(value, shape.members[name])]


def test_the_enumerations_of_the_commands_are_found() -> None:
    found: set[str] = set()
    for command in OF_SERVICE:
        shape = SERVICE.operation_model(pascal(command[0])).input_shape
        found |= {name for name, _ in _named(parameters(command[1:]), shape) if name.isupper()}
    assert found == {"S3", "SYSTEM", "CANONICAL", "RESTORE_FROM_CUSTOM_SNAPSHOT"}


def test_the_states_that_the_page_waits_for_are_states() -> None:
    shapes = [SERVICE.shape_for(name) for name in SERVICE.shape_names]
    known = {value for shape in shapes for value in getattr(shape, "enum", ())}
    named = set(re.findall(r"`([A-Z]{3,}(?:_[A-Z]+)*)`", PAGE))
    assert named >= {"ENHANCED_SNAPSHOTS", "READY", "SUCCESSFUL"}
    assert named <= known


def test_the_runbook_has_all_steps() -> None:
    assert {one[0] for one in OF_SERVICE} == {
        "create-snapshot", "export-snapshot", "describe-snapshot-operation", "stop-application", "list-snapshots",
        "import-snapshot", "start-application",
    }  # fmt: skip


@pytest.mark.parametrize("command", OURS, ids=lambda one: one[0])
def test_our_commands_are_understood(command: list[str]) -> None:
    _parser().parse_args(command)
