"""Java's primitive encodings: round trips, and errors that name their place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import DamagedError
from flinkstate.serializers.binary import ByteReader, ByteWriter, decode_modified_utf8, encode_modified_utf8

TEXT = st.text(st.characters(exclude_categories=()), max_size=20).map(
    lambda text: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
)


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("", ""),
        ("a\x7f", "617f"),
        ("\0", "c080"),
        ("é\u07ff", "c3a9dfbf"),
        ("\u0800\uffff", "e0a080efbfbf"),
        ("😀", "eda0bdedb880"),
        ("\ud800", "eda080"),
        ("x\udc00y", "78edb08079"),
    ],
)
def test_modified_utf8_as_java_writes_it(text: str, raw: str) -> None:
    assert encode_modified_utf8(text).hex() == raw
    assert decode_modified_utf8(bytes.fromhex(raw)) == text


@given(TEXT)
def test_modified_utf8_round_trip(text: str) -> None:
    raw = encode_modified_utf8(text)
    assert b"\0" not in raw
    assert decode_modified_utf8(raw) == text


@pytest.mark.parametrize(
    "raw",
    ["00", "6100", "80", "c3", "c328", "c1bf", "c081", "e0a0", "e0a028", "e08080", "e09fbf", "f09f9880", "ff"],
)
def test_what_java_never_writes_is_no_modified_utf8(raw: str) -> None:
    with pytest.raises(ValueError, match=r"byte|character"):
        decode_modified_utf8(bytes.fromhex(raw))


@given(st.binary(max_size=12))
def test_modified_utf8_has_one_form(raw: bytes) -> None:
    try:
        text = decode_modified_utf8(raw)
    except ValueError:
        return
    assert encode_modified_utf8(text) == raw


@given(
    st.integers(-(2**7), 2**7 - 1),
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    TEXT,
    st.binary(max_size=9),
)
def test_what_is_written_is_read(
    byte: int, short: int, integer: int, long: int, flag: bool, text: str, block: bytes
) -> None:
    writer = ByteWriter().i8(byte).i16(short).i32(integer).i64(long).boolean(flag).utf(text).raw(block)
    reader = ByteReader(b"??" + writer.bytes() + b"!", "file", position=2)
    assert reader.i8("a") == byte
    assert reader.i16("b") == short
    assert reader.i32("c") == integer
    assert reader.i64("d") == long
    assert reader.boolean("e") == flag
    assert reader.utf("f") == text
    assert not reader.at_end()
    assert reader.take(len(block) + 1, "g") == block + b"!"
    assert reader.at_end()


READS: list[tuple[Callable[[ByteReader], object], int]] = [
    (lambda reader: reader.i8("it"), 1),
    (lambda reader: reader.i16("it"), 2),
    (lambda reader: reader.i32("it"), 4),
    (lambda reader: reader.i64("it"), 8),
    (lambda reader: reader.boolean("it"), 1),
    (lambda reader: reader.count("it", 1), 4),
    (lambda reader: reader.utf("it"), 2),
    (lambda reader: reader.take(5, "it"), 5),
]


@pytest.mark.parametrize(("read", "size"), READS)
def test_no_read_crosses_the_limit(read: Callable[[ByteReader], object], size: int) -> None:
    for room in range(size):
        reader = ByteReader(bytes(20), "some-file", position=3, limit=3 + room, base=100)
        with pytest.raises(DamagedError, match=r"some-file, offset 103: expected .* of it, found") as caught:
            read(reader)
        assert f"{room} bytes until the end" in caught.value.found
    read(ByteReader(bytes(20), "some-file", position=3, limit=3 + size))


def test_a_text_longer_than_the_rest() -> None:
    with pytest.raises(DamagedError, match="offset 2: expected 5 bytes of a name, found 4 bytes"):
        ByteReader(b"\0\5abcd", "f").utf("a name")
    with pytest.raises(DamagedError, match="offset 0: expected a name in Java's modified UTF-8, found the byte ff"):
        ByteReader(b"\0\1\xff", "f").utf("a name")


@pytest.mark.parametrize(("raw", "found"), [("ffffffff", "-1"), ("7fffffff", "2147483647"), ("00000003", "3")])
def test_a_count_that_the_bytes_do_not_bear(raw: str, found: str) -> None:
    reader = ByteReader(bytes.fromhex(raw) + bytes(8), "f")
    with pytest.raises(DamagedError) as caught:
        reader.count("items", 4)
    assert (caught.value.offset, caught.value.found) == (0, found)
    assert "at most 2" in caught.value.expected


def test_a_negative_length_is_no_length() -> None:
    with pytest.raises(DamagedError, match="expected the length of a block, found -1"):
        ByteReader(bytes(8), "f").take(-1, "a block")


def test_flags_and_magic_numbers_are_checked() -> None:
    with pytest.raises(DamagedError, match="offset 0: expected a flag: 0 or 1, found 2"):
        ByteReader(b"\2", "f").boolean("a flag")
    with pytest.raises(DamagedError, match="offset 0: expected magic = 5, found 6"):
        ByteReader(bytes([0, 0, 0, 6]), "f").expect_i32(5, "magic")
    ByteReader(bytes([0, 0, 0, 5]), "f").expect_i32(5, "magic")


def test_damage_learns_its_place_from_further_out() -> None:
    error = DamagedError("this", "that", offset=3).located(file="f", key_group=7, offset=103)
    assert str(error) == "f, key group 7, offset 103: expected this, found that"
    assert str(error.located(file="g", key_group=8)) == str(error)
