"""What the command line says to a person who has mistyped something, or doesn't know yet how to say it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from stateferry.cli import _parser, main
from stateferry.cli.options import plan_of_options
from stateferry.runs.checks.plan_check import open_source, resolve
from stateferry.runs.plan.plan_from_options import PLAN_OPTIONS, in_words_of_options

LEGACY = Path(__file__).parents[1] / "savepoints" / "legacy-2.3-rocksdb"
WITH_TTL = LEGACY.with_name("legacy-ttl-2.3-rocksdb")
NAMES = ["--operator", "main", "--legacy-state", "mainState", "--new-state", "newMainState"]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The only line of a command that ends with the exit code of wrong usage."""
    assert main([str(one) for one in arguments]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    (line,) = error.splitlines()
    return line.removeprefix("stateferry: ")


def refused_run(capsys: pytest.CaptureFixture[str], tmp_path: Path, *options: str, source: Path = LEGACY) -> str:
    places = ("--savepoint", source, "--target", tmp_path / "new", "--home", tmp_path / "home")
    line = refused(capsys, "run", *places, *options)
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "home" / "runs").exists()
    return line


def test_an_empty_place_is_called_as_it_was_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "run", "--savepoint", "", "--target", "", *NAMES, "--home", tmp_path)
    blank = "expected at least one character, found none"
    assert said == f"--savepoint: {blank}; --target: {blank}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rnu"], "unknown command 'rnu'. Did you mean run? There are: inspect, dump, "),
        (["--verison"], "unknown option --verison: did you mean --version? (see stateferry --help)"),
        (
            ["run", "--operatr", "main"],
            "unknown option --operatr: did you mean --operator? (see stateferry run --help)",
        ),
        (["run", "--opertor=main"], "unknown option --opertor: did you mean --operator?"),
        # The option that it was meant to be is required, and would be missed first.
        (["rollback", "--jbo", "main"], "unknown option --jbo: did you mean --job?"),
        (["dump", str(LEGACY), "--xyz"], "unknown option --xyz (see stateferry dump --help)"),
        (["run", "legacy", "new"], "unexpected: legacy new. Is the name of an option missing in front of it?"),
        (["run", "--compression", "snapy"], "argument --compression: unknown value 'snapy'. Did you mean snappy?"),
        (["run", "--max-parallelism", "many"], "argument --max-parallelism: expected a whole number, found 'many'"),
        (["run", "--wait", "5x"], "argument --wait: expected a duration such as 90s, 11.5s, "),
        (["clean", "--older-than", "old"], "argument --older-than: expected a duration such as 90s, 11.5s, "),
        (["dump", str(LEGACY), "--operator", "mian", "--state", "s"], "Did you mean main? There are: "),
        (["dump", str(LEGACY), "--operator", "main", "--state", "mainstate"], "Did you mean mainState? There are: "),
    ],
)
def test_a_mistyped_word_is_answered_with_the_one_that_was_meant(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert said in refused(capsys, *arguments)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ttl", "1x"], "argument --ttl: expected a duration such as 90s, "),
        (["--ttl", "0"], "--ttl: expected greater than or equal to 1, found 0"),
        (["--ttl", "30d", "--share", "200%"], "argument --share: expected a share such as 60%"),
        (["--keep-expired"], "--keep-expired: no state has a --ttl, so none can expire: give the --ttl, or leave"),
        (["--share", "30%"], "--share: only a lazy run moves some of the keys"),
        (["--on-contradiction", "rows"], "name the flag state (--flag-state), or leave --on-contradiction out"),
        (["--new-state", "mainState"], "legacy and new state are both 'mainState'"),
        (["--drop-legacy-blobs"], "--drop-legacy-blobs: only a run in reverse has it"),
        (["--format", "native", "--full-every", "3"], "one: give --rehearse as well, or leave --full-every out"),
        (["--format", "native", "--full-every", "3", "--since", "x"], "an earlier one: leave --full-every out"),
        (
            ["--rehearse", "--format", "native", "--full-every", "3", "--since", "x"],
            "--full-every: since says from which rehearsal this one goes on",
        ),
        (["--wait", "1h"], "--wait: only a run with --next-in waits"),
    ],
)
def test_what_is_wrong_with_options_is_said_of_the_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    line = refused_run(capsys, tmp_path, *NAMES, *options)
    assert said in line
    assert "the plan" not in line
    assert not any(one.field in line for one in PLAN_OPTIONS if "_" in one.field)


