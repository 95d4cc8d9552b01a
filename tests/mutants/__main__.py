"""`python -m tests.mutants --count 500 --seed 1`: says which faults in the validation no test has seen.

All tests run once, in one process, which notes the lines of the validation that each of them reaches. Then it forks for
each fault. The child process has all modules, compiled kernels and shared fixtures at once. It puts the fault into the
functions it has and runs the tests that reach the line, the quickest first, until one fails.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from bisect import bisect
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import pytest
from _pytest.runner import SetupState, runtestprotocol
from _pytest.scope import Scope

# The package whose checks are checked, in this place alone.
from stateferry import proof as package
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.in_place import functions_of, has_kernels, names_kernels, put
from tests.mutants.mutations import Mutant, mutants_of
from tests.support import matrices

ROOT = Path(__file__).parents[2]
PACKAGE = Path(package.__file__).parent
# What the checks go by, and the writers too.
ASKED = PACKAGE.parent / "changes/operator_changes.py"
# Tests that reach it without a server, each kind of conversion once.
TESTS = (
    "tests/validation",
    "tests/kryo/test_fields.py",
    "tests/rocksdb/test_merge.py",
    "tests/rocksdb/test_writer.py",
    "tests/steps/test_catch_up.py",
    "tests/steps/test_declared_maps.py",
    "tests/steps/test_for_another_flink.py",
    "tests/steps/test_inner_collections.py",
    "tests/steps/test_kept_values.py",
    "tests/steps/test_kryo_maps.py",
    "tests/steps/test_kryo_parts.py",
    "tests/steps/test_lazy.py",
    "tests/steps/test_lost_entries.py",
    "tests/steps/test_maps_in_objects.py",
    "tests/steps/test_maps_in_pojos.py",
    "tests/steps/test_native_output.py",
    "tests/steps/test_native_source.py",
    "tests/steps/test_nullable_maps.py",
    "tests/steps/test_nulls.py",
    "tests/steps/test_reverse.py",
    "tests/steps/test_state_ttls.py",
    "tests/steps/test_verify.py",
    "tests/tables/test_account.py",
    "tests/test_pojo_fields.py",
)
LEAST_KILLED, MOST_EQUIVALENT = 0.95, 0.03
_MEMORY = 4 << 30
# Seconds at which tests are no longer quick, and no longer slow.
_GROUPS = (0.5, 3.0)
_NONE = -1  # in place of a fault's number
Key = tuple[str, str, str, str]


class Fate(Enum):
    """What became of a fault."""

    KILLED = "killed"
    TIMED_OUT = "killed by its time"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"


def key_of(mutant: Mutant) -> Key:
    """What names a fault, also when the lines above it change."""
    return (mutant.file.name, mutant.function, *mutant.texts())


def all_mutants() -> list[Mutant]:
    return [mutant for file in (*sorted(PACKAGE.rglob("*.py")), ASKED) for mutant in mutants_of(file)]


def sample(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """One of each function, and then any."""
    chance = random.Random(seed)
    shuffled = chance.sample(mutants, len(mutants))
    firsts = {(one.file, one.function): one for one in reversed(shuffled)}
    chosen = set(map(id, firsts.values()))
    others = (one for one in shuffled if id(one) not in chosen)
    return [*firsts.values(), *others][:count]


@dataclass
class Reached:
    """A test, the processor time that it takes, and the lines of the package that it reaches, by file."""

    item: pytest.Item
    seconds: float = 0.0
    lines: dict[str, set[int]] = field(default_factory=dict)

    def reaches(self, mutant: Mutant) -> bool:
        """Of compiled kernels no lines are seen: any test may reach them."""
        return has_kernels(mutant.file) or not self.lines.get(str(mutant.file), set()).isdisjoint(mutant.lines)

    @property
    def shared(self) -> tuple[object, ...]:
        """The module, and which parameters its shared fixtures have: with others pytest makes these anew."""
        callspec = getattr(self.item, "callspec", None)
        if callspec is None:
            return (self.item.path,)
        return (
            self.item.path,
            *((name, number) for name, number in callspec.indices.items() if _is_shared(callspec, name)),
        )


def _is_shared(callspec: Any, name: str) -> bool:
    return bool(callspec._arg2scope[name] is not Scope.Function)


def quickest_first(tests: list[Reached]) -> list[Reached]:
    """The tests in three groups by their time; within each, those that share fixtures follow one another."""
    order = sorted(tests, key=lambda test: test.seconds)
    ranks = {test.shared: rank for rank, test in reversed(list(enumerate(order)))}
    return sorted(order, key=lambda test: (bisect(_GROUPS, test.seconds), ranks[test.shared]))


class Trace:
    """Notes the lines of the package that are executed."""

    def __init__(self) -> None:
        self.lines: dict[str, set[int]] = {}
        self._own: dict[str, bool] = {}

    def __enter__(self) -> Trace:
        threading.settrace(self._call)
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        file = frame.f_code.co_filename
        own = self._own.get(file)
        if own is None:
            own = self._own[file] = file.startswith((str(PACKAGE), str(ASKED)))
        if not own:
            return None
        seen = self.lines.setdefault(file, set())

        def line(frame: FrameType, event: str, argument: object) -> Any:
            seen.add(frame.f_lineno)
            return line

        seen.add(frame.f_lineno)
        return line


class _AfterIt:
    """Stands for a test after another one in the same module, so that what the module shares is not torn down."""

    def __init__(self, item: pytest.Item) -> None:
        self._chain = item.listchain()[:-1]

    def listchain(self) -> list[Any]:
        return self._chain


def _after(item: pytest.Item) -> Any:
    return _AfterIt(item)


class Runner:
    """Runs in pytest's place, once the tests are collected."""

    def __init__(self, chosen: list[Mutant], jobs: int, out: TextIO, *, doubts: bool = False) -> None:
        self.chosen, self.jobs, self.out, self.doubts = chosen, jobs, out, doubts
        self.fates: dict[int, tuple[Fate, str]] = {}
        self.failed: list[str] = []
        self.seconds, self.began = 0.0, time.monotonic()
        self.folder = Path(tempfile.mkdtemp(prefix="mutants-"))

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings  # Not before pytest has begun.

        # Drawn alike in each process, kept nowhere, and never made smaller.
        settings.register_profile(
            "mutants", deadline=None, max_examples=40, derandomize=True, database=None,
            phases=(Phase.explicit, Phase.generate),
        )  # fmt: skip
        settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Of a test with many cases alike, those stay in which each word of their names occurs."""
        cases: dict[str, list[str]] = {}
        for item in items:
            if item.get_closest_marker("part") is not None:
                cases.setdefault(item.nodeid.partition("[")[0], []).append(item.name)
        chosen = {test: matrices.sample(names) for test, names in cases.items()}
        items[:] = [one for one in items if one.name in chosen.get(one.nodeid.partition("[")[0], (one.name,))]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        tests = [self._once(session, item) for item in session.items]
        tests = quickest_first([test for test in tests if test.lines or names_kernels(test.item, PACKAGE)])
        total = sum(test.seconds for test in tests)
        self._say(f"{len(tests)} tests reach {PACKAGE.name}; they take {total:.0f} s")
        if not self.failed:
            self._all(session, tests)
        shutil.rmtree(self.folder, ignore_errors=True)
        return True

    def _say(self, text: str) -> None:
        print(text, file=self.out, flush=True)

    def _once(self, session: pytest.Session, item: pytest.Item) -> Reached:
        """Runs a test without a fault; shared fixtures stay as they are, for those that come after."""
        session._setupstate = SetupState()
        reached, began = Reached(item), time.process_time()
        with Trace() as trace:
            reports = runtestprotocol(item, log=False, nextitem=_after(item))
        reached.seconds, reached.lines = time.process_time() - began, trace.lines
        self.failed += [f"{item.nodeid}: {one.longreprtext}" for one in reports if one.failed]
        return reached

    def _all(self, session: pytest.Session, tests: list[Reached]) -> None:
        """Each fault in a child process; first all tests without a fault in one, where they must pass too."""
        for file in {mutant.file for mutant in self.chosen}:
            functions_of(file)
        running = {self._fork(session, None, tests): _NONE}
        for number, mutant in enumerate(self.chosen):
            if len(running) == self.jobs:
                self._wait(running)
            if self.failed:
                break
            if key_of(mutant) in EQUIVALENT and not self.doubts:
                self._note(number, Fate.EQUIVALENT, "")
                continue
            reaching = [test for test in tests if test.reaches(mutant)]
            running[self._fork(session, mutant, reaching)] = number
        while running:
            self._wait(running)

    def _wait(self, running: dict[int, int]) -> None:
        child, status, usage = os.wait4(-1, 0)
        number, said = running.pop(child), self._told(child)
        self.seconds += usage.ru_utime + usage.ru_stime
        if number == _NONE:
            ended = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "it failed"
            self.failed += [f"fails in a child process without a fault, {ended}: {said}"] if status else []
            return
        mutant = self.chosen[number]
        if os.WIFEXITED(status) and not os.WEXITSTATUS(status):
            fate = Fate.EQUIVALENT if key_of(mutant) in EQUIVALENT else Fate.SURVIVED
        else:
            fate = Fate.TIMED_OUT if os.WIFSIGNALED(status) else Fate.KILLED
        self._note(number, fate, said)
        shutil.rmtree(self.folder / f"{child}", ignore_errors=True)

    def _note(self, number: int, fate: Fate, said: str) -> None:
        self.fates[number] = fate, said
        if fate is Fate.SURVIVED:
            self._say(f"{text_of(self.chosen[number])}\n  {said or 'no test reaches it'}")
        if len(self.fates) % 50 == 0:
            self._say(f"{len(self.fates)} of {len(self.chosen)}; {self._times()}")

    def _times(self) -> str:
        spent = self.seconds + time.process_time()
        return f"{(time.monotonic() - self.began) / 60:.1f} minutes, {spent / 60:.1f} of processor time"

    def _told(self, child: int) -> str:
        told = self.folder / f"{child}.txt"
        return told.read_text("utf-8") if told.exists() else ""

    def _fork(self, session: pytest.Session, mutant: Mutant | None, tests: list[Reached]) -> int:
        child = os.fork()
        if child:
            return child
        status = 1
        try:
            status = self._in_child(session, mutant, tests)
        finally:
            os._exit(status)

    def _in_child(self, session: pytest.Session, mutant: Mutant | None, tests: list[Reached]) -> int:
        folder, told = self.folder / f"{os.getpid()}", self.folder / f"{os.getpid()}.txt"
        folder.mkdir()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        session.config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        resource.setrlimit(resource.RLIMIT_AS, (_memory() + _MEMORY, resource.RLIM_INFINITY))
        # These end the process, also inside compiled code.
        for number in (signal.SIGPROF, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        if mutant is not None:
            put(mutant, folder)
        for test in tests:
            told.write_text(test.item.nodeid, "utf-8")
            # It may have to make what other tests share with it.
            signal.setitimer(signal.ITIMER_PROF, 10 * test.seconds + 20)
            session._setupstate = SetupState()
            reports = runtestprotocol(test.item, log=False, nextitem=_after(test.item))
            if failures := [report.longreprtext for report in reports if report.failed]:
                told.write_text(f"{test.item.nodeid}\n{failures[0]}", "utf-8")
                return 1
        told.write_text(f"{len(tests)} tests reach it" if tests else "", "utf-8")
        return 0


def _memory() -> int:
    """The memory that this process has, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def told_again(mutants: list[Mutant], said: str) -> list[Mutant]:
    """Those that an earlier output has named as not seen."""
    named = re.findall(r"^\S*?([^/\s]+):\d+ (\S+)\n  - (.*)\n  \+ (.*)$", said, re.MULTILINE)
    return [one for one in mutants if key_of(one) in named]


