"""A state with values of flink-scala, and keys by Kryo of the job's own classes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.types import KryoType, OptionType, Scalar, ScalaType
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.runs.checks.other_kryo import with_other_kryo


def test_the_job_s_classes_are_known_in_the_keys_of_a_state_with_values_of_scala() -> None:
    key = KryoType("com.acme.Id")
    state = KeyedState("s", StateKind.VALUE, key, Scalar.VOID_NAMESPACE, None, OptionType(Scalar.LONG), False, False)
    operator: Any = SimpleNamespace(id=b"\1", label="main", subtasks=())
    source: Any = SimpleNamespace(
        metadata=SimpleNamespace(version=4, operators=(operator,)),
        operator=lambda _: operator,
        keyed_operators=lambda: [operator],
        keyed_states=lambda _: [state],
    )
    classes = JobClasses("d", {})
    plan: Any = SimpleNamespace(
        to="flink-2", declared={"main/s": "Long?"}, all_by_kryo_5=False, keep_legacy=False, lazy=False,
        job_classes=classes, before=None,
    )  # fmt: skip
    changes = OperatorChanges(operator, 8, {"s": state})
    by_kryo = with_other_kryo(plan, source, {operator.id: changes}, [])[operator.id].by_kryo["s"]
    assert isinstance(by_kryo.key, KryoType)
    assert by_kryo.key.classes is classes
    assert isinstance(by_kryo.value, ScalaType)
