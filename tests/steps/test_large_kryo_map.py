"""A run whose state has one map by Kryo of 256 MiB: what memory it takes, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from flinkstate.hashing.key_groups import assign_to_key_group, ranges
from flinkstate.keyed.header import KeyedHeader
from flinkstate.metadata.metadata import Metadata, Operator, Subtask
from flinkstate.metadata.savepoint_properties import CANONICAL_SAVEPOINT
from flinkstate.reading.reader import operator_id
from flinkstate.serializers.built_snapshots import snapshot_of
from flinkstate.serializers.types import Scalar
from flinkstate.values.codecs import encode
from flinkstate.writing.new_savepoint import NewState
from flinkstate.writing.writer import SavepointWriter
from tests.kryo.kept import kept

PROC = Path("/proc/self/status")
MEGABYTE = 1 << 20
# Prints what the run does, and the most memory of the process, in bytes.
SCRIPT = """
import sys
from pathlib import Path
from pytest import MonkeyPatch
from stateferry.cli import main
from tests.support.in_process import without_spark
without_spark(MonkeyPatch())
if main(sys.argv[1:]):
    sys.exit("the run failed")
(peak,) = (line.split() for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print("peak", 1024 * int(peak[1]))
"""


def kryo_map(count: int) -> npt.NDArray[np.uint8]:
    """A HashMap by Kryo 2 with Strings of 48 characters as keys, and Longs."""
    one = b"\x03\x01" + b"k" * 40 + b"0000000\xb0" + b"\x09\x80\x80\x80\x01"
    entries = np.tile(np.frombuffer(one, np.uint8), (count, 1))
    for digit in range(8):
        entries[:, 49 - digit] |= (np.arange(count) // 10**digit % 10).astype(np.uint8)
    number, head = count, bytearray(b"\x57\x01")
    while number > 0x7F:
        head.append(number & 0x7F | 0x80)
        number >>= 7
    return np.concatenate([np.frombuffer(bytes((*head, number)), np.uint8), entries.ravel()])


def write(target: Path, count: int) -> int:
    """Writes a savepoint with a small map and one with so many entries; returns the size of that one."""
    kryo = kept("1.20.0")["UUID"].kryo
    header = KeyedHeader(False, snapshot_of(Scalar.STRING), (NewState("totals", "VALUE", kryo).meta(),))
    writer, id_, subtasks = SavepointWriter(str(target)), operator_id("main"), []
    maps = {assign_to_key_group(ord(key), 128): (key, kryo_map(size)) for key, size in (("a", 3), ("b", count))}
    for index, key_groups in enumerate(ranges(128, 2)):
        with writer.keyed_file(id_.hex(), index, header, key_groups) as file:
            for key_group in sorted(set(key_groups) & maps.keys()):
                key, value = maps[key_group]
                whole = bytes([key_group]) + encode(Scalar.STRING, key) + b"\0"
                before = len(whole).to_bytes(4, "big") + whole + len(value).to_bytes(4, "big")
                file.entries(key_group, 0, np.concatenate([np.frombuffer(before, np.uint8), value]), 0)
            subtasks.append(Subtask(index, managed_keyed=file.close()))
    writer.commit(Metadata(4, 1, (Operator(id_, 2, 128, subtasks=tuple(subtasks)),), properties=CANONICAL_SAVEPOINT))
    return max(len(value) for _, value in maps.values())


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not PROC.exists(), reason="only Linux tells the peak of one process's memory")
@pytest.mark.parametrize("count", [10_000, pytest.param(4_900_000, marks=pytest.mark.full)])
def test_one_map_is_migrated_whatever_its_size(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    size = write(tmp_path / "source", count)
    states = ["--operator", "main", "--legacy-state", "totals", "--new-state", "entries"]
    command = ["run", "--savepoint", str(tmp_path / "source"), "--target", str(tmp_path / "target"), *states]
    ran = subprocess.run([sys.executable, "-c", SCRIPT, *command], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{count + 3:,}" in ran.stdout
    peak = int(ran.stdout.split()[-1])
    # Measured: 336 MiB, and 1758 MiB with a map of 257 MiB.
    assert peak < 400 * MEGABYTE + 7 * size
