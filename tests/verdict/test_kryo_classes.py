"""The table of classes against what the Kryo of both Flinks wrote of the same values."""

from __future__ import annotations

import gzip
import json

import pytest

from stateferry.verdict.kryo_classes import FINAL, difference, written_alike
from tests.flink.jars import VERSIONS
from tests.flink.kryo import golden_kept

CLASSES = {
    **{f"java.util.{name}": name for name in ("UUID", "BitSet", "Currency")},
    **{f"java.util.concurrent.atomic.{name}": name for name in ("AtomicLong", "AtomicInteger")},
    **{
        f"java.time.{name}": name
        for name in (
            *("Duration", "Period", "Year", "YearMonth", "MonthDay", "ZoneOffset", "OffsetTime", "OffsetDateTime"),
            *("ZonedDateTime", "LocalDateTime", "DayOfWeek"),
        )
    },
    **{f"java.lang.{name}": name for name in ("Long", "Double", "String")},
    "java.net.URI": "URI",
    "java.util.regex.Pattern": "Pattern",
    "java.util.concurrent.TimeUnit": "TimeUnit",
    "java.util.Date": "Date",
    **{f"java.util.{name}": f"{name} of String" for name in ("HashSet", "TreeSet", "ArrayList", "LinkedList")},
    **{f"java.util.{name}": f"{name} of String" for name in ("ArrayDeque", "LinkedHashSet", "HashMap", "TreeMap")},
}
"""The examples of each class: `KryoValues` has a map whose values are of it."""


@pytest.fixture(scope="module")
def written() -> list[dict[str, str]]:
    """What each version wrote, by the names of the examples."""
    files = [gzip.decompress(golden_kept(version).read_bytes()).decode("ascii") for version in VERSIONS]
    return [
        {line["name"]: line["flink"] for line in map(json.loads, file.splitlines()) if "flink" in line}
        for file in files
    ]


@pytest.mark.parametrize("name", CLASSES)
def test_the_same_bytes_are_said_to_be_the_same(name: str, written: list[dict[str, str]]) -> None:
    one, other = (lines[CLASSES[name]] for lines in written)
    assert written_alike([name]) == (one == other)
    assert (difference(name) is None) == (one == other)


def test_what_is_decided_by_its_declaration_is_alike() -> None:
    assert written_alike(FINAL)
