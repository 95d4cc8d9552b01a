"""Flink writes the numbers 0, 1 and 10 in two ways, so what a job has under one key may be stored under two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flinkstate
from flinkstate.errors import RefusedError, StateferryError
from flinkstate.serializers.types import FlinkType, MapType, Scalar, TupleType
from flinkstate.values import scalar_codecs
from flinkstate.values.codecs import encode
from flinkstate.values.java_values import BigDecimal
from flinkstate.writing import new_savepoint
from stateferry.inventory import inventory, two_forms
from tests.support.legacy_states import FLAG, LEGACY, NEW
from tests.support.verified_runs import verified

pytestmark = pytest.mark.usefixtures("home")

PAIR = TupleType((Scalar.STRING, Scalar.BIG_INTEGER), "org.apache.flink.api.java.tuple.Tuple2")
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a job's state by state name, with the numbers of some states in their long forms."""

    def write(states: dict[str, list[Any]], *, long: set[str], key: FlinkType, user_key: FlinkType) -> str:
        made = vars(new_savepoint)["new_rows"]

        def new_rows(state: Any, *others: Any) -> Any:
            with monkeypatch.context() as patch:
                if state.name in long:
                    patch.setattr(scalar_codecs, "_SHORT_FORMS", (None,))
                return made(state, *others)

        kinds: dict[str, tuple[str, FlinkType]] = {
            LEGACY: ("VALUE", MapType(user_key, Scalar.LONG)),
            NEW: ("MAP", Scalar.LONG),
            FLAG: ("VALUE", Scalar.BOOLEAN),
        }
        new = [
            flinkstate.NewState(name, *kinds[name], user_key=user_key if name == NEW else None, entries=entries)
            for name, entries in states.items()
        ]
        target = str(tmp_path / "source")
        with monkeypatch.context() as patch:
            patch.setattr(new_savepoint, "new_rows", new_rows)
            flinkstate.write(target, "main", key, new)
        return target

    return write


def blob(key: object, **map_: int) -> dict[str, object]:
    return {"key": key, "value": map_}


def row(key: object, user_key: object, value: int) -> dict[str, object]:
    return {"key": key, "user_key": user_key, "value": value}


def flag(key: object) -> dict[str, object]:
    return {"key": key, "value": True}


KEYS = pytest.mark.parametrize(
    ("type_", "one", "other"),
    [
        (Scalar.BIG_INTEGER, 1, 7),
        (Scalar.BIG_DECIMAL, BigDecimal(10, 2), BigDecimal(11, 2)),
        (PAIR, ("a", 0), ("a", 2)),
    ],
)


@KEYS
@pytest.mark.parametrize("state", [NEW, FLAG])
def test_a_key_with_a_blob_in_one_form_and_rows_or_a_flag_in_the_other(
    type_: FlinkType, one: object, other: object, state: str, write: Write, tmp_path: Path
) -> None:
    states = {LEGACY: [blob(one, x=100, deleted=5), blob(other, y=1)]}
    states |= {NEW: [row(one, "x", 200)]} if state == NEW else {FLAG: [flag(one)]}
    source = write(states, long={state}, key=type_, user_key=Scalar.STRING)
    with pytest.raises(
        RefusedError,
        match=f"^state {LEGACY} of operator .*: key .* has other bytes there than in {state}: .* native savepoint$",
    ):
        verified(Path(source), tmp_path / "target")


@KEYS
def test_the_same_form_everywhere_is_one_key(
    type_: FlinkType, one: object, other: object, write: Write, tmp_path: Path
) -> None:
    states = {LEGACY: [blob(one, x=100, y=5), blob(other, y=1)], NEW: [row(one, "x", 200)], FLAG: []}
    source = write(states, long={LEGACY, NEW}, key=type_, user_key=Scalar.STRING)
    verified(Path(source), tmp_path / "target")


