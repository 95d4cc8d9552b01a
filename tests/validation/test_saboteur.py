"""Alterations of migrated savepoints, drawn at random: whatever changes what Flink would restore is red, and named.

`make test-saboteur` draws a thousand: STATEFERRY_ALTERATIONS and STATEFERRY_ALTERATION_SEED say how many and which.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from random import Random

import pytest

from flinkstate.metadata.metadata import RelativeFile
from stateferry.proof.expected.check_result import Outcome
from tests.support.alterations import HARMFUL, HARMLESS, NotApplicableError
from tests.support.altered_results import RESULTS, alter, draw, made_of
from tests.support.saboteur import Saboteur
from tests.validation.test_checks import GOLDEN, Case

COUNT = int(os.environ.get("STATEFERRY_ALTERATIONS", "50"))
SEED = int(os.environ.get("STATEFERRY_ALTERATION_SEED", "1"))
# Of these the golden savepoints have none; real Flink makes them for its own test.
NOT_IN_THE_GOLDEN_ONES = {"a bit of raw state", "raw state gone"}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    folder = tmp_path_factory.mktemp("results")
    return {
        name: made_of(GOLDEN / result.golden, result, folder / str(number))
        for number, (name, result) in enumerate(RESULTS.items())
    }


@pytest.mark.slow
def test_what_was_not_altered_is_green(results: dict[str, Case]) -> None:
    for name, case in results.items():
        assert not [check for check in case.checks(case.folder) if check.outcome is Outcome.FAILED], name


@pytest.mark.slow
@pytest.mark.timeout(60 + COUNT * 5)
def test_every_alteration_that_counts_is_red_and_names_the_place(results: dict[str, Case], tmp_path: Path) -> None:
    sys.stdout.write(f"{COUNT} alterations, STATEFERRY_ALTERATION_SEED={SEED}\n")
    wrong, done = [], 0
    for number, (kind, random) in enumerate(draw(SEED, COUNT)):
        names = random.sample(list(results), len(results))
        folder = tmp_path / str(number)
        try:
            altered = alter(kind, {name: results[name] for name in names}, folder, random)
        except NotApplicableError:
            assert kind in NOT_IN_THE_GOLDEN_ONES
            continue
        done += 1
        what = f"seed {SEED}, number {number}: {kind} in {altered.result}"
        if kind in HARMFUL and not altered.failed:
            wrong.append(f"{what}: green")
        elif kind in HARMFUL and not altered.names_the_place:
            found = [(check.name, check.actual, check.key_groups, check.samples) for check in altered.failed]
            wrong.append(f"{what}: not named {altered.place}: {found}")
        elif kind in HARMLESS and altered.failed:
            wrong.append(f"{what}: red: {altered.failed}")
        shutil.rmtree(folder)
    assert done > COUNT * 0.8
    assert not wrong, "\n".join(wrong)


@pytest.mark.part
@pytest.mark.parametrize(
    "kind",
    [
        "a broadcast state described among the lists",
        "a list described among the broadcast states",
        "a list described twice",
        "a state described twice",
        "a mode of distribution",
    ],
)
def test_what_flink_refuses_is_red_in_every_operator(kind: str, results: dict[str, Case], tmp_path: Path) -> None:
    """Also in one that has no keyed state."""
    case = {"operator state and timers": results["operator state and timers"]}
    for number in range(6):
        altered = alter(kind, case, tmp_path / str(number), Random(number))
        assert altered.failed
        assert altered.names_the_place


def test_damage_in_an_operator_without_keyed_state_is_red(results: dict[str, Case], tmp_path: Path) -> None:
    case = results["operator state and timers"]
    saboteur = Saboteur(case.folder, tmp_path / "altered")
    handle = saboteur.operator("plain").subtasks[0].managed_operator
    assert handle is not None
    assert isinstance(handle.stream, RelativeFile)
    (saboteur.folder / handle.stream.path).unlink()
    checks = {check.name: check for check in case.checks(saboteur.folder)}
    assert checks["plain: readable"].outcome is Outcome.FAILED
    assert checks["plain: operator state carried over"].outcome is Outcome.COULD_NOT_TELL
    assert checks["keyed: operator state carried over"].outcome is Outcome.PASSED
