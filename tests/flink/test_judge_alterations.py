"""Real Flink judges one alteration of each kind: where it refuses or finds other contents, validation is red.

`make test-saboteur` judges all kinds, `make test` a few.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest

from tests.flink.harness import FlinkError, FlinkHarness
from tests.flink.jobs import Job, State
from tests.flink.make_golden import CASES
from tests.flink.scenarios import SCENARIOS
from tests.support.alterations import HARMFUL, HARMLESS, NotApplicableError
from tests.support.altered_results import RESULTS, Result, alter, made_of
from tests.validation.test_checks import FLAG, GOLDEN, LEGACY, NEW, Case

pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]

SEED = int(os.environ.get("STATEFERRY_ALTERATION_SEED", "1"))
FEW = (
    "a broadcast state described among the lists",
    "a state described twice",
    "rows in another order",
)
KINDS = (*HARMFUL, *HARMLESS) if "STATEFERRY_ALTERATIONS" in os.environ else FEW
RAW = "raw-state"
# What Flink made of a restore: its refusal, or all that it found.
Verdict = str | tuple[object, ...]


@dataclass(frozen=True)
class Judged:
    """A result, its job in the new shape, and what Flink finds in it as it is."""

    case: Case
    job: Job
    version: str
    verdict: Verdict


def of_new_shape(job: Job, result: Result) -> Job:
    operators = tuple(
        replace(one, states=tuple(_new_states(one.states))) if one.uid == result.uid else one for one in job.operators
    )
    job = replace(job, operators=operators)
    if result.layout.max_parallelism is None:
        return job
    (parallelism,) = result.layout.parallelism.values()
    operators = tuple(replace(one, max_parallelism=None, parallelism=None) for one in job.operators)
    return replace(job, operators=operators, parallelism=parallelism, max_parallelism=result.layout.max_parallelism)


def verdict(flink: FlinkHarness, savepoint: Path, job: Job) -> Verdict:
    try:
        restored = flink.restore(savepoint, job)
    except FlinkError as error:
        return f"{error}"
    lines = (Counter(json.dumps(line, sort_keys=True) for line in of) for of in (restored.lines, restored.fired))
    return (*lines, len(restored.problems), restored.timers_missed)


def _new_states(states: tuple[State, ...]) -> Iterator[State]:
    is_there = any(one.name == NEW for one in states)
    for one in states:
        if one.name == LEGACY and not is_there:
            yield replace(one, name=NEW, kind="MAP")
        elif one.name not in (LEGACY, FLAG):
            yield one


@pytest.fixture(scope="module")
def judged(flink: Callable[[str], FlinkHarness], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Judged]:
    folder, known = tmp_path_factory.mktemp("judged"), dict[str, Judged]()

    def judge(name: str) -> Judged:
        if name not in known:
            if name == RAW:
                version, job, result = "2.3.0", replace(SCENARIOS[RAW], inline_threshold=0), Result(RAW)
                source = flink(version).make(job, folder / "source").path
            else:
                result = RESULTS[name]
                version, job, source = CASES[result.golden].version, CASES[result.golden].job, GOLDEN / result.golden
            case = made_of(source, result, folder / f"{len(known)}")
            shaped = of_new_shape(job, result)
            known[name] = Judged(case, shaped, version, verdict(flink(version), case.folder, shaped))
        return known[name]

    return judge


# One cluster for as many as possible.
NAMES = sorted([*RESULTS, RAW], key=lambda name: (name == RAW, "1.20" in RESULTS.get(name, Result("")).golden))


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("kind", KINDS)
def test_what_flink_does_not_take_is_red(
    kind: str, flink: Callable[[str], FlinkHarness], judged: Callable[[str], Judged], tmp_path: Path
) -> None:
    for name in NAMES:
        one = judged(name)
        assert not isinstance(one.verdict, str), one.verdict
        try:
            altered = alter(kind, {name: one.case}, tmp_path / name, Random(f"{SEED}-{kind}"))
        except NotApplicableError:
            continue
        found = verdict(flink(one.version), altered.folder, one.job)
        told = f"seed {SEED}, {kind} in {name}: Flink says {str(found)[:1500]}"
        if kind in HARMLESS:
            assert found == one.verdict, told
        elif found != one.verdict:
            # Where Flink notices nothing, validation may still be stricter.
            assert altered.failed, told
        return
    pytest.fail(f"no result has anything of the kind: {kind}")
