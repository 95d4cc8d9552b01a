"""Files of results changed at random, also with checksums that fit: red or harmless, and never an internal error.

`make test-saboteur` makes a thousand changes: STATEFERRY_ALTERATIONS and STATEFERRY_ALTERATION_SEED say how many.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import Operator
from flinkstate.metadata.parse_metadata import parse_metadata
from stateferry.cli import main
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState
from tests.support.mutations import HIDDEN, PLAIN, mutated
from tests.support.verified_runs import verified

COUNT = int(os.environ.get("STATEFERRY_ALTERATIONS", "30"))
SEED = int(os.environ.get("STATEFERRY_ALTERATION_SEED", "1"))
OF_THE_PLAN = ("--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW, "--flag-state", FLAG)
LAYOUT = ("--parallelism", "2", "--job", "orders")


def is_same_but_names(one: Path, other: Path) -> bool:
    """Whether two `_metadata` differ in nothing but ids of native state, which Flink needs for shared files alone."""
    if one.name != METADATA:
        return False
    try:
        contents = [parse_metadata(file.read_bytes(), METADATA) for file in (one, other)]
    except (DamagedError, RefusedError):
        return False
    return (
        len({repr(replace(content, operators=tuple(map(_nameless, content.operators)))) for content in contents}) == 1
    )


def _nameless(operator: Operator) -> Operator:
    subtasks = (
        replace(
            one, native_keyed=one.native_keyed and replace(one.native_keyed, backend="", id="", checkpointed_size=0)
        )
        for one in operator.subtasks
    )
    return replace(operator, subtasks=tuple(subtasks))


@pytest.mark.matrix(most=1)
@pytest.mark.slow
@pytest.mark.timeout(120 + COUNT * 4)
@pytest.mark.parametrize("format_", ["native", "canonical"])
def test_a_changed_file_of_a_result_is_red_and_named(
    format_: str, tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sys.stdout.write(f"{COUNT} changes of {format_}, STATEFERRY_ALTERATION_SEED={SEED}\n")
    source, whole, target = tmp_path / "source", tmp_path / "whole", tmp_path / "target"
    blobs = {f"key {number}": ({"a": number, "b": 2 * number}, 0) for number in range(120)}
    LegacyState(blobs=blobs, rows={f"row {number}": {"a": (number, 0)} for number in range(60)}).write(str(source))
    verified(source, whole, home=str(tmp_path / "home"), run_id="one", output_format=format_, parallelism=2)
    files, wrong = sorted(whole.iterdir()), []
    capsys.readouterr()
    for number in range(COUNT):
        random = Random(f"{SEED}-{number}")
        file = random.choice(files)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(whole, target)
        kinds = (*PLAIN, *HIDDEN.get(file.suffix or file.name[-15:-7], ()))
        kind = random.choice(kinds)
        (target / file.name).write_bytes(mutated(file.read_bytes(), kind, random))
        verify = ["verify", str(source), str(target), *OF_THE_PLAN, *LAYOUT, "--format", format_, "--json"]
        code, said = main(verify), capsys.readouterr()
        what = f"seed {SEED}, number {number}: {kind.__name__} in {file.name}"
        harmless = kind not in PLAIN or is_same_but_names(target / file.name, file)
        if code not in ((0, 1) if harmless else (1,)):
            wrong.append(f"{what}: exit {code}: {said.err}")
        elif code == 1 and kind not in PLAIN:
            failed = [check for check in json.loads(said.out)["checks"] if check["outcome"] == "failed"]
            if not any(file.name in check["actual"] or check["samples"] for check in failed):
                wrong.append(f"{what}: not named: {failed}")
    assert not wrong, "\n".join(wrong)
