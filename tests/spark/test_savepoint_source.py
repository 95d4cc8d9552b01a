"""The data source against the golden savepoints, in a real Spark."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan, Not
from pyspark.sql.pandas.types import from_arrow_schema

from flinkstate.keyed.state import KeyedState
from flinkstate.reading import batches
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import Scalar
from flinkstate.values import codecs
from stateferry.spark_jobs.savepoint_source import _on_key_group
from tests.columns.test_columns import plain
from tests.rocksdb import goldens
from tests.support.expected_columns import SAVEPOINTS, expected_lines, expected_rows, unordered

pytestmark = pytest.mark.spark

LEGACY = "legacy-2.3-rocksdb"
LEGACY_TTL = "legacy-ttl-2.3-rocksdb"
# One state for each form a column can take: structs, lists, maps, dates, windows, timers, texts and bytes.
STATES = [
    (LEGACY, "main", "mainState"),
    (LEGACY, "main", "newMainState"),
    (LEGACY_TTL, "main", "newMainState"),
    ("legacy-pojo-list-ttl-2.3-hashmap", "main", "newMainState"),
    ("legacy-integer-row-ttl-1.20-hashmap", "main", "newMainState"),
    ("legacy-wide-1.20-rocksdb", "main", "mainState"),
    ("lists-ttl-2.3-rocksdb", "values", "list-2-Person"),
    ("windows-2.3-hashmap", "window-reduce", "window-contents"),
    ("kinds-in-strings-2.3-rocksdb", "kinds", "map-state"),
    ("kinds-in-strings-2.3-rocksdb", "kinds", "_timer_state/event_user-timers"),
    ("scalars-2.3-rocksdb", "values", "value-11-Date"),
    ("arrays-1.20-hashmap", "values", "value-0-byte"),
    ("subclasses-2.3-rocksdb", "values", "value-1-List-Animal"),
]


def load(spark: SparkSession, case: str, **options: str) -> DataFrame:
    reader = spark.read.format("flink_savepoint").option("path", str(SAVEPOINTS / case))
    return reader.options(**options).load()


def table(spark: SparkSession, case: str, state: str, operator: str = "main", **options: str) -> DataFrame:
    return load(spark, case, operator=operator, state=state, **options)


def described(case: str, uid: str, name: str) -> KeyedState:
    savepoint = Savepoint.open(str(SAVEPOINTS / case))
    return savepoint.state(savepoint.operator(uid), name)


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    arrow = frame.toArrow().combine_chunks()
    parts = [plain(column.chunk(0)) if column.num_chunks else [] for column in arrow.columns]
    return [dict(zip(arrow.column_names, row, strict=True)) for row in zip(*parts, strict=True)]


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(("case", "uid", "name"), STATES)
def test_columns_hold_what_flink_put_into_the_state(spark: SparkSession, case: str, uid: str, name: str) -> None:
    state, frame = described(case, uid, name), table(spark, case, name, uid)
    assert frame.schema == from_arrow_schema(batches.schema(state), prefer_timestamp_ntz=True)
    wanted = expected_rows(case, uid, state)
    assert wanted
    assert unordered(rows_of(frame)) == unordered(wanted)


@pytest.mark.parametrize(("case", "uid", "name"), [STATES[0], STATES[2], STATES[8]])
def test_raw_columns_are_bytes(spark: SparkSession, case: str, uid: str, name: str) -> None:
    state, frame = described(case, uid, name), table(spark, case, name, uid, raw="true")
    parts = {"key", "namespace", "user_key", "value"} & set(frame.columns)
    assert {name for name, type_ in frame.dtypes if type_ == "binary"} == parts
    keys = [codecs.decode_whole(state.key, bytes(row.key)) for row in frame.select("key").collect()]
    wanted = [line["key"] for line in expected_lines(case) if (line["operator"], line["state"]) == (uid, name)]
    assert sorted(map(repr, keys)) == sorted(map(repr, wanted))


def test_sql_over_maps_reaches_every_entry(spark: SparkSession) -> None:
    table(spark, LEGACY, "mainState").createOrReplaceTempView("legacy")
    found = spark.sql("SELECT key, k, v FROM legacy LATERAL VIEW explode(value) AS k, v WHERE v > 0").collect()
    lines = [line for line in expected_lines(LEGACY) if line["state"] == "mainState"]
    wanted = [(line["key"], k, v) for line in lines for k, v in line["value"].items() if v is not None and v > 0]
    assert len(wanted) > 10
    assert sorted(v for _, _, v in found) == sorted(v for _, _, v in wanted)


def test_sql_over_structs_and_arrays(spark: SparkSession) -> None:
    people = table(spark, "lists-ttl-2.3-rocksdb", "list-2-Person", "values")
    each = people.select("key", f.explode(f.arrays_zip("value", "timestamp")).alias("one"))
    found = each.selectExpr("key", "one.value.age AS age", "one.value.home.number AS number", "one.timestamp AS at")
    lines = [line for line in expected_lines("lists-ttl-2.3-rocksdb") if line["state"] == "list-2-Person"]
    wanted = [
        (line["key"], person["age"], (person["home"] or {}).get("number"), at)
        for line in lines
        for person, at in zip(line["value"], line["timestamp"], strict=True)
    ]
    assert sorted(map(repr, map(tuple, found.collect()))) == sorted(map(repr, wanted))


@pytest.mark.full
def test_states_join_on_their_keys(spark: SparkSession) -> None:
    moved = table(spark, LEGACY, "isMigratedState").where("value")
    rows = table(spark, LEGACY, "newMainState").join(moved, ["key_group", "key"], "left_semi")
    lines = expected_lines(LEGACY)
    flagged = {line["key"] for line in lines if line["state"] == "isMigratedState" and line["value"]}
    wanted = sum(line["state"] == "newMainState" and line["key"] in flagged for line in lines)
    assert rows.count() == wanted > 0


def key_groups_read(frame: DataFrame) -> int:
    """How many partitions Spark plans to read, each key group being one."""
    return frame.select("key").rdd.getNumPartitions()


ONE_EACH = {"targetBytes": "1"}


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("key_group = 83", lambda group: group == 83),
        ("key_group <=> 83", lambda group: group == 83),
        ("key_group IN (14, 18, 19)", lambda group: group in (14, 18, 19)),
        ("key_group NOT IN (14, 18)", lambda group: group not in (14, 18)),
        ("key_group < 40", lambda group: group < 40),
        ("key_group <= 40", lambda group: group <= 40),
        ("key_group > 100 AND key_group >= 103", lambda group: group >= 103),
        ("key_group BETWEEN 30 AND 50 AND key <> 'x'", lambda group: 30 <= group <= 50),
        ("key_group = 1000", lambda group: False),
    ],
)
def test_filters_on_the_key_group_prune_what_is_read(spark: SparkSession, condition: str, wanted: Any) -> None:
    everything = table(spark, LEGACY, "mainState", **ONE_EACH)
    lines = [line for line in expected_lines(LEGACY) if line["state"] == "mainState"]
    filled = {line["key_group"] for line in expected_lines(LEGACY) if line["operator"] == "main"}
    assert key_groups_read(everything) == len(filled)
    some = everything.where(condition)
    # Of nothing Spark makes one partition without a row.
    assert key_groups_read(some) == max(sum(map(wanted, filled)), 1)
    counted = table(spark, LEGACY, "mainState").where(condition).count()
    assert counted == sum(wanted(line["key_group"]) for line in lines)


def test_a_filter_with_null_is_sparks_own() -> None:
    """In SQL, neither a comparison with NULL nor its negation is true."""
    group = (batches.KEY_GROUP,)
    for one in (In(group, (5, None)), EqualTo(group, None), LessThan(group, None), GreaterThanOrEqual(group, None)):
        assert _on_key_group(one) is None
        assert _on_key_group(Not(one)) is None
    wanted = _on_key_group(Not(In(group, (5,))))
    assert wanted is not None
    assert [wanted(5), wanted(6)] == [False, True]


def test_a_filter_that_is_not_about_the_key_group_is_sparks_own(spark: SparkSession) -> None:
    frame = table(spark, LEGACY, "newMainState").where("user_key = 'nope' OR key_group = 3")
    lines = [line for line in expected_lines(LEGACY) if line["state"] == "newMainState"]
    assert frame.count() == sum(line["key_group"] == 3 for line in lines)


def test_partitions_are_runs_of_key_groups_of_about_the_same_size(spark: SparkSession) -> None:
    files = [file for file in (SAVEPOINTS / LEGACY).iterdir() if file.name not in ("_metadata", "expected.jsonl")]
    assert len(files) > 1
    size = sum(file.stat().st_size for file in files)
    frame = table(spark, LEGACY, "mainState", targetBytes=str(size // 4))
    groups = frame.withColumn("run", f.spark_partition_id()).groupBy("run").agg(f.min("key_group"), f.max("key_group"))
    runs = sorted(tuple(row)[1:] for row in groups.collect())
    assert 3 <= len(runs) <= 4
    assert all(one[1] < other[0] for one, other in pairwise(runs))
    # A run reaches over the files of several subtasks, if they are small.
    assert table(spark, LEGACY, "mainState").rdd.getNumPartitions() == 1


def test_without_a_state_it_lists_what_there_is(spark: SparkSession) -> None:
    rows = {row.state: row for row in load(spark, LEGACY_TTL).collect()}
    main = rows["mainState"]
    assert (main.uid, main.kind, main.type, main.key_type) == ("main", "VALUE", "Map<String,Long>", "String")
    assert (main.operator_id, main.ttl, main.migratable, main.reason) == (
        "075411a2d1ef617c7b2ad2770050b24f",
        True,
        True,
        None,
    )
    assert (rows["newMainState"].migratable, rows["newMainState"].reason) == (False, "already a MapState")
    operators = load(spark, "several-operators-2.3-hashmap")
    wanted = {line["operator"] for line in expected_lines("several-operators-2.3-hashmap") if "key" in line}
    assert wanted <= {row.uid for row in operators.select("uid").distinct().collect()}
    one = load(spark, "operator-state-2.3-rocksdb", operator="keyed").where("ttl IS NULL")
    lines = expected_lines("operator-state-2.3-rocksdb")
    states = {line["state"] for line in lines if line["operator"] == "keyed" and "key_group" not in line}
    found = {row.state: row.kind for row in one.collect()}
    assert states <= set(found)
    assert set(found.values()) == {"SPLIT", "UNION", "BROADCAST"}


@pytest.mark.matrix(most=3)
@pytest.mark.parametrize(
    ("case", "options", "message"),
    [
        (LEGACY, {"operator": "nope", "state": "mainState"}, r"no operator has the id, uid or name 'nope'.*uid 'main'"),
        (LEGACY, {"operator": "main", "state": "nope"}, r"no keyed state 'nope'. There are: mainState"),
        (LEGACY, {"state": "mainState"}, "needs the option operator"),
        (
            LEGACY,
            {"operator": "main", "staet": "x"},
            r"no option 'staet'. Did you mean state\? There are: path, operator, state",
        ),
        (LEGACY, {"operator": "main", "state": "mainState", "raw": "yes"}, r"option raw: expected true or false"),
        (LEGACY, {"operator": "main", "state": "mainState", "targetBytes": "0"}, "option targetBytes: expected"),
        ("nowhere", {"operator": "main", "state": "mainState"}, "no savepoint at .*nowhere"),
        ("kryo-2.3-rocksdb", {"operator": "kryo", "state": "opaque"}, r"its value Opaque.*Kryo.*raw=true"),
        ("native-2.3-hashmap", {"operator": "main", "state": "mainState"}, "take a canonical one"),
    ],
)
def test_what_can_not_be_loaded_says_why(spark: SparkSession, case: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(AnalysisException, match=f"(?s){message}"):
        load(spark, case, **options)


def test_a_path_is_needed(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="needs the option path"):
        spark.read.format("flink_savepoint").load()


def test_states_without_columns_can_be_read_as_bytes(spark: SparkSession) -> None:
    lines = [line for line in expected_lines("kryo-2.3-rocksdb") if line["state"] == "opaque"]
    assert table(spark, "kryo-2.3-rocksdb", "opaque", "kryo", raw="true").count() == len(lines) > 0


def test_a_value_beyond_arrow_fails_the_query_and_says_where(spark: SparkSession) -> None:
    frame = table(spark, "scalars-2.3-rocksdb", scalar_state(Scalar.LOCAL_DATE), "values")
    with pytest.raises(PySparkException, match=r"(?s)a LocalDate outside what date32 can hold.*raw=true"):
        frame.collect()


def scalar_state(scalar: Scalar) -> str:
    savepoint = Savepoint.open(str(SAVEPOINTS / "scalars-2.3-rocksdb"))
    states = savepoint.keyed_states(savepoint.operator("values"))
    return next(state.name for state in states if state.value is scalar)


def test_without_pushdown_spark_refuses_the_source_by_name(spark: SparkSession) -> None:
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "false")
    try:
        with pytest.raises(PySparkException, match=setting.replace(".", r"\.")):
            table(spark, LEGACY, "mainState").collect()
    finally:
        spark.conf.set(setting, "true")


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(
    ("case", "state"), [("rounds-native-2.3-rocksdb", "list-state"), ("rounds-2-to-3-2.3-rocksdb", "map-state")]
)
def test_what_rocksdb_wrote(spark: SparkSession, case: str, state: str) -> None:
    """The rows are those of the canonical savepoint, whatever state is read and however few key groups."""
    folder = goldens.SAVEPOINTS / case
    roots = ",".join(f"{old}={new}" for old, new in goldens.roots_of(folder).items())

    def of(path: Path, **options: str) -> DataFrame:
        reader = spark.read.format("flink_savepoint").option("path", str(path)).option("operator", "kinds")
        return reader.options(state=state, **options).load()

    truth = of(goldens.SAVEPOINTS / goldens.CANONICAL)
    found = of(goldens.metadata_of(folder), filesFrom=roots, targetBytes="9000")
    assert found.rdd.getNumPartitions() > 3
    for where in ("true", "key_group < 40 or key_group >= 100"):
        expected, rows = (rows_of(frame.where(where)) for frame in (truth, found))
        assert expected
        assert unordered(rows) == unordered(expected)


def test_folders_of_moved_files_may_have_commas_and_equals_signs(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "a,b=c"
    shutil.copytree(goldens.SAVEPOINTS / goldens.NATIVE[2], folder)
    roots = ",".join(f"{old}={folder}" for old in goldens.roots_of(folder))
    found = spark.read.format("flink_savepoint").option("path", str(goldens.metadata_of(folder)))
    assert found.options(operator="kinds", state="value-state", filesFrom=roots).load().count() > 0


def test_a_place_of_moved_files_has_two_parts(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="option filesFrom: expected OLD=NEW"):
        table(spark, LEGACY, "mainState", filesFrom="/new")
