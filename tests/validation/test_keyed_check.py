"""What a task collects of entries: accounts, slices of a probe, or the entries themselves."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed import kernels
from flinkstate.keyed.key_group_check import Membership
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import MapType, OpaqueType, Scalar
from flinkstate.ttl import StateTtlConfig
from flinkstate.values.codecs import encode
from flinkstate.values.hash_codes import key_group_of
from stateferry.changes.lazy_cut import LazyCut, Order
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import PlannedTtl, Rules
from stateferry.proof import keyed_check
from stateferry.proof.equal_rows import EqualRows
from stateferry.proof.expected.content import AccountsByState, Entries, KeySpans, map_rows, plain_entries
from stateferry.proof.expected.expected_blobs import ExpectedBlobs, hash_blobs
from stateferry.proof.expected.sampling import KeySample, SampleSpec
from stateferry.proof.keyed_check import KeyedTask, _AnyMember, _ChunkReading
from stateferry.proof.keyed_result import (
    KeyedAccounts,
    KeyedResult,
    Probe,
    ProbedEntries,
    ProbedSlices,
    Side,
    slices_of,
)
from tests.support.changes import back, changes_of
from tests.support.sections import Rows
from tests.validation.test_checks import GOLDEN

RESULT = KeyedResult("operator", Side.SOURCE, 0, None)
LEGACY = KeyedState(
    "old",
    StateKind.VALUE,
    Scalar.STRING,
    Scalar.VOID_NAMESPACE,
    None,
    MapType(Scalar.STRING, Scalar.LONG),
    False,
    False,
)
RULES = Rules(LEGACY, "new", "flag", None, 0)
CONVERSION = changes_of((RULES,), {"old": LEGACY}, 8, 8)
KEPT = replace(CONVERSION, rules=(replace(RULES, keep_legacy=True),))


@pytest.fixture
def entries() -> Entries:
    """Entries of the key groups 3 to 6."""
    rows: Any = Rows(9, 1, [(b"key %d" % number, b"value") for number in range(4)])
    return plain_entries(rows, np.arange(3, 7))


def flags(*chosen: bool) -> Any:
    return np.array(chosen, np.bool_)


def filled(sink: Any) -> KeyedResult:
    result = replace(RESULT)
    sink.fill(result)
    return result


def test_the_slice_of_a_hash_is_its_first_bits() -> None:
    pairs = np.array([0, 1 << 62, 3 << 62, (1 << 64) - 1], np.uint64)
    for bits, slices in ((1, [0, 0, 1, 1]), (2, [0, 1, 3, 3]), (3, [0, 2, 6, 7])):
        assert slices_of(pairs, bits).tolist() == slices


def test_accounts_have_what_was_added_and_not_withdrawn(entries: Entries) -> None:
    sink = KeyedAccounts(8)
    sink.add("s", entries, flags(True, True, True, False))
    sink.leave_out("s", entries, flags(True, True, True, True), "why")
    sink.withdraw("s", entries, flags(True, False, False, False), "why")
    account = filled(sink).accounts["s"]
    assert account.counts.tolist() == [0, 0, 0, 0, 1, 1, 0, 0]
    assert account.sums.tolist()[4:6] == entries.hashes().tolist()[1:3]


def test_slices_have_entries_of_the_state_and_key_groups_of_the_probe(entries: Entries) -> None:
    sink, every = ProbedSlices(Probe("s", (3, 4, 5), 2)), flags(True, True, True, True)
    sink.add("s", entries, flags(True, True, False, True))
    sink.add("other", entries, every)
    sink.leave_out("s", entries, every, "why")
    account = filled(sink).slices
    assert account is not None
    expected = np.bincount(slices_of(entries.pairs, 2)[:2], minlength=4)
    assert account.counts.tolist() == expected.tolist()
    assert int(account.sums.sum()) == int(entries.hashes()[:2].sum())
    sink.withdraw("other", entries, every, "why")
    sink.withdraw("s", entries, flags(True, True, False, True), "why")
    assert not account.counts.any()
    assert not account.sums.any()


def names(sink: Any) -> list[tuple[str, str | None]]:
    return [(entry.name, entry.why) for entry in filled(sink).entries]


def name_of(number: int) -> str:
    return f"key 0x{(b'key %d' % number).hex()}"


def test_entries_of_the_probed_slices_are_described(entries: Entries) -> None:
    own = slices_of(entries.pairs, 16).tolist()
    probe = Probe("s", (3, 4, 6), 16, slices=(own[0], own[1], own[2]))
    sink, every = ProbedEntries(probe, CONVERSION), flags(True, True, True, True)
    sink.add("s", entries, every)
    sink.add("other", entries, every)
    assert names(sink) == [(name_of(0), None), (name_of(1), None)]
    sink.withdraw("s", entries, flags(False, True, False, False), "withdrawn")
    sink.leave_out("s", entries, flags(True, False, False, False), "left out")
    assert names(sink) == [(name_of(0), None), (name_of(1), "withdrawn"), (name_of(0), "left out")]
    hashes = entries.hashes().tolist()
    assert [entry.hash for entry in filled(sink).entries] == [hashes[0], hashes[1], hashes[0]]


def test_of_strays_ten_are_enough(entries: Entries) -> None:
    sink = ProbedEntries(Probe("s", (3, 4), strays=True), CONVERSION)
    for _ in range(6):
        sink.add("s", entries, flags(True, True, True, True))
    assert len(names(sink)) == 10


def counted(rules: Rules) -> dict[str, Counter[int]]:
    reading = object.__new__(_ChunkReading)
    reading._expired = {}
    for _ in range(2):
        reading._count_expired("new", 5, np.array([899, 900, 901]), rules)
    return reading._expired


def test_expired_entries_are_counted_if_they_should_be_gone() -> None:
    rules = replace(RULES, ttl=100, now=1000)
    assert counted(rules) == {"new": Counter({5: 4})}
    assert counted(replace(rules, keep_expired=True)) == {}
    assert counted(replace(rules, ttl=None)) == {}


# States that lose what has expired.


def told_of(kind: StateKind) -> PlannedTtl:
    user_key = Scalar.STRING if kind is StateKind.MAP else None
    state = KeyedState("s", kind, Scalar.STRING, Scalar.VOID_NAMESPACE, user_key, Scalar.LONG, True, False)
    return PlannedTtl(state, StateTtlConfig(100), 1000, drops=True)


def reading_of(probe: Probe | None, **settings: Any) -> Any:
    reading = object.__new__(_ChunkReading)
    task: Any = SimpleNamespace(probe=probe, conversion=KEPT)
    reading._task, reading._expired, reading._strays, reading._made, reading._by_kryo = task, {}, {}, {}, {}
    reading._equal, reading._seen_group = EqualRows(), -1
    for name, value in settings.items():
        setattr(reading, name, value)
    return reading


@pytest.mark.parametrize("probe", [None, Probe("s", (9,), 1), Probe("s", (9,), strays=True)])
def test_of_a_list_that_ages_elements_are_compared_and_rows_stray(probe: Probe | None) -> None:
    """An element of a list has no key of its own; what strays is the row."""
    one, old = (struct.pack(">qq", stamp, 5) for stamp in (950, 900))
    rows: Any = Rows(9, 1, [(b"a", b",".join([one, old, one])), (b"b", b""), (b"c", one)])
    reading = reading_of(probe, _aging={"s": told_of(StateKind.LIST)})
    for _ in range(2):
        entries, keys = reading._staged_entries("s", rows, None)
    of_rows = probe is not None and probe.strays
    assert len(entries) == (3 if of_rows else 4)
    # What has expired, and lists without elements.
    assert reading._expired == ({} if of_rows else {"s": Counter({9: 4})})
    assert keys.tolist() == plain_entries(rows, np.full(3, 9)).keys.tolist()
    assert set(entries.groups.tolist()) == {9}


class Sink:
    def __init__(self) -> None:
        self.added: list[tuple[str, list[bool]]] = []

    def add(self, state: str, entries: object, chosen: Any) -> None:
        self.added.append((state, chosen.tolist()))


@pytest.mark.parametrize("probe", [None, Probe("old", (1,), 1), Probe("old", (1,), strays=True)])
def test_keys_of_other_key_groups_are_counted(probe: Probe | None) -> None:
    groups = {key: key_group_of(Scalar.STRING, key, 8) for key in "abcdef"}
    own, other = "a", next(key for key in "bcdef" if groups[key] != groups["a"])
    keys = [text + b"\0" for text in (encode(Scalar.STRING, key) for key in (own, other, own, other))]
    rows: Any = Rows(groups[own] or 0, 1, [(key, b"v") for key in keys])
    sink = Sink()
    reading = reading_of(probe, _sink=sink)
    entries = plain_entries(rows, np.full(4, groups[own]))
    for _ in range(2):
        reading._check_keys("old", rows, entries, KeySpans.of(rows, LEGACY), None)
    assert reading._strays == {"old": Counter({groups[own]: 4})}
    wanted = probe is not None and probe.strays
    assert sink.added == ([("old", [False, True, False, True])] * 2 if wanted else [])
    right: Any = Rows(groups[own] or 0, 1, [(keys[0], b"v")])
    reading._check_keys("new", right, entries, KeySpans.of(right, LEGACY), None)
    assert reading._strays.keys() == {"old"}


def test_keys_are_checked_if_they_should_be_and_have_a_hash() -> None:
    rows: Any = Rows(5, 1, [(encode(Scalar.STRING, "a") + b"\0", b"v")])
    opaque = replace(LEGACY, name="opaque", key=OpaqueType("com.acme.Key", "Kryo"))
    conversion = replace(KEPT, states={"old": LEGACY, "opaque": opaque})
    for checks, name, found in (
        (True, "old", True),
        (False, "old", False),
        (True, "none", False),
        (True, "opaque", False),
    ):
        reading = reading_of(None, _task=SimpleNamespace(check_keys=checks, conversion=conversion))
        assert (reading._key_spans(name, rows) is not None) == found, (checks, name)


class Filling(Sink):
    def fill(self, result: KeyedResult) -> None:
        result.entries = ["probed"]  # type: ignore[list-item]


def test_a_result_has_all_that_was_found() -> None:
    task: Any = SimpleNamespace(operator="hex", side=Side.STAGED, size=77)
    collected: Any = SimpleNamespace(counts="counts", aging="aging")
    books = {name: SimpleNamespace(accounts=name) for name in ("whole", "blobs")}
    reading = reading_of(
        None, _task=task, _expected=collected, _strays="strays", _expired="expired", _read="read", _plain="plain",
        _sink=Filling(), _samples={"s": "sample"}, _sampled_keys=lambda *of: of,
        _whole=SimpleNamespace(accounts=books["whole"]), _blobs=books["blobs"], _losses="losses",
        _entries_of="entries of", _sums="sums", _equal="equal",
    )  # fmt: skip
    damage = DamagedError("a row", "nothing")
    found = reading.result(damage)
    assert {one.name: getattr(found, one.name) for one in fields(KeyedResult)} == {
        "operator": "hex", "side": Side.STAGED, "size": 77, "damage": damage, "accounts": {}, "counts": "counts",
        "aging": "aging", "strays": "strays", "expired": "expired", "samples": {"s": ("s", "sample")},
        "whole": "whole", "slices": None, "entries": ["probed"], "blobs": "blobs", "read": "read", "plain": "plain",
        "losses": "losses", "entries_of": "entries of", "sums": "sums", "equal": "equal",
    }  # fmt: skip
    assert reading.result().damage is None


@pytest.mark.parametrize("sampled", [False, True])
def test_what_kryo_wrote_is_written_by_kryo_5_and_sampled_as_it_is(
    sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample goes by the keys that the result has."""
    key = encode(Scalar.STRING, "a") + b"\0"
    section: Any = Rows(5, 1, [(key, b"v")])
    made: Any = Rows(5, 1, [(key + b"by Kryo 5", b"w")])
    seen: list[tuple[object, ...]] = []
    sample: Any = SimpleNamespace(see=lambda name, rows, keys: seen.append((name, rows, keys.tolist())))
    monkeypatch.setattr(keyed_check, "for_other_kryo", lambda rows, state: made if rows is section else None)
    of_rule = replace(LEGACY, name="of a rule")
    reading = reading_of(
        None, _by_kryo={"old": LEGACY, "of a rule": of_rule}, _read_by_kryo={"old"},
        _samples={"old": sample, "of a rule": sample} if sampled else {},
    )  # fmt: skip
    assert reading._for_other_kryo(replace(LEGACY, name="other"), section) is section
    assert reading._for_other_kryo(of_rule, section) is made
    assert seen == []
    assert reading._for_other_kryo(LEGACY, section) is made
    keys = plain_entries(made, np.zeros(1, np.int64)).keys.tolist()
    assert seen == ([("old", section, keys)] if sampled else [])


