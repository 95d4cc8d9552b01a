from __future__ import annotations

import pytest
from hypothesis import settings

from tests.matrices import left_out

# A first call may compile a kernel or wait for a busy machine: pytest's own timeout ends what hangs.
settings.register_profile("stateferry", deadline=None)
settings.register_profile("fast", deadline=None, max_examples=25)
settings.load_profile("stateferry")

# Side by side, a group keeps to one process, which has its Flink, Airflow or Spark. The longest group comes first.
_GROUPS = ("standalone", "flink", "spark")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all",
        action="store_true",
        help="run whole matrices, and what is marked full",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not (config.getoption("--all") or any("::" in argument for argument in config.args)):
        out = left_out(items)
        config.hook.pytest_deselected(items=out)
        names = set(map(id, out))
        items[:] = [item for item in items if id(item) not in names]
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=_place)


def _group(item: pytest.Item) -> str:
    folder = item.path.parent
    return next((group for group in _GROUPS if group in folder.parts), item.path.stem)


def _place(item: pytest.Item) -> int:
    group = _group(item)
    return _GROUPS.index(group) if group in _GROUPS else len(_GROUPS)
