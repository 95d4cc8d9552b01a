"""Values in Flink's bytes, of the types that most tests use."""

from __future__ import annotations

import struct

from flinkstate.serializers.types import Scalar
from flinkstate.values.codecs import encode


def text(value: str) -> bytes:
    return encode(Scalar.STRING, value)


def long(value: int) -> bytes:
    return struct.pack(">q", value)
