"""What the Flink Kubernetes Operator's CRDs allow in a spec, as its API server knows it.

The whole CRDs of 1.10.0 are in a jar on Maven. Of that version and later ones `operator_fields.json` has the fields and
their types, without what a pod may have. From the jars of the operator's image, each in a folder of its own:

    python -m tests.support.operator_crds FOLDER...
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.fetched_jars import Jars

WHOLE = "1.10.0"
_HERE = Path(__file__).parent
_FIELDS = _HERE / "operator_fields.json"
OPERATOR = Jars(
    f"flink-kubernetes-operator-{WHOLE}",
    _HERE / f"jars-flink-kubernetes-operator-{WHOLE}.sha256",
    alone=(f"org.apache.flink:flink-kubernetes-operator-api:{WHOLE}",),
)
_PLURALS = ("flinkdeployments", "flinksessionjobs", "flinkstatesnapshots")
_KEPT = ("additionalProperties", "enum", "items", "properties", "required", "type", "x-kubernetes-int-or-string")
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def versions() -> list[str]:
    """The versions whose fields are known."""
    return list(known())


@cache
def schema(version: str, plural: str = "flinkdeployments") -> dict[str, Any]:
    """The OpenAPI schema of the resource: all of 1.10.0, else that of its spec, where a pod may have anything."""
    if version != WHOLE:
        return {"properties": {"spec": known()[version][plural]}}
    (jar,) = OPERATOR.folder().glob("*.jar")
    return _schema_in(jar, plural)


def fields_in(jar: Path) -> dict[str, Any]:
    """The fields and types that the CRDs in the jar allow, by resource."""
    return {plural: _fields(_schema_in(jar, plural)["properties"]["spec"]) for plural in _PLURALS}


def _fields(of: Any) -> Any:
    """A schema, without words, defaults and pods."""
    if not isinstance(of, dict):
        return of
    found = {name: of[name] for name in _KEPT if name in of}
    for name in ("additionalProperties", "items"):
        if name in found:
            found[name] = _fields(found[name])
    if "properties" in found:
        inside = found["properties"].items()
        found["properties"] = {name: _ANYTHING if name == "podTemplate" else _fields(one) for name, one in inside}
    return found | {name: True for name in ("x-kubernetes-preserve-unknown-fields",) if of.get(name)}


@cache
def known() -> dict[str, Any]:
    """The fields and types, by version and resource."""
    known: dict[str, Any] = json.loads(_FIELDS.read_text())
    return known


def _schema_in(jar: Path, plural: str) -> dict[str, Any]:
    with zipfile.ZipFile(jar) as opened:
        text = opened.read(f"META-INF/fabric8/{plural}.flink.apache.org-v1.yml").decode()
    # Half a megabyte, which libyaml reads in a tenth of the time.
    loaded = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (found,) = (one for one in loaded["spec"]["versions"] if one["name"] == "v1beta1")
    of_version: dict[str, Any] = found["schema"]["openAPIV3Schema"]
    return of_version


def _main(folders: Sequence[str]) -> None:
    found = dict(known()) if _FIELDS.exists() else {}
    for folder in folders:
        (jar,) = Path(folder).glob("flink-kubernetes-operator-*-shaded.jar")
        found[re.findall(r"operator-(.*)-shaded", jar.name)[0]] = fields_in(jar)
    by_number = sorted(found.items(), key=lambda one: [int(part) for part in one[0].split(".")])
    rows = [f"{json.dumps(version)}: {json.dumps(fields, sort_keys=True)}" for version, fields in by_number]
    _FIELDS.write_text("{" + ",\n".join(rows) + "}\n")


if __name__ == "__main__":
    _main(sys.argv[1:])
