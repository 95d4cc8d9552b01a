"""Lists the compiled kernels, and loads those in numba's cache before they are called."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import pkgutil
from collections.abc import Iterator
from typing import Any

from numba.core.dispatcher import Dispatcher

import flinkstate
import stateferry


def kernels() -> Iterator[tuple[str, Any]]:
    """Yields the kernels that must be compiled before they can be called, with module and name."""
    modules = (pkgutil.walk_packages(package.__path__, f"{package.__name__}.") for package in (flinkstate, stateferry))
    for module in itertools.chain.from_iterable(modules):
        if module.name.endswith("kernels"):
            for name, kernel in vars(importlib.import_module(module.name)).items():
                # Functions with other names, those of other modules, and uncached ones are compiled into their callers.
                own = isinstance(kernel, Dispatcher) and kernel.py_func.__module__ == module.name
                if own and not name.startswith("_") and hasattr(kernel._cache, "_cache_file"):
                    yield f"{module.name}.{name}", kernel


def load() -> None:
    """Loads all compiled versions of the kernels that are in the cache. It compiles nothing."""
    for _, kernel in kernels():
        # numba has no public way to list its cache. A version that can't be loaded now is loaded or compiled when
        # called.
        with contextlib.suppress(Exception):
            for signature, *_ in kernel._cache._cache_file._load_index():
                kernel.compile(signature)
