"""The files for Kubernetes: a pod is what Kubernetes calls one, and what belongs together has the same names.

Kubernetes' own types are those of the pod template in the CRD of the Flink Kubernetes Operator, and the values' own
those of the chart's schema. What the chart does without values is written down here, as its ``values.yaml`` and
``_helpers.yaml`` say it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.docker.test_sbom import bill
from tests.support import airflow_chart
from tests.support.airflow_chart import VALUES, closed
from tests.support.operator_crds import schema

HOUSE = Path(__file__).parents[2]
FOLDER = HOUSE / "docker/kubernetes"
POD: dict[str, Any] = yaml.safe_load((FOLDER / "spark-pod.yaml").read_text())
AIRFLOW_IMAGE = (HOUSE / "docker/airflow.Dockerfile").read_text()
SETTINGS = dict(line.split(None, 1) for line in (FOLDER / "spark-defaults.conf").read_text().splitlines()
                if line and not line.startswith("#"))  # fmt: skip

# The variables that the chart itself gives to all containers of Airflow.
_SET_BY_THE_CHART = {
    *("AIRFLOW_HOME", "AIRFLOW_CONN_AIRFLOW_DB", "AIRFLOW__CORE__FERNET_KEY", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"),
    *("AIRFLOW__API__SECRET_KEY", "AIRFLOW__API_AUTH__JWT_SECRET"),
}
# Executors that aren't Airflow's own, and the providers that have them.
_OF_PROVIDERS = {
    "CeleryExecutor": "apache-airflow-providers-celery",
    "KubernetesExecutor": "apache-airflow-providers-cncf-kubernetes",
}
# What its probes call, what removes old logs beside these, and which login it takes.
_ENTRY_POINT, _LOG_REMOVER, _LOGGING = "/entrypoint", "/clean-logs", ("scheduler", "triggerer", "dagProcessor")
_LOGIN = "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager"


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
    of_the_pod = {"volumes": VALUES["volumes"], "securityContext": VALUES["securityContexts"]["pod"]}
    jsonschema.validate({"containers": [container]} | of_the_pod, pod_spec)
    assert {one["name"] for one in VALUES["volumeMounts"]} == {one["name"] for one in VALUES["volumes"]}
    assert all(one.keys() == {"envName", "secretName", "secretKey"} for one in VALUES["secret"])
    (connection,) = [one["value"] for one in VALUES["env"] if one["name"] == "AIRFLOW_CONN_SPARK_DEFAULT"]
    assert json.loads(connection)["extra"] == {"deploy-mode": "cluster", "namespace": "stateferry"}


def test_the_chart_takes_the_values() -> None:
    jsonschema.validate(VALUES, airflow_chart.schema())


@pytest.mark.parametrize(
    "wrong",
    [
        {"executer": "KubernetesExecutor"},
        {"executor": "kubernetes"},
        {"scheduler": {"logGroomerSideCar": {"enabled": False}}},
        {"statsd": {"enabled": "no"}},
        {"env": [{"name": "STATEFERRY_HOME", "value": 1}]},
        {"secret": [{"name": "PGPASSWORD", "secretName": "catalog"}]},
        {"config": {"core": {"load_examples": None}}},
    ],
    ids=json.dumps,
)
def test_the_charts_types_refuse_what_the_chart_does_not_know(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(VALUES | wrong, airflow_chart.schema())


def test_the_charts_types_are_those_of_the_values_fields_alone() -> None:
    assert airflow_chart.part(airflow_chart.stored(), [VALUES], {}) == airflow_chart.stored()


def test_a_part_of_a_schema_has_what_it_refers_to_and_no_words() -> None:
    name = {"type": "string", "description": "what it is called", "default": ""}
    volume = {"type": "object", "properties": {"name": name, "nfs": {"type": "object"}}, "required": ["name"]}
    of = {"properties": {"volumes": {"items": {"$ref": "#/definitions/volume"}}, "other": name}, "title": "values"}
    found = airflow_chart.part(of, [{"volumes": [{"name": "state"}]}], {"definitions": {"volume": volume}})
    field = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    assert found == {"properties": {"volumes": {"items": field}}}
    with pytest.raises(KeyError, match="claim"):
        airflow_chart.part(of, [{"volumes": [{"claim": "state"}]}], {"definitions": {"volume": volume}})


def test_no_variable_is_there_twice() -> None:
    names = [*(one["name"] for one in VALUES["env"]), *(one["envName"] for one in VALUES["secret"])]
    assert len(names) == len(set(names))
    assert _SET_BY_THE_CHART.isdisjoint(names)


def test_no_variable_of_the_image_wins_over_what_the_chart_is_told() -> None:
    of_the_image = dict(re.findall(r"(AIRFLOW__[A-Z_]+)=(\S+)", AIRFLOW_IMAGE))
    there = of_the_image | {one["name"]: one["value"] for one in VALUES["env"]}
    assert there["AIRFLOW__CORE__EXECUTOR"] == VALUES["executor"]
    assert there["AIRFLOW__CORE__DAGS_FOLDER"] == VALUES["airflowHome"] + "/dags"
    assert f"COPY dags {VALUES['airflowHome']}/dags\n" in AIRFLOW_IMAGE
    told = {f"AIRFLOW__{section}__{name}".upper() for section, those in VALUES["config"].items() for name in those}
    assert told.isdisjoint(there)


def test_the_image_has_the_provider_of_the_executor() -> None:
    needed = {_OF_PROVIDERS[one] for one in VALUES["executor"].split(",") if one != "LocalExecutor"}
    assert needed <= {one["name"] for one in bill("airflow")["components"]}


def test_the_image_has_what_the_charts_probes_call() -> None:
    (script,) = re.findall(rf"ln -s (\S+) {_ENTRY_POINT}$", AIRFLOW_IMAGE, re.MULTILINE)
    assert f"COPY docker/entrypoint.sh {script}\n" in (HOUSE / "docker/spark.Dockerfile").read_text()


def test_the_chart_starts_nothing_that_the_image_does_not_have() -> None:
    assert "Celery" not in VALUES["executor"], "its workers have a remover of old logs, too"
    removers = [part for part in _LOGGING if VALUES.get(part, {}).get("logGroomerSidecar", {}).get("enabled", True)]
    assert removers == [] or _LOG_REMOVER in AIRFLOW_IMAGE
    assert not VALUES.get("statsd", {}).get("enabled", True) or _pinned("statsd")
    login = VALUES.get("config", {}).get("core", {}).get("auth_manager", _LOGIN)
    assert login.startswith("airflow.api_fastapi.") or _pinned("apache-airflow-providers-fab")
    # It calls `airflow users`, which only that login has.
    assert VALUES.get("createUserJob", {}).get("enabled", True) == (login == _LOGIN)


def test_the_passwords_are_where_the_images_user_may_write() -> None:
    file = Path(VALUES["config"]["core"]["simple_auth_manager_passwords_file"])
    assert f"install -d -o ferry -g ferry {file.parent} " in AIRFLOW_IMAGE


def test_the_pods_of_airflow_and_spark_have_one_user_and_group() -> None:
    assert VALUES["securityContexts"]["pod"] == POD["spec"]["securityContext"]


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


def test_the_page_makes_what_the_files_expect() -> None:
    page = (HOUSE / "docs/deploy.md").read_text()
    (connection,) = [one["value"] for one in VALUES["env"] if one["name"] == "AIRFLOW_CONN_SPARK_DEFAULT"]
    namespace = json.loads(connection)["extra"]["namespace"]
    (secret,) = VALUES["secret"]
    (settings,) = [one["configMap"]["name"] for one in VALUES["volumes"] if "configMap" in one]
    assert f"\nkubectl create namespace {namespace}\n" in page
    made = f"kubectl create secret generic {secret['secretName']} -n {namespace} --from-file {secret['secretKey']}="
    assert f"\n{made}" in page
    assert f"\nkubectl create configmap {settings} -n {namespace} " in page


def test_the_account_of_the_pods_is_there_and_may_make_pods() -> None:
    account, role, binding = yaml.safe_load_all((FOLDER / "spark.yaml").read_text())
    assert account["metadata"]["name"] == POD["spec"]["serviceAccountName"]
    assert account["metadata"]["name"] == SETTINGS["spark.kubernetes.authenticate.driver.serviceAccountName"]
    assert account["metadata"]["name"] in [one["name"] for one in binding["subjects"]]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert "pods" in role["rules"][0]["resources"]


def _pinned(package: str) -> str | None:
    found = re.search(rf"^{package}==(.+)$", (HOUSE / "constraints/airflow.txt").read_text(), re.MULTILINE)
    return found[1] if found else None
