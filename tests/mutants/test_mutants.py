"""The tool that puts faults into the validation: it knows these faults, puts them in, and each listed one exists."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutants.__main__ import all_mutants, key_of, sample
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.in_place import put
from tests.mutants.mutations import mutants_of

CODE = '''
"""A module."""

def least(values: list[int], most: int = 10) -> int:
    """The least of them."""
    found = most
    for value in values:
        if value < found and not value % 2:
            found = value
    if found == -1:
        raise ValueError(f"{found + 1} is odd")
    return sum(zip(found, strict=True))

class Thing:
    def half(self) -> int:
        return 4 // 2
'''

FAULTS = {
    ("least", "for value in values:", "for value in ():"),
    ("least", "if value < found and (not value % 2):", "if value < found or not value % 2:"),
    ("least", "if value < found and (not value % 2):", "if value <= found and (not value % 2):"),
    ("least", "if value < found and (not value % 2):", "if value >= found and (not value % 2):"),
    ("least", "if value < found and (not value % 2):", "if value < found and value % 2:"),
    ("least", "if value < found and (not value % 2):", "if value < found and (not value // 2):"),
    ("least", "if value < found and (not value % 2):", "if value < found and (not value % 3):"),
    ("least", "if value < found and (not value % 2):", "if not (value < found and (not value % 2)):"),
    ("least", "if found == -1:", "if found != -1:"),
    ("least", "if found == -1:", "if found == 1:"),
    ("least", "if found == -1:", "if found == -2:"),
    ("least", "raise ValueError(f'{found + 1} is odd')", "pass"),
    ("Thing.half", "return 4 // 2", "return 4 * 2"),
    ("Thing.half", "return 4 // 2", "return 5 // 2"),
    ("Thing.half", "return 4 // 2", "return 4 // 3"),
}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    file = tmp_path / "altered_thing.py"
    file.write_text(CODE, "utf-8")
    made = ModuleType("altered_thing")
    made.__file__ = str(file)
    exec(compile(CODE, str(file), "exec"), vars(made))
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_faults_are_in_code_and_not_in_messages(module: ModuleType) -> None:
    found = mutants_of(Path(str(module.__file__)))
    assert {(one.function, *one.texts()) for one in found} == FAULTS
    assert len(found) == len(FAULTS)


def test_a_fault_is_in_the_function_that_others_hold(module: ModuleType, tmp_path: Path) -> None:
    half = module.Thing().half
    (fault,) = (one for one in mutants_of(Path(str(module.__file__))) if one.texts()[1] == "return 4 * 2")
    put(fault, tmp_path)
    assert half() == 8


def test_a_fault_in_a_kernel_is_compiled(tmp_path: Path) -> None:
    """In a process of its own, so that other tests have the kernel as it is."""
    fault = next(
        one for one in all_mutants() if (one.function, one.texts()[1]) == ("add_up", "counts[groups[index]] += 2")
    )
    child = os.fork()
    if not child:
        status = 1
        try:
            import numpy as np

            from stateferry.proof.expected.content import Account

            put(fault, tmp_path)
            account = Account.of(1)
            account.add(np.zeros(3, np.int64), np.zeros(3, np.uint64), np.ones(3, np.bool_))
            status = int(account.counts[0]) != 6
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_a_sample_has_faults_in_every_function() -> None:
    every = all_mutants()
    chosen = sample(every, 500, 7)
    assert len(chosen) == len(set(map(id, chosen))) == 500
    assert {(one.file, one.function) for one in chosen} == {(one.file, one.function) for one in every}
    assert list(map(key_of, sample(all_mutants(), 500, 7))) == list(map(key_of, chosen))


def test_every_fault_that_is_said_to_change_nothing_exists() -> None:
    every = set(map(key_of, all_mutants()))
    assert not EQUIVALENT.keys() - every
    assert len(EQUIVALENT) <= 0.03 * len(every)
    assert all(EQUIVALENT.values())
