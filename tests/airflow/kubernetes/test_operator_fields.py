"""The fields and types that are kept of each operator's CRDs, which each patch is checked against."""

from __future__ import annotations

import jsonschema
import pytest

from tests.airflow.kubernetes.conftest import spec_of
from tests.airflow.kubernetes.stand_in import Body, unknown
from tests.support.operator_crds import OPERATOR, WHOLE, fields_in, known, schema, versions


def test_they_are_what_the_whole_crds_say() -> None:
    (jar,) = OPERATOR.folder().glob("*.jar")
    assert fields_in(jar) == known()[WHOLE]


@pytest.mark.parametrize("version", versions())
def test_each_operator_takes_a_spec_and_refuses_what_it_does_not_know(version: str) -> None:
    of_spec: Body = schema(version)["properties"]["spec"]
    spec = spec_of()
    assert list(unknown(of_spec, spec, "spec")) == []
    jsonschema.Draft7Validator(of_spec).validate(spec)
    spec["job"]["paralelism"] = 2
    assert len(list(unknown(of_spec, spec, "spec"))) == 1
    spec = spec_of()
    spec["job"]["parallelism"] = "two"
    with pytest.raises(jsonschema.ValidationError, match="'two' is not of type 'integer'"):
        jsonschema.Draft7Validator(of_spec).validate(spec)
