"""Compiles every kernel into numba's cache: `python -m stateferry.warm`, once after an installation.

It uses every kernel a little, because what numba compiles depends on the types of the arrays that callers pass.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from flinkstate.classfiles.class_file import ClassFile, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.columns import column_decoder
from flinkstate.errors import RefusedError
from flinkstate.hashing.java_hash import hash_codes
from flinkstate.keyed import row_sum_kernels
from flinkstate.keyed.kryo_parts import ends_of_parts
from flinkstate.keyed.stored_maps import whole_maps
from flinkstate.kryo.to_flink_maps import KryoReader
from flinkstate.kryo.to_other_kryo import Recoder
from flinkstate.reading.batches import read_batches
from flinkstate.reading.reader import Savepoint
from flinkstate.rocksdb import use_every_kernel
from flinkstate.scala.programs import compile_scala
from flinkstate.scala.rewriting import write_values
from flinkstate.serializers import walker
from flinkstate.serializers.built_snapshots import kryo_snapshot
from flinkstate.serializers.programs import compile_type
from flinkstate.serializers.types import (
    ArrayType,
    FlinkType,
    KryoMapType,
    KryoRegistration,
    KryoType,
    ListType,
    MapType,
    NullableType,
    OptionType,
    PojoField,
    PojoType,
    PrimitiveArrayType,
    Scalar,
    ScalaType,
    SetType,
)
from flinkstate.values.codecs import encode
from flinkstate.values.java_values import BigDecimal, LocalTime, PojoValue
from flinkstate.writing.new_savepoint import NewState, write_new
from stateferry.basics.compiled import kernels
from stateferry.basics.durations import MAX_MILLISECONDS
from stateferry.changes import kernels as row_kernels
from stateferry.demo import (
    IS_MIGRATED_STATE,
    MAIN_STATE,
    NEW_MAIN_STATE,
    OPERATOR,
    DemoState,
    write_demo_savepoint,
)
from stateferry.demo_maps import Declared
from stateferry.look.balance.advice import Span, advise
from stateferry.look.balance.key_weights import measure_keys
from stateferry.look.survey import survey
from stateferry.proof.expected.content import Account

_KEYS: tuple[tuple[FlinkType, Any], ...] = (
    (Scalar.BOOLEAN, True),
    (Scalar.SHORT, 1),
    (Scalar.INTEGER, 1),
    (Scalar.LONG, 1),
    (Scalar.DOUBLE, 1.0),
    (Scalar.STRING, "a"),
    (Scalar.BIG_INTEGER, 10**30),
    (ListType(Scalar.STRING), ["a"]),
)
_VALUES: tuple[tuple[FlinkType, Any], ...] = (
    *_KEYS,
    (Scalar.BYTE, 1),
    (Scalar.FLOAT, 1.0),
    (Scalar.CHARACTER, "a"),
    (Scalar.STRING, "日本"),
    (Scalar.BIG_DECIMAL, BigDecimal(123, 2)),
    (Scalar.LOCAL_TIME, LocalTime(1, 2, 3, 4)),
    (PrimitiveArrayType(Scalar.BYTE), b"a"),
    (PrimitiveArrayType(Scalar.LONG), [1]),
    (ArrayType(Scalar.LONG, "java.lang.Long"), [1, None]),
    (SetType(Scalar.STRING), ["a"]),
    (MapType(Scalar.STRING, Scalar.LONG), [("a", 1), ("b", None)]),
    (PojoType("Point", (PojoField("x", Scalar.LONG),)), PojoValue("Point", {"x": 1})),
)
_DEMO = DemoState(keys=100, entries=2, migrated=0.5, ttl=10**9, now=10**12, parallelism=2, max_parallelism=128, seed=1)


def warm() -> set[str]:
    """Uses all kernels with the array types that real runs pass, and returns their names.

    Two processes compile, the parts that take longest first: what two parts need is compiled twice. The runs at the
    end need them all.
    """
    parts = (_use_those_that_read_kryo, _use_others, _use_those_of_both_kryos, _use_those_of_rocksdb)
    with ProcessPoolExecutor(2) as processes:
        used = set().union(*(part.result() for part in [processes.submit(part) for part in parts]))
    with tempfile.TemporaryDirectory() as folder:
        _migrate_each(folder, replace(_DEMO, declared=Declared.KRYO_2))
        ageless = Savepoint.open(f"{folder}/ageless")
        read_all(ageless, decoded=False)
        _refuse_maps(ageless)
    return used | _used()


def _use_those_that_read_kryo() -> set[str]:
    data, starts = np.zeros(64, np.uint8), np.zeros(1, np.int64)
    uuid = KryoType("java.util.UUID")
    whole_maps(MapType(Scalar.STRING, uuid), data, starts, starts + 4)
    ends_of_parts(uuid, data, starts, starts + 4, five=True, strict=False)
    part = ClassFile("a.A", "java.lang.Object", (), 0, (Member("m", "Ljava/util/Map;", 0),), None, False)
    objects = KryoType("a.A", registrations=(KryoRegistration("a.A"),), classes=JobClasses("", {"a.A": part}))
    KryoReader(objects, MapType(Scalar.STRING, Scalar.LONG), field="m").without_maps(data, starts + 4, starts + 5)
    return _used()


def _use_those_of_both_kryos() -> set[str]:
    data, starts = np.zeros(64, np.uint8), np.zeros(1, np.int64)
    # A null by Kryo 2, which any map's serializer writes alike, for Kryo 5.
    recoder = Recoder(compile_type(kryo_snapshot("java.util.HashMap").type))
    recoder.recode(data, starts, starts + 1, starts)
    recoder.parts(data, starts, starts + 1)
    return _used()


def _use_those_of_rocksdb() -> set[str]:
    use_every_kernel.use_kernels()
    return _used()


def _use_others() -> set[str]:
    with tempfile.TemporaryDirectory() as folder:
        source, larger = f"{folder}/source", f"{folder}/larger"
        write_demo_savepoint(source, _DEMO)
        write_demo_savepoint(larger, replace(_DEMO, max_parallelism=256))
        for name in (source, larger):
            read_all(Savepoint.open(name))
        _advise(Savepoint.open(source))
        # Only strings that aren't ASCII reach the loop for strings of all kinds.
        for key, pair in ((Scalar.INTEGER, (1, 2)), (Scalar.LONG, (1, 2)), (Scalar.STRING, ("日", "本"))):
            # With one key group, no key is misplaced.
            entries = [{"key": name, "value": value} for value, name in enumerate(pair)]
            write_new(f"{folder}/{key.name}", "pair", key, [NewState("s", "VALUE", Scalar.LONG, entries=entries)], 1, 1)
            read_all(Savepoint.open(f"{folder}/{key.name}"))
        _migrate_each(folder, _DEMO)
    numbers = np.zeros(1, np.int64)
    row_sum_kernels.add_rows(np.zeros(16, np.uint8), numbers, numbers, np.uint64(1), np.zeros(2, np.uint64))
    Account.of(1).take_off(np.zeros(1, np.int64), np.zeros(1, np.uint64), np.ones(1, np.bool_))
    _call_the_rest()
    _write_a_none_of_scala()
    for type_, value in _VALUES:
        column_decoder.decode(type_, *_as_column(type_, value))
        walker.skip_each(type_, *_as_column(type_, value))
    column_decoder.decode_list_state(Scalar.STRING, *_as_column(Scalar.STRING, "a"))
    for type_, value in _KEYS:
        hash_codes(type_, *_as_column(type_, value))
    return _used()


def _migrate_each(folder: str, aging: DemoState) -> None:
    for name, demo in (("aging", aging), ("ageless", replace(aging, ttl=None))):
        write_demo_savepoint(f"{folder}/{name}", demo)
        if find_spec("pyiceberg") is not None:
            migrate(f"{folder}/{name}", folder, demo.now, demo.ttl)


def _write_a_none_of_scala() -> None:
    one = np.zeros(1, np.int64)
    option = ScalaType.of(OptionType(Scalar.LONG), NullableType(Scalar.LONG, 0))
    write_values(compile_scala(option), np.zeros(64, np.uint8), one, one + 1, one, np.zeros(1, np.bool_))


def migrate(source: str, folder: str, now: int, ttl: int | None) -> None:
    """Does two real runs, of which the second finds the tables of the first and changes max parallelism, and goes back.

    Then a validation with another expectation finds differences, and looks for samples of them.
    """
    # Without Iceberg these can't be imported; then there are no runs.
    from stateferry.runs.catalog.publications import Control
    from stateferry.runs.checks.plan_check import planned, resolve
    from stateferry.runs.checks.resolved_plan import ResolvedPlan
    from stateferry.runs.record.runs import Run
    from stateferry.steps import validate
    from stateferry.steps.pipeline import Pipeline
    from stateferry.steps.run_at_work import RunAtWork
    from stateferry.steps.workers import InProcess

    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    workers, opened, job = InProcess(), Savepoint.open(source), Path(source).name
    state = {"legacy": MAIN_STATE, "new": NEW_MAIN_STATE, "flag": IS_MIGRATED_STATE, "ttl_ms": ttl}
    values = {
        "source": source,
        "home": f"{folder}/home",
        "job": job,
        "now": now,
        "operators": [{"operator": OPERATOR, "states": [state]}],
        "nulls": "drop",
        "on_contradiction": "rows",
        "accept_expired": 1.0,
        "clock_tolerance_ms": MAX_MILLISECONDS,
    }

    def carried_out(plan_values: dict[str, object], source: Savepoint) -> ResolvedPlan:
        plan = planned({name: value for name, value in plan_values.items() if value is not None})
        resolved, run = resolve(plan, source), Run.create(plan, now)
        with Control(plan.catalog_uri) as control:
            lease = control.acquire(job, plan.run_id)
            Pipeline(RunAtWork(workers, run, resolved, control, lease)).carry_out()
            control.release(lease)
        return resolved

    for night, max_parallelism in enumerate((None, opened.operator(OPERATOR).max_parallelism + 1)):
        of_night = {"run_id": f"{night}", "target": f"{folder}/{job}-{night}", "max_parallelism": max_parallelism}
        resolved = carried_out(values | of_night, opened)
    plan = resolved.plan
    forth_alone = ("nulls", "on_contradiction")
    back = {name: value for name, value in values.items() if name not in forth_alone}
    back |= {"run_id": "back", "source": plan.target, "target": f"{folder}/{job}-back", "reverse": True, "like": source}
    carried_out(back, Savepoint.open(plan.target))
    # The result's key groups are framed, those of the source aren't.
    read_all(Savepoint.open(plan.target), decoded=False)
    keeping = replace(resolved, plan=plan.model_copy(update={"keep_legacy": True}))
    validate.check(workers, keeping, plan.target)


def _refuse_maps(savepoint: Savepoint) -> None:
    """Reads maps by Kryo as if they were of another type, so that the entry that isn't of it is looked for."""
    (operator,) = savepoint.keyed_operators()
    legacy = savepoint.state(operator, MAIN_STATE)
    assert isinstance(legacy.value, KryoType)
    wrong = KryoMapType(legacy.value.class_name, "", legacy.value, MapType(Scalar.STRING, Scalar.INTEGER))
    for file in savepoint.open_files(operator):
        for key_group in file.handle.range:
            for section in file.sections(key_group):
                if file.header.states[section.state].name == MAIN_STATE:
                    with suppress(RefusedError), section.locating():
                        whole_maps(wrong, section.data, section.value_starts, section.ends)
                    return


