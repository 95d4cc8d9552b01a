"""Puts a fault into a module that has been imported: every function object gets the code with the fault."""

from __future__ import annotations

import gc
import sys
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import pytest
from numba.core.dispatcher import Dispatcher

from tests.mutants.mutations import Mutant


def put(mutant: Mutant, folder: Path) -> None:
    """Afterwards the running process has the fault; a module with compiled kernels is compiled anew, in the folder."""
    if has_kernels(mutant.file):
        for module in _modules(mutant.file):
            _execute_again(mutant, module, folder)
        return
    for code in _codes(mutant.code()):
        if code.co_qualname == mutant.function:
            for function in functions_of(mutant.file).get(mutant.function, ()):
                function.__code__ = code


@cache
def functions_of(file: Path) -> dict[str, list[FunctionType]]:
    """The functions of a module, by their qualified names: looked for once, for it takes long.

    `isinstance` would ask proxies, whose objects may be gone.
    """
    found: dict[str, list[FunctionType]] = {}
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename == str(file):
            found.setdefault(one.__code__.co_qualname, []).append(one)
    return found


def has_kernels(file: Path) -> bool:
    """Whether a module that has been imported has compiled functions."""
    return any(isinstance(value, Dispatcher) for module in _modules(file) for value in vars(module).values())


def names_kernels(test: pytest.Item, package: Path) -> bool:
    """Whether the test's module has a name for one of the package's modules with compiled functions."""
    assert isinstance(test, pytest.Function)
    modules = [one for one in vars(test.module).values() if type(one) is ModuleType]
    files = {Path(getattr(one, "__file__", None) or "") for one in modules}
    return any(file.is_relative_to(package) and has_kernels(file) for file in files)


@cache
def _modules(file: Path) -> list[ModuleType]:
    return [one for one in list(sys.modules.values()) if getattr(one, "__file__", None) == str(file)]


def _execute_again(mutant: Mutant, module: ModuleType, folder: Path) -> None:
    """Others must name kernels by their module. numba's cache goes by the file, so that with the fault has its own."""
    file = folder / mutant.file.name
    file.write_text(mutant.source(), "utf-8")
    exec(compile(file.read_text("utf-8"), str(file), "exec"), vars(module))


def _codes(code: CodeType) -> list[CodeType]:
    """The code objects of a module's functions, and of its classes' methods."""
    own = [one for one in code.co_consts if isinstance(one, CodeType)]
    return own + [inner for one in own for inner in _codes(one)]
