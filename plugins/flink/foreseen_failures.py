"""Failures that were foreseen: the task's log has their message, without Python's stack, which says nothing more."""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import Any, TypeVar

import structlog

_E = TypeVar("_E", bound=Exception)
_MARK = "flink_provider_foreseen"


def foreseen(error: _E) -> _E:
    """The same error, which Airflow logs without a stack."""
    setattr(error, _MARK, True)
    # Airflow may set up its logging anew, so this is looked at each time. A task is a process of its own.
    processors = structlog.get_config()["processors"]
    if _without_stack not in processors:
        processors.insert(0, _without_stack)
    return error


def _without_stack(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor of structlog: leaves the stack of a foreseen error out."""
    given = event.get("exc_info")
    found = sys.exc_info()[1] if given is True else given[1] if isinstance(given, tuple) else given
    if getattr(found, _MARK, False):
        event["exc_info"] = (type(found), found, None)
    return event