def test_rows_and_flag_of_a_key_without_a_blob_may_have_two_forms(write: Write, tmp_path: Path) -> None:
    states = {LEGACY: [blob(7, x=1)], NEW: [row(1, "x", 2)], FLAG: [flag(1)]}
    source = write(states, long={FLAG}, key=Scalar.BIG_INTEGER, user_key=Scalar.STRING)
    verified(Path(source), tmp_path / "target")


def test_keys_of_rocksdbs_own_files_are_what_their_bytes_are(write: Write, tmp_path: Path) -> None:
    states = {LEGACY: [blob(1, x=1)], NEW: [row(1, "x", 2)], FLAG: [flag(1)]}
    source = write(states, long={NEW, FLAG}, key=Scalar.BIG_INTEGER, user_key=Scalar.STRING)
    native = verified(Path(source), tmp_path / "native", operators=[], output_format="native", job="other")
    verified(Path(native.staged.path), tmp_path / "target", no_timers=True)


def test_blobs_alone_keep_their_forms(write: Write, tmp_path: Path) -> None:
    source = write({LEGACY: [blob(1, x=1)]}, long={LEGACY}, key=Scalar.BIG_INTEGER, user_key=Scalar.STRING)
    verified(Path(source), tmp_path / "target")


@KEYS
def test_a_user_key_in_a_blob_and_in_a_row_in_two_forms(
    type_: FlinkType, one: object, other: object, write: Write, tmp_path: Path
) -> None:
    states = {LEGACY: [{"key": "k", "value": [(one, 1), (other, 2)]}], NEW: [row("k", one, 3), row("l", other, 4)]}
    source = write(states, long={NEW}, key=Scalar.STRING, user_key=type_)
    with pytest.raises(
        RefusedError,
        match=f'^state {LEGACY} of operator .*: key "k", user key .* has other bytes there than in {NEW}: ',
    ):
        verified(Path(source), tmp_path / "target")


@KEYS
def test_a_user_key_of_another_key_is_another(
    type_: FlinkType, one: object, other: object, write: Write, tmp_path: Path
) -> None:
    states = {LEGACY: [{"key": "k", "value": [(one, 1), (other, 2)]}], NEW: [row("l", one, 3)]}
    verified(Path(write(states, long={NEW}, key=Scalar.STRING, user_key=type_)), tmp_path / "target")


@pytest.mark.parametrize("of_keys", [True, False])
def test_the_proof_sees_what_the_snapshot_would_let_pass(
    of_keys: bool, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if of_keys:
        states: dict[str, list[Any]] = {LEGACY: [blob(1, x=100, deleted=5)], NEW: [row(1, "x", 200)], FLAG: [flag(1)]}
        source = write(states, long={NEW, FLAG}, key=Scalar.BIG_INTEGER, user_key=Scalar.STRING)
    else:
        states = {LEGACY: [{"key": "k", "value": [(10, 1), (11, 2)]}], NEW: [row("k", 10, 3)]}
        source = write(states, long={NEW}, key=Scalar.STRING, user_key=Scalar.BIG_INTEGER)
    monkeypatch.setattr(inventory, "refuse_two_forms", lambda *_: None, raising=False)
    with pytest.raises(StateferryError, match="sample read plainly"):
        verified(Path(source), tmp_path / "target")


def test_the_scale_of_a_price_is_not_taken_for_a_number() -> None:
    """Else each price would be decoded by itself, and kept until its key group ends."""
    forms = two_forms._Forms(Scalar.BIG_DECIMAL)
    prices = [encode(Scalar.BIG_DECIMAL, BigDecimal(unscaled, 2)) for unscaled in (1234, 99, 100_000)]
    forms.meet("prices", ((b"", price, b"") for price in prices))
    assert forms._found == {}
    forms.meet("prices", iter([(b"", encode(Scalar.BIG_DECIMAL, BigDecimal(10, 0)), b"")]))
    assert len(forms._found) == 1