def _advise(savepoint: Savepoint) -> None:
    weights = measure_keys(savepoint, savepoint.keyed_operators()[0], "bytes")
    if weights is not None:
        advise(weights, Span(2, 3), Span(128, 131))


def _call_the_rest() -> None:
    """Calls what the demo has no use for.

    Two kernels compute hashes if a key has both a blob and rows, one takes maps out of POJOs, one finds nulls that the
    value's serializer writes, and one leaves out what has expired of states that aren't migrated.
    """
    data, starts, seeds, out = (
        np.zeros(8, np.uint8),
        np.zeros(1, np.int64),
        np.zeros(1, np.uint64),
        np.empty(1, np.uint64),
    )
    row_kernels.hash_each(data, starts, starts, seeds, out)
    row_kernels.spread_hash(data, starts, starts, np.ones(1, np.int64), seeds, out)
    row_kernels.cut_values(data, *[starts] * 6, np.zeros(1, np.uint8), starts)
    row_kernels.find_equal(data, starts, starts, data, np.zeros(1, np.bool_))
    row_kernels.copy_ranges(data, starts, starts, starts.copy(), data.copy())


def read_all(savepoint: Savepoint, *, decoded: bool = True) -> None:
    """Reads all batches of all states, raw and, unless told otherwise, decoded."""
    for operator in survey(savepoint):
        for found in operator.keyed.states if operator.keyed else ():
            for raw in (False, True) if decoded else (True,):
                for _ in read_batches(savepoint, operator.operator.hex_id, found.state.name, raw=raw):
                    pass


def _as_column(type_: FlinkType, value: object) -> tuple[walker.Bytes, walker.Positions, walker.Positions]:
    data = np.frombuffer(encode(type_, value), np.uint8).copy()
    return data, np.zeros(1, np.int64), np.full(1, len(data), np.int64)


def _used() -> set[str]:
    """The names of the kernels that this process has called."""
    return {name for name, kernel in kernels() if kernel.signatures}


def main() -> int:
    started = time.monotonic()
    used = warm()
    sys.stdout.write(f"{len(used)} kernels are ready, {time.monotonic() - started:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
