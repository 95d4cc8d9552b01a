"""numba's cache keeps a kernel until a file changes of which the kernel has a part."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from numba.core.dispatcher import Dispatcher

from stateferry.basics import compiled

# It has names of types alone.
_TYPES = "flinkstate.basics.array_types"


def imported(file: Path) -> Iterator[Path]:
    """The files of this repository's modules that a module imports."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("flinkstate", "stateferry")):
            for alias in node.names:
                within = f"{node.module}.{alias.name}"
                is_package = bool(getattr(importlib.import_module(node.module or ""), "__path__", None))
                name = within if is_package and importlib.util.find_spec(within) else node.module
                if name != _TYPES:
                    yield Path(importlib.import_module(name or "").__file__ or "")


def needed(file: Path) -> set[Path]:
    """The file and all that it imports, directly or not."""
    found, left = set[Path](), [file]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += imported(one)
    return found


def unnamed(module: ModuleType) -> set[str]:
    """The names of files that a kernel of the module may have a part of, whose changes the cache doesn't notice."""
    kernels: list[Any] = [one for one in vars(module).values() if isinstance(one, Dispatcher)]
    stamps = [
        one._cache._cache_file._source_stamp
        for one in kernels
        if hasattr(one._cache, "_cache_file") and one.py_func.__module__ == module.__name__
    ]
    files = needed(Path(module.__file__ or "")) if stamps else set()
    # Several files have one name.
    stats = {file: file.stat() for file in files}
    missing = (file for file, of in stats.items() if any((of.st_mtime, of.st_size) not in stamp for stamp in stamps))
    return {file.name for file in missing}


def test_a_kernel_is_compiled_again_when_a_file_changes_that_it_has_a_part_of() -> None:
    assert len(list(compiled.kernels())) > 50
    modules = [one for name, one in sys.modules.items() if name.startswith(("flinkstate.", "stateferry."))]
    assert {one.__name__: names for one in modules if (names := unnamed(one))} == {}


@pytest.mark.parametrize(("named", "missing"), [("", {"kernels.py"}), (", kernels.__file__", set())])
def test_a_module_that_does_not_name_what_it_imports_is_found(
    named: str, missing: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_this_test.py").write_text(
        "from flinkstate.basics.compiling import kernel_of\n"
        "from flinkstate.hashing import kernels\n"
        "from flinkstate.hashing.kernels import murmur_of\n"
        f"@kernel_of(__file__{named})\n"
        "def twice(code):\n"
        "    return 2 * murmur_of(code)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "of_this_test", raising=False)
    module = importlib.import_module("of_this_test")
    monkeypatch.delitem(sys.modules, "of_this_test")
    assert unnamed(module) == missing
