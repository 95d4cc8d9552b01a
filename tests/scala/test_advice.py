"""What `check` says of values by flink-scala: what a run does with them, under the names that `--declared` takes."""

from __future__ import annotations

import re

import pytest

from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.metadata.metadata import Operator
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import CaseClassType, FlinkType, MapType, OptionType, Scalar, TraversableType
from stateferry.runs.checks.declarations import Declarations
from stateferry.runs.checks.declared_keys import as_declared
from stateferry.verdict.journey import Journey, Part, Place
from stateferry.verdict.removed import finding_of
from stateferry.verdict.versions import Line

PAIR, LONG = CaseClassType((Scalar.STRING, Scalar.LONG), "scala.Tuple2"), OptionType(Scalar.LONG)
SET = TraversableType(Scalar.LONG, "implicitly[CanBuildFrom[scala.collection.immutable.Set[Long],Long,Set[Long]]]")
STRINGS = Scalar.STRING
MAIN = Operator(bytes(16), 1, 128, "main")


def advice(place: Place, type_: FlinkType, *, of_broadcast_keys: bool = False) -> str:
    scala = SerializerSnapshot("org.apache.flink.api.scala.typeutils.AnySnapshot", 1, type_, (), b"")
    finding = finding_of(Part(place, type_, (scala,), of_broadcast_keys), Journey(Line.ONE, Line.TWO))
    assert finding is not None
    assert finding.advice is not None
    return finding.advice


@pytest.mark.parametrize(
    ("type_", "options"),
    [
        (LONG, {"s": "Long?"}),
        (MapType(STRINGS, LONG), {"s": "Long?"}),
        (MapType(PAIR, Scalar.LONG), {"s.(key)": "Tuple2<String, Long>"}),
        (MapType(PAIR, LONG), {"s.(key)": "Tuple2<String, Long>", "s": "Long?"}),
    ],
)
def test_what_it_says_of_a_value_is_what_a_run_takes(type_: FlinkType, options: dict[str, str]) -> None:
    """So is what it says of a map by `Types.MAP` with parts of Scala."""
    said = advice(Place.VALUE, type_)
    assert "--to flink-2" in said
    assert re.findall(r"'operator/state(.*?)=", said) == [name.removeprefix("s") for name in options]
    assert said.endswith(f"such as {' and '.join(options.values())}")
    state = KeyedState("s", StateKind.VALUE, STRINGS, Scalar.VOID_NAMESPACE, None, type_, False, False)
    declared = Declarations(MAIN, options, None)
    as_declared(state, declared)
    assert declared.problems == []


@pytest.mark.parametrize(
    ("place", "type_"),
    [
        (Place.VALUE, MapType(SET, Scalar.LONG)),
        (Place.USER_KEY, SET),
        (Place.NAMESPACE, PAIR),
        (Place.VALUE, OptionType(LONG)),
    ],
)
def test_what_no_run_rewrites_is_to_be_moved(place: Place, type_: FlinkType) -> None:
    assert advice(place, type_).startswith("before the upgrade, have the job move this state to types of Java")


@pytest.mark.parametrize(
    ("place", "of_broadcast_keys", "named"),
    [
        (Place.KEY, False, "operator/(key)"),
        (Place.USER_KEY, False, "operator/state.(key)"),
        (Place.ELEMENT, True, "operator/state.(key)"),
        (Place.ELEMENT, False, "operator/state"),
    ],
)
def test_each_place_has_the_name_that_a_run_knows(place: Place, of_broadcast_keys: bool, named: str) -> None:
    said = advice(place, PAIR, of_broadcast_keys=of_broadcast_keys)
    assert f"--declared '{named}=...', which says" in said
    assert said.endswith("such as Tuple2<String, Long>")
