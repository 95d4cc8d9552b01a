"""What a session that spark-submit has started passes on."""

from __future__ import annotations

import pytest

from stateferry.spark_jobs.session import environment_of_stores


def test_executors_are_told_where_a_store_is_and_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, f"the {name}")
    assert environment_of_stores() == {
        "AWS_ENDPOINT_URL": "the AWS_ENDPOINT_URL",
        "AWS_REGION": "the AWS_REGION",
    }
