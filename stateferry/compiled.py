"""The compiled kernels: which there are, and those of numba's cache brought into the process before they are called."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

from numba.core.dispatcher import Dispatcher

import stateferry


def kernels() -> Iterator[tuple[str, Any]]:
    """What must be compiled before it can be called, by module and name."""
    for module in pkgutil.walk_packages(stateferry.__path__, "stateferry."):
        if module.name.endswith("kernels"):
            for name, kernel in vars(importlib.import_module(module.name)).items():
                # The others are compiled into those that call them.
                if isinstance(kernel, Dispatcher) and not name.startswith("_"):
                    yield f"{module.name}.{name}", kernel


def load() -> None:
    """What is in the cache, for every type of arguments; nothing is compiled."""
    for _, kernel in kernels():
        # numba has no public way to ask what it has kept. What can't be had now is had when it is called.
        with contextlib.suppress(Exception):
            for signature, *_ in kernel._cache._cache_file._load_index():
                kernel.compile(signature)