class Reader:
    """Notes which sections it was told to read."""

    def __init__(self) -> None:
        self.read_: list[tuple[object, dict[str, bool]]] = []

    def read(self, group: object, **settings: bool) -> None:
        self.read_.append((group, settings))


class PlainRowsStub(Reader):
    see, result = "see", "rows"

    def end(self) -> None:
        self.read_.append(("end", {}))

    def add(self, result: object) -> None:
        self.read_.append((result, {}))


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_who_reads_the_key_groups_of_a_chunk(
    side: Side, lazy: bool, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a lazy run, the staged savepoint is read as a source as well: what it holds when all keys are moved.

    Plain code reads key groups that lie apart one after the other.
    """
    file: Any = SimpleNamespace(header=None, name="file", prefix=1, membership="of the reader")
    opened: list[tuple[object, ...]] = []

    @contextmanager
    def open_file(*place: object) -> Iterator[Any]:
        opened.append(place)
        yield file

    monkeypatch.setattr(keyed_check, "open_keyed", open_file)
    monkeypatch.setattr(keyed_check, "keyed_states", lambda header, name: [LEGACY])
    monkeypatch.setattr(keyed_check, "GroupSections", lambda file, group, states, window, see, write: (group, see))
    monkeypatch.setattr(keyed_check, "_AnyMember", lambda header, width, prefix: ("any", width, prefix))
    parts = [SimpleNamespace(handle="handle", subtask=at, key_groups=(at, 5 + at)) for at in (2, 3)]
    task: Any = SimpleNamespace(
        side=side, folder="folder", only=None, conversion=KEPT, chunk=SimpleNamespace(parts=parts, max_parallelism=9)
    )
    expected, of_staged, staged, rows = Reader(), Reader(), Reader(), PlainRowsStub()
    reading = reading_of(
        None, _task=task, _read="read", _states={}, _expected=expected, _staged=staged.read, _plain=rows,
        _of_staged=of_staged if lazy else None, _plain_rows=lambda file, groups: rows if plain else None,
    )  # fmt: skip
    reading.read()
    groups = [(group, "see" if plain else None) for group in (2, 7, 3, 8)]
    is_source = side is Side.SOURCE
    assert expected.read_ == ([(group, {}) for group in groups] if is_source else [])
    assert staged.read_ == ([] if is_source else [(group, {}) for group in groups])
    assert of_staged.read_ == ([(group, {"carries": False}) for group in groups] if lazy and not is_source else [])
    assert [one for one, _ in rows.read_] == (["end", "rows"] * 4 if plain else [])
    assert file.membership == ("of the reader" if is_source else ("any", 9, 1))
    assert reading._states == {"old": LEGACY}
    assert opened == [("folder", "handle", 9, at, "read", (at, 5 + at)) for at in (2, 3)]


# What a reading begins with.

FLAG = KeyedState("flag", StateKind.VALUE, Scalar.STRING, Scalar.VOID_NAMESPACE, None, Scalar.BOOLEAN, False, False)
SPEC = SampleSpec(7, 1.0)


def started(conversion: OperatorChanges = CONVERSION, *, width: int = 8, **settings: Any) -> Any:
    chunk: Any = SimpleNamespace(max_parallelism=width, parts=())
    task: Any = SimpleNamespace(side=Side.SOURCE, conversion=conversion, chunk=chunk, probe=None, sample=None)
    for name, value in settings.items():
        setattr(task, name, value)
    return _ChunkReading(task)


def test_a_reading_collects_what_its_probe_asks_for() -> None:
    for probe, sink in (
        (None, KeyedAccounts), (Probe("s", (1,), 3), ProbedSlices), (Probe("s", (1,), 3, (2,)), ProbedEntries),
        (Probe("s", (1,), strays=True), ProbedEntries),
    ):  # fmt: skip
        reading = started(probe=probe)
        assert type(reading._sink) is sink
        assert reading._expected._sink is reading._sink
        # Digests are of a first reading of the source.
        assert (reading._read is not None) == (probe is None)
    assert started(side=Side.STAGED)._read is None


def test_accounts_have_room_for_the_key_groups_of_both() -> None:
    wide = replace(CONVERSION, new_max=300)
    for conversion, width, size in ((CONVERSION, 8, 8), (CONVERSION, 64, 64), (wide, 64, 300)):
        reading = started(conversion, width=width, side=Side.STAGED)
        assert (reading._sink.accounts.size, reading._blobs.size) == (size, size)
        assert reading._whole.accounts.size == size
        assert started(conversion, width=width)._whole.accounts.size == conversion.new_max


def test_samples_are_of_states_that_are_made_or_written_anew() -> None:
    told = told_of(StateKind.VALUE)
    both = replace(CONVERSION, ttls=(told,), by_kryo={"s": LEGACY, "k": LEGACY, "new": LEGACY})
    assert started(both)._samples == {}
    reading = started(both, sample=SPEC)
    assert reading._samples.keys() == {"new", "s", "k"}
    new, aging = (KeySample(SPEC, *of) for of in (("old", False), ("", False)))
    assert vars(reading._samples["new"]) == vars(new)
    assert vars(reading._samples["s"]) == vars(reading._samples["k"]) == vars(aging)
    assert reading._read_by_kryo == {"s", "k"}
    assert reading._sampled == {"new": {"new", "old", "flag"}}
    assert started(replace(both, by_kryo={}))._sampled == {"new": {"new", "old", "flag"}, "s": {"s"}}
    stamped = replace(CONVERSION, rules=(replace(RULES, legacy=replace(LEGACY, ttl=True)),))
    assert started(stamped, sample=SPEC)._samples["new"]._count_at == 8


def test_a_lazy_result_is_read_twice_and_blobs_that_are_made_are_counted() -> None:
    lazy = replace(CONVERSION, rules=(replace(RULES, lazy_cut=LazyCut(Order.HASH, 5, FLAG)),))
    for conversion, side, probe, twice in (
        (lazy, Side.STAGED, None, True), (lazy, Side.SOURCE, None, False), (CONVERSION, Side.STAGED, None, False),
        (lazy, Side.STAGED, Probe("s", (1,), 1), False),
    ):  # fmt: skip
        reading = started(conversion, side=side, probe=probe)
        assert (reading._of_staged is not None) == twice
        if twice:
            assert reading._of_staged._sink is reading._whole
    in_reverse = replace(CONVERSION, rules=(back(RULES),))
    for side in Side:
        reading = started(in_reverse, side=side, width=16)
        assert isinstance(reading._expected, ExpectedBlobs)
        assert (reading._blobs is reading._expected.blobs) == (side is Side.SOURCE)
        assert reading._expected.blobs.size == 16
    assert not isinstance(started()._expected, ExpectedBlobs)


@pytest.mark.parametrize("probe", [None, Probe("old", (1,), 1), Probe("old", (1,), strays=True)])
@pytest.mark.parametrize("spans", [None, "spans"])
def test_sections_of_a_result_are_counted_sampled_and_checked(
    probe: Probe | None, spans: str | None, entries: Entries
) -> None:
    rows: Any = Rows(5, 1, [(b"key", b"v")])
    seen: list[tuple[str, object]] = []
    checked: list[tuple[object, ...]] = []

    def sample(name: str) -> Any:
        def see(state: str, section: object, keys: Any) -> None:
            seen.append((f"{name} of {state}", keys if isinstance(keys, str) else keys.tolist()))

        return SimpleNamespace(see=see)

    sink = Sink()
    reading = reading_of(
        probe, _sink=sink, _sampled={"new": {"new", "old"}, "s": {"s"}}, _read_by_kryo={"k"},
        _samples={name: sample(name) for name in ("new", "s", "k")},
        _key_spans=lambda name, section: spans, _check_keys=lambda *of: checked.append(of),
        _staged_blobs=lambda name, section: SimpleNamespace(entries=entries, keys="of blobs") if name == "b" else None,
        _staged_entries=lambda name, section, spans: (entries, f"keys of {name}"),
    )  # fmt: skip
    names = ("old", "s", "k", "b")
    reading._staged([(replace(LEGACY, name=name), rows) for name in names])
    of_keys = plain_entries(rows, np.zeros(1, np.int64)).keys.tolist()
    assert seen == [("new of old", "keys of old"), ("s of s", "keys of s"), ("k of k", of_keys)]
    strays = probe is not None and probe.strays
    assert sink.added == ([] if strays else [(name, [True] * 4) for name in names])
    assert [(of[0], of[3]) for of in checked] == ([] if spans is None else [(name, "spans") for name in names])


def test_a_result_is_scanned_for_keys_of_any_key_group() -> None:
    """The validation names those that stray itself."""
    source = Savepoint.open(str(GOLDEN / "legacy-2.3-rocksdb"))
    header = source.keyed_header(source.operator("main"))
    assert header is not None
    member = _AnyMember(header, 128, 1)
    assert (Membership(header, 128, 1).keys[:, 0] != kernels.NO_KEY).any()
    assert (member.keys == kernels.NO_KEY).all()
    rows: Any = Rows(5, 1, [(encode(Scalar.STRING, key) + b"\0", b"v") for key in "abc"])
    member.check(0, 5, rows.data, rows.starts, rows.key_ends)


@pytest.mark.parametrize("ttl", [False, True])
def test_blobs_that_a_run_in_reverse_has_made(ttl: bool) -> None:
    rules = back(RULES, ttl=100 if ttl else None, now=1000, legacy=replace(LEGACY, ttl=ttl))
    stamps = [struct.pack(">q", stamp) if ttl else b"" for stamp in (950, 900)]
    x = encode(Scalar.STRING, "x") + b"\0" + struct.pack(">q", 5)
    blobs = [
        (encode(Scalar.STRING, key) + b"\0", stamp + b"\0\0\0\1" + x) for key, stamp in zip("ab", stamps, strict=True)
    ]
    rows: Any = Rows(5, 1, blobs)
    reading = reading_of(None, _made={"old": rules.legacy}, _rules={"old": rules}, _blobs=AccountsByState(8))
    assert reading._staged_blobs("other", rows) is None
    found = reading._staged_blobs("old", rows)
    assert (len(found.entries), found.counts.tolist()) == (2, [1, 1])
    hashes = hash_blobs(found.keys, np.full(2, 5), found.counts, found.stamps)
    account = reading._blobs.of("old")
    assert (account.counts.tolist(), int(account.sums[5])) == ([0, 0, 0, 0, 0, 2, 0, 0], int(hashes.sum()))
    assert reading._expired == ({"old": Counter({5: 1})} if ttl else {})
    reading._made = {"old": rules.new}
    assert reading._staged_blobs("old", rows) is None


@pytest.mark.parametrize("error", [DamagedError("a row", "nothing"), RefusedError("unknown")])
def test_what_cannot_be_read_ends_a_task_with_what_was_found(
    error: DamagedError | RefusedError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: _ChunkReading) -> None:
        raise error

    chunk: Any = SimpleNamespace(max_parallelism=8, parts=(), size=77)
    folder: Any = "folder"
    task = KeyedTask(Side.STAGED, folder, "hex", chunk, CONVERSION, True)
    assert task.do().damage is None
    monkeypatch.setattr(_ChunkReading, "read", fails)
    found = task.do()
    assert (found.operator, found.size, found.damage) == ("hex", 77, error)
    assert error.__traceback__ is None


@pytest.mark.parametrize("ttl", [False, True])
def test_rows_of_a_result_are_read_by_what_their_state_is(ttl: bool) -> None:
    rules = replace(RULES, ttl=100 if ttl else None, now=1000, legacy=replace(LEGACY, ttl=ttl))
    reading = reading_of(None, _aging={}, _made={"new": rules.new}, _rules={"new": rules})
    key = encode(Scalar.STRING, "a") + b"\0" + encode(Scalar.STRING, "x")
    values = [b"\0" + (struct.pack(">q", stamp) if ttl else b"") + struct.pack(">q", 5) for stamp in (950, 900)]
    rows: Any = Rows(5, 1, [(key, value) for value in values])
    groups = np.full(2, 5)
    for name, wanted in (("new", map_rows(rows, rules.new, groups)), ("old", plain_entries(rows, groups))):
        entries, keys = reading._staged_entries(name, rows, None)
        assert entries.hashes().tolist() == wanted.hashes().tolist()
        assert keys.tolist() == wanted.keys.tolist()
    assert reading._expired == ({"new": Counter({5: 1})} if ttl else {})
