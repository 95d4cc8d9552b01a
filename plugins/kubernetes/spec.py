"""Specs as JSON: merge patches (RFC 7386), what they change, and options of Flink in them.

`flinkConfiguration` is flat in older operators (``a.b.c: value``); newer ones also take nested objects. An option is
changed where it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

Spec = Mapping[str, Any]
_ABSENT = object()


def merged(spec: Spec, patch: Spec) -> dict[str, Any]:
    """The spec with the merge patch applied; neither is changed."""
    result = dict(deepcopy(spec))
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            before = result.get(name)
            result[name] = merged(before if isinstance(before, Mapping) else {}, value)
        else:
            result[name] = deepcopy(value)
    return result


def difference(before: Spec, after: Spec) -> dict[str, Any]:
    """The merge patch that makes the one of the other."""
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name, _ABSENT)
        if old == value:
            continue
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        patch[name] = difference(old, value) if both else deepcopy(value)
    return patch


def is_applied(spec: Spec, patch: Spec) -> bool:
    """Whether the spec already is as the patch would make it."""
    return merged(spec, patch) == merged(spec, {})


def changes(before: Spec, after: Spec, path: str = "") -> Iterator[tuple[str, str, str]]:
    """What differs, for people: the field, its old and its new value; a field that is not there is `–`."""
    for name in sorted({*before, *after}):
        old, new = before.get(name, _ABSENT), after.get(name, _ABSENT)
        if old == new:
            continue
        where = f"{path}{name}"
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from changes(old, new, f"{where}.")
        else:
            yield where, _shown(old), _shown(new)


def _shown(value: object) -> str:
    if value is _ABSENT:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def option(spec: Spec, name: str) -> str | None:
    """The option of Flink in the spec's `flinkConfiguration`, flat or nested."""
    found = _find(spec.get("flinkConfiguration") or {}, name)
    return None if found is None else str(found).lower() if isinstance(found, bool) else str(found)


def _find(values: Spec, name: str) -> object:
    if name in values and not isinstance(values[name], Mapping):
        return values[name]
    for first, rest in _splits(name):
        if isinstance(values.get(first), Mapping) and (found := _find(values[first], rest)) is not None:
            return found
    return None


def with_options(options: Mapping[str, str | None], spec: Spec) -> dict[str, Any]:
    """The merge patch of a spec that sets these options, each where it is already; None removes one."""
    patch: dict[str, Any] = {}
    for name, value in options.items():
        patch = merged_patches(patch, _placed(spec.get("flinkConfiguration") or {}, name, value))
    return {"flinkConfiguration": patch}


def _placed(values: Spec, name: str, value: str | None) -> dict[str, Any]:
    for first, rest in _splits(name):
        if name not in values and isinstance(values.get(first), Mapping):
            return {first: _placed(values[first], rest, value)}
    return {name: value}


def merged_patches(first: Spec, second: Spec) -> dict[str, Any]:
    """One patch that does what both do; `merged` would take a removal for an absence."""
    result = dict(first)
    for name, value in second.items():
        before = result.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            result[name] = merged_patches(before, value)
        else:
            result[name] = value
    return result


def _splits(name: str) -> Iterator[tuple[str, str]]:
    parts = name.split(".")
    for number in range(1, len(parts)):
        yield ".".join(parts[:number]), ".".join(parts[number:])
