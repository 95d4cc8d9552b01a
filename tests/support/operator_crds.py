"""The CRDs of the Flink Kubernetes Operator: what a FlinkDeployment may hold, as the API server knows it.

Those of 1.10.0 are in a jar on Maven. Those of other versions are used if ``STATEFERRY_OPERATOR_CRDS`` names a folder
that has a folder with the name of each version, with the files of the operator's `helm/…/crds`.
"""

from __future__ import annotations

import os
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.fetched_jars import Jars

_MAVEN = "1.10.0"
_HERE = Path(__file__).parent
OPERATOR = Jars(
    f"flink-kubernetes-operator-{_MAVEN}",
    _HERE / f"jars-flink-kubernetes-operator-{_MAVEN}.sha256",
    alone=(f"org.apache.flink:flink-kubernetes-operator-api:{_MAVEN}",),
)


def _others() -> Path | None:
    named = os.environ.get("STATEFERRY_OPERATOR_CRDS")
    return Path(named) if named else None


def versions() -> list[str]:
    """The versions whose CRDs are at hand."""
    others = _others()
    return [_MAVEN, *sorted(one.name for one in others.iterdir() if one.name != _MAVEN)] if others else [_MAVEN]


@cache
def schema(version: str, plural: str = "flinkdeployments") -> dict[str, Any]:
    """The OpenAPI schema of the resource."""
    name = f"{plural}.flink.apache.org-v1.yml"
    if version == _MAVEN:
        (jar,) = OPERATOR.folder().glob("*.jar")
        with zipfile.ZipFile(jar) as opened:
            text = opened.read(f"META-INF/fabric8/{name}").decode()
    else:
        text = (Path(str(_others())) / version / name).read_text()
    # Half a megabyte, which libyaml reads in a tenth of the time.
    loaded = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (found,) = (one for one in loaded["spec"]["versions"] if one["name"] == "v1beta1")
    of_version: dict[str, Any] = found["schema"]["openAPIV3Schema"]
    return of_version