def test_a_missing_time_to_live_is_called_as_its_option_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "but --ttl is missing: give the duration" in refused_run(capsys, tmp_path, *NAMES, source=WITH_TTL)


def test_what_is_wrong_in_a_plan_file_is_said_of_its_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"job": "j", "source": "/in", "target": "/out", "lazy": true}')
    assert "lazy: given, but no state is migrated" in refused(capsys, "run", "--plan", plan, "--parallelism", "3")
    plan.write_text('{"job": "j", "source": "/in", "target": "/out", "keep_legacy": true}')
    line = refused(capsys, "run", "--plan", plan, "--parallelism", "3")
    assert "the plan: keep_legacy: given" in line


def test_names_of_states_are_no_names_of_options() -> None:
    said = "the plan: state 'keep_legacy' of main/keep_expired: keep_expired is given"
    assert in_words_of_options(said) == "state 'keep_legacy' of main/keep_expired: --keep-expired is given"


@pytest.mark.parametrize(
    ("case", "operator", "options"),
    [
        ("legacy-2.3-rocksdb", "main", "--new-state newMainState --flag-state isMigratedState"),
        ("legacy-ttl-2.3-rocksdb", "main", "--new-state newMainState --flag-state isMigratedState --ttl TTL"),
        ("kinds-2.3-rocksdb", "kinds", "--legacy-state value-state --new-state NEW_STATE"),
    ],
)
def test_inspect_says_how_a_state_is_migrated(
    capsys: pytest.CaptureFixture[str], case: str, operator: str, options: str
) -> None:
    savepoint = LEGACY.with_name(case)
    assert main(["inspect", str(savepoint)]) == 0
    lines = capsys.readouterr().out.splitlines()
    (command,) = [line.strip() for line in lines if line.startswith("  stateferry run ")]
    assert command.startswith(f"stateferry run --savepoint {savepoint} --target NEW_FOLDER --operator {operator}")
    assert command.endswith(options)
    for name in ("NEW_FOLDER", "NEW_STATE", "TTL"):
        explained = [line for line in lines if line.startswith(f"  {name}: ")]
        assert len(explained) == (f" {name}" in command)


def test_the_command_that_inspect_prints_is_a_plan_that_fits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["inspect", str(WITH_TTL)]) == 0
    (command,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  stateferry run ")]
    places = {"NEW_FOLDER": str(tmp_path / "new"), "TTL": "30d"}
    words = [places.get(word, word) for word in shlex.split(command)]
    options = _parser().parse_args([*words[1:], "--home", str(tmp_path)])
    plan = plan_of_options(options)
    assert resolve(plan, open_source(plan)).operators
    assert (plan.home, plan.operators[0].states[0].ttl_ms) == (str(tmp_path), 30 * 86_400_000)


def test_a_savepoint_is_not_verified_against_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for other in (LEGACY, f"{LEGACY}/", LEGACY / "_metadata", f"file://{LEGACY}"):
        line = refused(capsys, "verify", LEGACY, other)
        assert line.startswith(
            f"SRC and DST are the same savepoint, {LEGACY}: verify compares a savepoint with another"
        )


def test_help_shows_each_option_of_a_run_once_in_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["help", "run"])
    shown, _ = capsys.readouterr()
    for one in PLAN_OPTIONS:
        assert len(re.findall(rf"\n  {one.flag}(?![\w-])", shown)) == 1
    groups = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert groups[1:4] == ["options:", "from where to where:", "which state becomes which:"]
    steps = [line.split()[0] for line in shown.splitlines() if line.startswith("  ") and line[13:14].islower()]
    assert steps[:6] == ["snapshot", "migrate", "rescale", "validate", "cut", "tables"]


@pytest.mark.slow
def test_the_first_thing_that_is_said_comes_quickly() -> None:
    """What only some commands need isn't imported for all of them."""
    code = "import sys, stateferry.cli; print({'pydantic', 'rich', 'numpy', 'difflib'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert ran.stdout == "set()\n"


def test_places_that_no_file_had_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", str(LEGACY), "--operator", "main", "--state", "mainState", "--files-from", "/old=/new"]) == 0
    said = f"note: --files-from /old=/new had no effect: {LEGACY} has no address of a file below /old\n"
    assert capsys.readouterr().err.startswith(said)
    # Another savepoint that the command reads may need it.
    for command in (["check", "--for", "flink-2.3", "--before"], ["advise", "--changed-since"]):
        main([command[0], str(LEGACY), *command[1:], str(LEGACY), "--files-from", "/old=/new"])
        said = capsys.readouterr().err
        assert not re.search("usage:|--files-from", said)
