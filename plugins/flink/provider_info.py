"""What a distribution tells Airflow about its connection types and links, before Airflow imports anything else."""

from __future__ import annotations

from typing import Any

_PACKAGE = "stateferry.airflow.flink"
# Another distribution may call its own parts Apache Flink.
_NAME = "Apache Flink (REST)"


def provider_info() -> dict[str, Any]:
    """What the distribution has for Airflow, in the form that Airflow expects."""
    return {
        "package-name": "stateferry",
        "name": "Stateferry",
        "description": "Apache Flink over REST, and the migration of the state of Flink jobs.",
        "integrations": [
            {"integration-name": _NAME, "external-doc-url": "https://flink.apache.org", "tags": ["apache"]}
        ],
        "hooks": _modules("hook"),
        "operators": _modules("operators"),
        "sensors": _modules("sensors"),
        "triggers": _modules("triggers"),
        "notifications": ["stateferry.airflow.dag_runs.notices.Webhook"],
        "connection-types": [
            {
                "connection-type": "flink",
                "hook-class-name": f"{_PACKAGE}.hook.FlinkHook",
                "hook-name": _NAME,
                "ui-field-behaviour": {
                    "hidden-fields": [],
                    "relabeling": {"schema": "http or https", "host": "JobManager's host", "port": "REST port"},
                    "placeholders": {"schema": "http", "host": "localhost", "port": "8081"},
                },
                "conn-fields": _FIELDS,
            }
        ],
        "extra-links": [f"{_PACKAGE}.links.FlinkJobLink"],
    }


def _modules(name: str) -> list[dict[str, Any]]:
    return [{"integration-name": _NAME, "python-modules": [f"{_PACKAGE}.{name}"]}]


_FIELDS = {
    "token": {
        "label": "Bearer token",
        "description": "Used instead of login and password.",
        "schema": {"type": ["string", "null"], "format": "password"},
    },
    "verify": {
        "label": "Check the certificate",
        "description": "For https. If it is false, every certificate is accepted.",
        "schema": {"type": ["boolean", "null"], "default": True},
    },
    "ca_file": {
        "label": "CA file",
        "description": "A file on Airflow's machines with the certificates to trust. Empty: those of the system.",
        "schema": {"type": ["string", "null"]},
    },
    "path": {
        "label": "Path",
        "description": "The path that a proxy puts before Flink's own paths.",
        "schema": {"type": ["string", "null"]},
    },
    "ui_url": {
        "label": "Web interface",
        "description": "The address of Flink's web interface, if it is another one.",
        "schema": {"type": ["string", "null"]},
    },
    "patience": {
        "label": "Patience (seconds)",
        "description": "For so long a request is repeated if the JobManager doesn't answer.",
        "schema": {"type": ["number", "null"], "default": 300},
    },
    "answer_timeout": {
        "label": "Answer (seconds)",
        "description": "The time that the JobManager may take for one answer.",
        "schema": {"type": ["number", "null"], "default": 30},
    },
}
