from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support.busy import Busy
from tests.support.line_coverage import LineCoverage
from tests.support.matrices import left_out, not_fast

if TYPE_CHECKING:
    from tests.support.terminal import Terminal

# A first call may compile a kernel or wait for a busy machine: pytest's own timeout ends what hangs.
settings.register_profile("all", deadline=None)
settings.register_profile("sample", deadline=None, max_examples=25)
settings.register_profile("fast", deadline=None, max_examples=10)

# Side by side, a group keeps to one process, which has its Flink, Airflow or Spark. The longest groups come first.
_GROUPS = (
    *("standalone", "flink", "spark", "test_random_catch_ups.py"),
    *("test_killed.py", "test_bounded_memory.py", "stores"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all",
        action="store_true",
        help="run whole matrices, what is marked full, and all examples of what is drawn at random",
    )
    parser.addoption(
        "--fast",
        action="store_true",
        help="run only what is quick: no server, nothing marked slow, two cases of what is marked part",
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile(next((name for name in ("fast", "all") if config.getoption(f"--{name}")), "sample"))
    config.pluginmanager.register(Busy())
    if hasattr(config, "workerinput") or getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(LineCoverage())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the test's runs, whose workers are this process."""
    # Imported here, so that the lines of the library's modules are seen to run.
    from tests.support.in_process import without_spark

    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    without_spark(monkeypatch)
    return tmp_path / "home"


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str]) -> Terminal:
    from tests.support.terminal import Terminal

    return Terminal(capsys)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests stay until the end: to look among them for garbage again and again takes long.

    They aren't frozen then: the mutation run looks for functions among all objects, and who asks how many are frozen
    walks over them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    named = config.getoption("-k") or any("::" in argument for argument in config.args)
    if not (config.getoption("--all") or named):
        _leave_out(left_out(items), config, items)
    if config.getoption("--fast"):
        _leave_out(not_fast(items), config, items)
    items.sort(key=_place)


def _leave_out(out: list[pytest.Item], config: pytest.Config, items: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=out)
    ids = set(map(id, out))
    items[:] = [item for item in items if id(item) not in ids]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    return _GroupByGroup(config, log) if config.getoption("dist") == "loadscope" else None


class _GroupByGroup(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a process one group of tests after another, in their order."""

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid)


def _group(nodeid: str) -> str:
    """The folder of those that share a server, or the test's own file."""
    file = nodeid.partition("::")[0]
    return next((part for part in reversed(file.split("/")) if part in _GROUPS), file)


def _place(item: pytest.Item) -> int:
    group = _group(item.nodeid)
    return _GROUPS.index(group) if group in _GROUPS else len(_GROUPS)