def text_of(mutant: Mutant) -> str:
    file = mutant.file.relative_to(ROOT)
    before, after = mutant.texts()
    return f"{file}:{mutant.line} {mutant.function}\n  - {before}\n  + {after}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="how many faults (default: 500)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first of them to run (default: 0)")
    parser.add_argument("--only", default="", help="only faults in functions whose file and name contain this")
    parser.add_argument("--again", type=Path, help="only those that this file, an earlier output, names as not seen")
    parser.add_argument("--equivalent", action="store_true", help="run those that are said to change nothing")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="only these tests (default: all that reach it)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (default: 2)")
    options = parser.parse_args(arguments)
    wanted = [one for one in all_mutants() if options.only in f"{one.file.name}:{one.function}"]
    if options.again is not None:
        wanted = told_again(wanted, options.again.read_text("utf-8"))
    if options.equivalent:
        wanted = [one for one in wanted if key_of(one) in EQUIVALENT]
    chosen = sample(wanted, options.count, options.seed)[options.first :]
    with os.fdopen(os.dup(1), "w") as out, tempfile.TemporaryFile("w+") as log:
        runner = Runner(chosen, options.jobs, out, doubts=options.equivalent)
        os.dup2(log.fileno(), 1)
        pytest.main(
            ["-p", "no:cacheprovider", "-o", "timeout=0", *(str(ROOT / test) for test in options.tests)], [runner]
        )
        if not runner.fates:
            log.seek(0)
            runner.failed.append(log.read())
        return report(runner, options.seed)


def report(runner: Runner, seed: int) -> int:
    for text in runner.failed[:3]:
        runner._say(text[-2000:])
    count = len(runner.fates)
    if runner.failed or not count:
        return 2
    found = {fate: sum(one is fate for one, _ in runner.fates.values()) for fate in Fate}
    killed = found[Fate.KILLED] + found[Fate.TIMED_OUT]
    runner._say(
        f"seed {seed}: {killed} of {count} faults were seen ({killed / count:.1%}, {found[Fate.TIMED_OUT]} by time), "
        f"{found[Fate.EQUIVALENT]} change nothing, {found[Fate.SURVIVED]} were not seen; "
        f"{runner._times()}"
    )
    return int(killed < count * LEAST_KILLED or found[Fate.EQUIVALENT] > count * MOST_EQUIVALENT)


if __name__ == "__main__":
    sys.exit(main())
