"""What the official Helm chart of Airflow allows in values: the fields that ours have, and their types.

`airflow_chart.json` has them, without words and defaults, and says from which commit of `apache/airflow` they are. From
another commit, or when our values have more fields, of the chart's `values.schema.json` there:

    python -m tests.support.airflow_chart COMMIT FILE
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

VALUES: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[2] / "docker/kubernetes/airflow-values.yaml").read_text()
)
_FILE = Path(__file__).with_name("airflow_chart.json")
_KEPT = ("enum", "pattern", "required", "type")


def schema() -> dict[str, Any]:
    """The part of the chart's schema, in which a field that isn't there is one that the chart may not have."""
    found: dict[str, Any] = closed(stored())
    return found


def stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_FILE.read_text())["schema"]
    return found


def part(of: dict[str, Any], values: Sequence[Any], whole: dict[str, Any]) -> dict[str, Any]:
    """What a schema says of values that are in one place, with what it refers to. A field that it lacks is an error."""
    if "$ref" in of:
        of = whole["definitions"][of["$ref"].rpartition("/")[2]]
    found = {name: of[name] for name in _KEPT if name in of}
    if "items" in of:
        found["items"] = part(of["items"], [one for value in values for one in value], whole)
    known, by_name = of.get("properties", {}), defaultdict[str, list[Any]](list)
    for value in values:
        for name, one in value.items() if isinstance(value, dict) else ():
            by_name[name].append(one)
    if known:
        found["properties"] = {name: part(known[name], inside, whole) for name, inside in by_name.items()}
    elif isinstance(of.get("additionalProperties"), dict):
        others = of["additionalProperties"]
        found["additionalProperties"] = part(others, [one for inside in by_name.values() for one in inside], whole)
    return found


def closed(of: Any) -> Any:
    """A schema, which lets no unknown field through."""
    if not isinstance(of, dict):
        return of
    found = {name: closed(inside) for name, inside in of.items()}
    return found | {"additionalProperties": False} if "properties" in found else found


def _main(commit: str, file: str) -> None:
    whole = json.loads(Path(file).read_text())
    made = {"origin": f"apache/airflow, chart/values.schema.json, {commit}", "schema": part(whole, [VALUES], whole)}
    _FILE.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
