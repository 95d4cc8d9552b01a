"""What a distribution tells Airflow about its connection types and links, before Airflow imports anything else."""

from __future__ import annotations

from typing import Any

_PACKAGE = "flink_provider"


def provider_info() -> dict[str, Any]:
    """The distribution's connection type and links, in the form that Airflow expects."""
    return {
        "package-name": "stateferry",
        "name": "Stateferry",
        "description": "Apache Flink over REST, and the migration of its jobs' state.",
        "connection-types": [
            {
                "connection-type": "flink",
                "hook-class-name": f"{_PACKAGE}.hook.FlinkHook",
                "hook-name": "Apache Flink",
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


_FIELDS = {
    "token": {
        "label": "Bearer token",
        "description": "Instead of login and password.",
        "schema": {"type": ["string", "null"], "format": "password"},
    },
    "verify": {
        "label": "Check the certificate",
        "description": "With https: false takes whatever certificate is shown.",
        "schema": {"type": ["boolean", "null"], "default": True},
    },
    "ca_file": {
        "label": "CA file",
        "description": "Certificates to trust, as a file on Airflow's machines. Left out: those of the system.",
        "schema": {"type": ["string", "null"]},
    },
    "path": {
        "label": "Path",
        "description": "What comes before Flink's own paths, behind a proxy.",
        "schema": {"type": ["string", "null"]},
    },
    "ui_url": {
        "label": "Web interface",
        "description": "Where people find Flink's web interface, if not at the same address.",
        "schema": {"type": ["string", "null"]},
    },
    "patience": {
        "label": "Patience (seconds)",
        "description": "How long a request is repeated while the JobManager doesn't answer.",
        "schema": {"type": ["number", "null"], "default": 300},
    },
    "answer_timeout": {
        "label": "Answer (seconds)",
        "description": "How long the JobManager may take for one answer.",
        "schema": {"type": ["number", "null"], "default": 30},
    },
}
