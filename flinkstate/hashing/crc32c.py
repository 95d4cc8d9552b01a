"""CRC-32C for compiled kernels, a word of eight bytes at a time.

It is computed by the processor's own instruction, or by tables where there is none; the two give the same. numba
compiles for the processor that it runs on, and caches what it has compiled under that processor's name. So the choice
may be made when this module is imported.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-any-return"

from __future__ import annotations

import platform
from typing import Any

import llvmlite.binding
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import core, types

from flinkstate.basics.compiling import inlined, intrinsic
from flinkstate.basics.words import load64

# What the masked form of a checksum, as in snappy's framing and in RocksDB's files, is larger by.
MASK_DELTA = np.uint64(0xA282EAD8)
_POLYNOMIAL = 0x82F63B78
_BYTE = np.uint64(0xFF)
_ALL_ONES = np.uint64(0xFFFFFFFF)


def _tables() -> npt.NDArray[np.uint64]:
    first = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = np.where(first & 1, first >> 1 ^ np.uint32(_POLYNOMIAL), first >> 1).astype(np.uint32)
    tables = [first]
    for _ in range(7):
        tables.append((tables[-1] >> 8 ^ first[tables[-1] & 0xFF]).astype(np.uint32))
    return np.array(tables, np.uint32).astype(np.uint64)


# Row n tells what a byte becomes with n bytes of zeros behind it.
TABLES = _tables()


def has_instruction() -> bool:
    """Whether the kernels are compiled for a processor with an instruction for CRC-32C, that of x86."""
    config: Any = core.config
    is_for_this_one = config.CPU_NAME is None and config.CPU_FEATURES is None
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return is_for_this_one and is_x86 and bool(llvmlite.binding.get_host_cpu_features().get("sse4.2"))


@intrinsic
def _word_by_instruction(context: Any, crc: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        i64 = ir.IntType(64)
        function = ir.FunctionType(i64, [i64, i64])
        return builder.call(builder.module.declare_intrinsic("llvm.x86.sse42.crc32.64.64", (), function), arguments)

    return types.uint64(types.uint64, types.uint64), generate


@inlined
def _word_by_tables(crc, word):
    word = word ^ crc
    return (
        TABLES[7, word & _BYTE]
        ^ TABLES[6, word >> np.uint64(8) & _BYTE]
        ^ TABLES[5, word >> np.uint64(16) & _BYTE]
        ^ TABLES[4, word >> np.uint64(24) & _BYTE]
        ^ TABLES[3, word >> np.uint64(32) & _BYTE]
        ^ TABLES[2, word >> np.uint64(40) & _BYTE]
        ^ TABLES[1, word >> np.uint64(48) & _BYTE]
        ^ TABLES[0, word >> np.uint64(56)]
    )


with_word: Any = _word_by_instruction if has_instruction() else _word_by_tables


@inlined
def masked_crc32c(data, start, end):
    """Returns the CRC-32C of `data[start:end]`, masked as the formats say."""
    crc = _ALL_ONES
    position = start
    while end - position >= 8:
        crc = with_word(crc, load64(data, position))
        position += 8
    while position < end:
        crc = crc >> np.uint64(8) ^ TABLES[0, (crc ^ np.uint64(data[np.uint64(position)])) & _BYTE]
        position += 1
    crc ^= _ALL_ONES
    return ((crc >> np.uint64(15) | crc << np.uint64(17)) + MASK_DELTA) & _ALL_ONES
