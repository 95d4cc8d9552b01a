"""How much memory large state takes, measured in processes of their own: of a key group with 90 % of the state, in the
arbitrary order of a hash map, no more than some buffers; of one large value, a small multiple of that value."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from flinkstate.hashing.key_groups import ranges
from flinkstate.keyed.compression import Compression
from flinkstate.keyed.header import KeyedHeader
from flinkstate.metadata.metadata import Metadata, Operator, Subtask
from flinkstate.reading.batches import read_batches
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.serializers.built_snapshots import map_snapshot
from flinkstate.writing.operator_rewrite import Layout
from flinkstate.writing.writer import KeyedFileWriter, SavepointWriter
from stateferry.look.survey import survey
from tests.support.rewriting import rewrite
from tests.support.samples import LONG, PROPERTIES, STRING, UID, keyed_meta, keys_of

STATES = (keyed_meta("rows", "MAP", map_snapshot(LONG, STRING)), keyed_meta("blob", "VALUE", map_snapshot(LONG, LONG)))
ROWS, BLOB = 0, 1
MAX_PARALLELISM, LARGE_GROUP = 8, 5
MEGABYTE = 1 << 20
LARGE_BLOB = 200 * MEGABYTE
PROC = Path("/proc/self/status")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROC.exists(), reason="only Linux tells the peak of one process's memory"),
]
_TEXT, _PORTION = 100, 16_000

ROW = np.dtype(
    [
        ("key_length", ">i4"),
        ("key_group", "u1"),
        ("text_length", "u1"),
        ("text", "S4"),
        ("namespace", "u1"),
        ("user_key", ">i8"),
        ("value_length", ">i4"),
        ("is_null", "u1"),
        ("value_size", "u1"),
        ("value", "u1", _TEXT),
    ]
)
ENTRY = np.dtype([("user_key", ">i8"), ("is_null", "u1"), ("value", ">i8")])


def rows(key_group: int, size: int) -> Iterator[npt.NDArray[np.void]]:
    """Map entries of that many bytes: all of one shape, in no order of their keys or user keys."""
    names = [key for key in keys_of(key_group, MAX_PARALLELISM, 300) if len(key) == 4]
    drawn = np.random.default_rng(key_group)
    for _ in range(-(-size // (_PORTION * ROW.itemsize))):
        portion = np.zeros(_PORTION, ROW)
        portion["key_length"] = 1 + 1 + 4 + 1 + 8
        portion["key_group"], portion["text_length"] = key_group, 5
        portion["text"] = np.array(names, "S4")[drawn.integers(0, len(names), _PORTION)]
        portion["user_key"] = drawn.integers(0, 1 << 62, _PORTION)
        portion["value_length"], portion["value_size"] = 1 + 1 + _TEXT, _TEXT + 1
        portion["value"] = drawn.integers(ord("a"), ord("z"), _TEXT)
        yield portion


def blob(key_group: int, size: int) -> npt.NDArray[np.uint8]:
    """One entry whose map takes that many bytes."""
    count = size // ENTRY.itemsize
    text = keys_of(key_group, MAX_PARALLELISM, 1)[0].encode("ascii")
    key = bytes([key_group, len(text) + 1]) + text + b"\0"
    head = (
        len(key).to_bytes(4, "big") + key + (4 + count * ENTRY.itemsize).to_bytes(4, "big") + count.to_bytes(4, "big")
    )
    entries = np.zeros(count, ENTRY)
    entries["user_key"] = np.arange(count)
    return np.concatenate((np.frombuffer(head, np.uint8), entries.view(np.uint8)))


def write(folder: Path, fill: Callable[[KeyedFileWriter, int], None], *, compressed: bool) -> None:
    writer, subtasks = SavepointWriter(str(folder)), []
    for index, key_groups in enumerate(ranges(MAX_PARALLELISM, 2)):
        header = KeyedHeader(compressed, STRING, STATES)
        with writer.keyed_file(operator_id(UID).hex(), index, header, key_groups) as file:
            for key_group in key_groups:
                fill(file, key_group)
            subtasks.append(Subtask(index, managed_keyed=file.close()))
    operator = Operator(operator_id(UID), 2, MAX_PARALLELISM, UID, UID, subtasks=tuple(subtasks))
    writer.commit(Metadata(6, 1, (operator,), (), PROPERTIES))


def write_large_group(folder: Path, size: int, *, compressed: bool) -> None:
    def fill(file: KeyedFileWriter, key_group: int) -> None:
        share = size * 9 // 10 if key_group == LARGE_GROUP else size // 10 // (MAX_PARALLELISM - 1)
        for portion in rows(key_group, share):
            file.entries(key_group, ROWS, portion.view(np.uint8), (len(portion) - 1) * ROW.itemsize)

    write(folder, fill, compressed=compressed)


def write_large_blob(folder: Path, size: int, *, compressed: bool) -> None:
    def fill(file: KeyedFileWriter, key_group: int) -> None:
        for portion in islice(rows(key_group, MEGABYTE), 1):
            file.entries(key_group, ROWS, portion.view(np.uint8), (len(portion) - 1) * ROW.itemsize)
        if key_group == LARGE_GROUP:
            file.entries(key_group, BLOB, blob(key_group, size), 0)

    write(folder, fill, compressed=compressed)


def read_columns(source: Savepoint, target: str) -> None:
    for _ in read_batches(source, UID, "rows"):
        pass


def read_sections(source: Savepoint, target: str) -> None:
    survey(source)


WORK: dict[str, Callable[[Savepoint, str], object]] = {
    "columns": read_columns,
    "sections": read_sections,
    "same": lambda source, target: rewrite(source, target, Layout()),
    "fewer-subtasks": lambda source, target: rewrite(source, target, Layout({operator_id(UID): 1})),
    "other-max-parallelism": lambda source, target: rewrite(source, target, Layout(max_parallelism=300)),
    "compressed": lambda source, target: rewrite(source, target, Layout(compression=Compression.SNAPPY)),
    "uncompressed": lambda source, target: rewrite(source, target, Layout(compression=Compression.NONE)),
}


def peak() -> int:
    """Of this process alone: what getrusage says begins with the memory of the process that started it."""
    (line,) = (line for line in PROC.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


def main(work: str, warm: str, source: str, target: str) -> None:
    """Prints by how much the peak grew after the same was done with little: code and kernels are not what is asked."""
    WORK[work](Savepoint.open(warm), f"{target}-warm")
    before = peak()
    WORK[work](Savepoint.open(source), target)
    sys.stdout.write(f"{peak() - before}\n")


def growth(work: str, folder: Path, source: str) -> int:
    arguments = [work, str(folder / "small"), str(folder / source), str(folder / f"target-{random.getrandbits(32)}")]
    command = [sys.executable, "-m", "tests.savepoint.test_bounded_memory", *arguments]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, check=False, cwd=root, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("large")
    write_large_group(made / "small", 4 * MEGABYTE, compressed=False)
    write_large_group(made / "group", 340 * MEGABYTE, compressed=False)
    write_large_group(made / "group-compressed", 340 * MEGABYTE, compressed=True)
    write_large_blob(made / "blob", LARGE_BLOB, compressed=False)
    write_large_blob(made / "blob-compressed", LARGE_BLOB, compressed=True)
    return made


READS = ("columns", "sections", "uncompressed")
# Entries for other key groups are gathered before they are written to the exchange, up to 64 MB or one value.
EXCHANGED = ("other-max-parallelism",)


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(
    ("work", "source"),
    [(work, "group") for work in WORK if work != "uncompressed"] + [(work, "group-compressed") for work in READS],
)
def test_a_large_key_group_takes_a_few_buffers(folder: Path, work: str, source: str) -> None:
    assert growth(work, folder, source) < (192 if work in EXCHANGED else 64) * MEGABYTE


@pytest.mark.full
@pytest.mark.parametrize(
    ("work", "source"),
    [(work, "blob") for work in WORK if work not in ("uncompressed", "columns")]
    + [(work, "blob-compressed") for work in READS],
)
def test_a_large_value_takes_a_small_multiple_of_itself(folder: Path, work: str, source: str) -> None:
    times = 13 if work in EXCHANGED else 9
    assert growth(work, folder, source) < 64 * MEGABYTE + LARGE_BLOB * times // 4


if __name__ == "__main__":
    main(*sys.argv[1:])
