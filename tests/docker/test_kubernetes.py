"""The files for Kubernetes: a pod is what Kubernetes calls one, and what belongs together has the same names.

Kubernetes' own types are those of the pod template in the CRD of the Flink Kubernetes Operator. The values are held
against the chart's own schema too if ``STATEFERRY_AIRFLOW_CHART`` names the chart's folder.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support.operator_crds import schema

HOUSE = Path(__file__).parents[2]
FOLDER = HOUSE / "docker/kubernetes"
CHART = os.environ.get("STATEFERRY_AIRFLOW_CHART")
VALUES: dict[str, Any] = yaml.safe_load((FOLDER / "airflow-values.yaml").read_text())
POD: dict[str, Any] = yaml.safe_load((FOLDER / "spark-pod.yaml").read_text())
SETTINGS = dict(line.split(None, 1) for line in (FOLDER / "spark-defaults.conf").read_text().splitlines()
                if line and not line.startswith("#"))  # fmt: skip


def closed(of: Any) -> Any:
    """The schema, which lets no unknown field through."""
    if isinstance(of, dict):
        found = {name: closed(part) for name, part in of.items()}
        return found | {"additionalProperties": False} if "properties" in found else found
    return of


@pytest.fixture(scope="module")
def pod_spec() -> dict[str, Any]:
    found: dict[str, Any] = schema("1.10.0")["properties"]["spec"]["properties"]["podTemplate"]["properties"]["spec"]
    spec: dict[str, Any] = closed(found)
    return spec


def test_the_pod_template_is_a_pod(pod_spec: dict[str, Any]) -> None:
    assert (POD["apiVersion"], POD["kind"]) == ("v1", "Pod")
    jsonschema.validate(POD["spec"], pod_spec)
    with pytest.raises(jsonschema.ValidationError, match="mounts"):
        jsonschema.validate({"containers": [{"name": "spark", "mounts": []}]}, pod_spec)


def test_the_values_have_what_all_of_airflows_pods_get(pod_spec: dict[str, Any]) -> None:
    container = {"name": "airflow", "env": VALUES["env"], "volumeMounts": VALUES["volumeMounts"]}
    jsonschema.validate({"containers": [container], "volumes": VALUES["volumes"]}, pod_spec)
    assert {one["name"] for one in VALUES["volumeMounts"]} == {one["name"] for one in VALUES["volumes"]}
    assert all(one.keys() == {"envName", "secretName", "secretKey"} for one in VALUES["secret"])
    (connection,) = [one["value"] for one in VALUES["env"] if one["name"] == "AIRFLOW_CONN_SPARK_DEFAULT"]
    assert json.loads(connection)["extra"] == {"deploy-mode": "cluster", "namespace": "stateferry"}


@pytest.mark.skipif(CHART is None, reason="STATEFERRY_AIRFLOW_CHART names no folder with Airflow's chart")
def test_the_chart_takes_the_values() -> None:
    jsonschema.validate(VALUES, json.loads((Path(str(CHART)) / "values.schema.json").read_text()))


def test_airflow_and_spark_have_the_same_folders_names_and_catalog() -> None:
    (container,) = POD["spec"]["containers"]
    folders = {one["mountPath"]: one["name"] for one in VALUES["volumeMounts"]}
    claims = {one["name"]: one.get("persistentVolumeClaim") for one in [*VALUES["volumes"], *POD["spec"]["volumes"]]}
    assert claims["state"] == {"claimName": "stateferry"}
    assert {"name": folders["/data"], "mountPath": "/data"} in container["volumeMounts"]
    assert all(one in VALUES["env"] for one in container["env"] if one["name"].startswith("STATEFERRY_"))
    (secret,) = VALUES["secret"]
    (password,) = [one["valueFrom"]["secretKeyRef"] for one in container["env"] if one["name"] == secret["envName"]]
    assert password == {"name": secret["secretName"], "key": secret["secretKey"]}
    assert {"name": "AIRFLOW__CORE__EXECUTOR", "value": VALUES["executor"]} in VALUES["env"]
    assert VALUES["airflowVersion"] == _pinned("apache-airflow")
    for role in ("driver", "executor"):
        file = Path(SETTINGS[f"spark.kubernetes.{role}.podTemplateFile"])
        assert folders[str(file.parent)] == "spark"
        assert (FOLDER / file.name).exists()
        assert SETTINGS[f"spark.kubernetes.{role}.podTemplateContainerName"] == container["name"]


def test_the_account_of_the_pods_is_there_and_may_make_pods() -> None:
    account, role, binding = yaml.safe_load_all((FOLDER / "spark.yaml").read_text())
    assert account["metadata"]["name"] == POD["spec"]["serviceAccountName"]
    assert account["metadata"]["name"] == SETTINGS["spark.kubernetes.authenticate.driver.serviceAccountName"]
    assert account["metadata"]["name"] in [one["name"] for one in binding["subjects"]]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert "pods" in role["rules"][0]["resources"]


def _pinned(package: str) -> str:
    found = re.search(rf"^{package}==(.+)$", (HOUSE / "constraints/airflow.txt").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]
