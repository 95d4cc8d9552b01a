"""A job at random, by seed: what it tells RocksDB to write, and what its migrated state must hold.

Keys, values and key groups are computed here, so that nothing of the library says what the library must write.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.kryo_writing import kryo_map, kryo_object

NOW = 1_704_067_200_000
TTL = 1_000_000
TIMERS = "_timer_state/event_user-timers"
# A state with a time to live that isn't migrated.
AGING = "aging"
# A MapState whose user keys and values are by Kryo.
BY_KRYO = "byKryo"
UIDS = ("main", "more")
Rows = dict[bytes, bytes]
Expected = dict[tuple[str, bytes], tuple[bytes, bool]]
"""What a state, named with its operator, has under a key; and whether it may be gone because it has expired since."""


def key_group(key: str, max_parallelism: int) -> int:
    """Flink's key group of a String: Java's hash code, then MurmurHash."""
    code = 0
    for letter in key:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF

    def rotated(number: int, by: int) -> int:
        return (number << by | number >> (32 - by)) & 0xFFFFFFFF

    code = rotated(code * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    code = (rotated(code, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF ^ 4
    for by, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        code = (code ^ code >> by) * factor & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % max_parallelism


def text(of: str) -> bytes:
    """A short String of ASCII."""
    return bytes([len(of) + 1]) + of.encode("ascii")


def long(number: int) -> bytes:
    return struct.pack(">q", number)


@dataclass(frozen=True)
class Kind:
    """What a job has; `flavour` is how its maps are written, `extras` are states that aren't migrated.

    `of_aging` is what becomes of expired entries of a state that isn't migrated, if the plan gives its time to live;
    `becomes` are parallelism and max parallelism in the result. A job of Flink 1 may be upgraded (`for_flink_2`), and
    no map migrated (`migrates`), or those of some keys alone (`is_lazy`).
    """

    flavour: str
    ttl: bool
    has_new: bool
    has_flag: bool
    has_second: bool
    extras: tuple[str, ...]
    parallelism: int
    max_parallelism: int
    of_aging: str | None
    becomes: tuple[int, int] = (0, 0)
    for_flink_2: bool = False
    migrates: bool = True
    is_lazy: bool = False

    @classmethod
    def by(cls, chosen: random.Random) -> Kind:
        flavour, ttl = chosen.choice(("flink", "flink", "kryo 5", "kryo 2")), chosen.random() < 0.35
        flag = chosen.random() < 0.6
        extras = [one for one in ("other", "list", "sum", "windowed", TIMERS, AGING) if chosen.random() < 0.6]
        made = cls(
            flavour, ttl, flag or chosen.random() < 0.3, flag, chosen.random() < 0.3, tuple(extras),
            chosen.choice((1, 2)), chosen.choice((8, 8, 8, 130)), chosen.choice((None, "keep", "drop")),
        )  # fmt: skip
        parallelism = chosen.choice((1, 2, 3, 5)) if chosen.random() < 0.4 else made.parallelism
        return replace(made, becomes=(parallelism, made.max_parallelism))

    def upgraded(self, *, migrates: bool) -> Kind:
        """The same, as a job of Flink 1 that is upgraded."""
        return replace(self, flavour="kryo 2", extras=(*self.extras, BY_KRYO), for_flink_2=True, migrates=migrates)

    @property
    def lazily(self) -> Kind:
        """The same, with all three states of one legacy state, of which runs move some keys."""
        return replace(self, has_new=True, has_flag=True, has_second=False, is_lazy=True)

    @property
    def states(self) -> list[str]:
        """The states in the order of their numbers."""
        wanted = {"newMainState": self.has_new, "isMigratedState": self.has_flag, "second": self.has_second}
        return ["mainState", *(name for name, is_there in wanted.items() if is_there), *self.extras]

    @property
    def planned(self) -> list[dict[str, Any]]:
        """The states that a run migrates."""
        names = [("mainState", "newMainState")] + [("second", "newSecond")] * self.has_second
        of_all: dict[str, Any] = {"flag": "isMigratedState"} if self.has_flag else {}
        of_all |= {"ttl_ms": TTL} if self.ttl else {}
        return [{"legacy": legacy, "new": new, **of_all} for legacy, new in names]


@dataclass
class RandomOperator:
    """An operator's state, with what it did since the last snapshot; `clock` is what its compactions take for now."""

    uid: str
    kind: Kind
    chosen: random.Random
    keeps_legacy: bool
    keeps_expired: bool
    blobs: dict[str, dict[str, tuple[dict[str, int | None], int]]] = field(default_factory=dict)
    rows: dict[str, dict[str, int | None]] = field(default_factory=dict)
    stamps: dict[tuple[str, str], int] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    beside: dict[str, Rows] = field(default_factory=dict)
    clock: int = NOW
    operations: list[tuple[str, str, bytes, bytes]] = field(default_factory=list)
    keys: dict[bytes, str] = field(default_factory=dict)
    by_kryo_5: dict[bytes, bytes] = field(default_factory=dict)

    def goes_on(self, count: int) -> None:
        """Does so many things at random."""
        self.clock += self.chosen.choice((0, 0, TTL // 4))
        keys = [f"key-{number}" for number in range(60)]
        for _ in range(count):
            self._one(self.chosen.choice(keys))
            if self.chosen.random() < 0.06:
                name = self.chosen.choice(("flush", "flush", "compact"))
                for state in self.kind.states if self.chosen.random() < 0.5 else [self.chosen.choice(self.kind.states)]:
                    self._told(name, state)
        if self.chosen.random() < 0.15:
            self._told("restart", self.kind.states[0])

    def _one(self, key: str) -> None:
        wanted = ["blob"] * 5 + ["clear"] * 2 + ["beside"] * 3 + ["all gone"]
        if self.kind.has_flag:
            wanted += ["moved"] * 2 + ["row", "row", "late blob"]
        elif self.kind.has_new:
            wanted += ["row"]
        # Which of the two counts would depend on when a compaction drops the row.
        has_either = self.kind.ttl and (key in self.rows or key in self.blobs.get("mainState", {}))
        match self.chosen.choice(wanted):
            case "blob" if key not in self.flags and not (has_either and key in self.rows):
                self._put_blob(key)
            case "late blob" if not has_either:
                self._put_blob(key)
            case "clear":
                self._clear(self._legacy(), key)
            case "moved" if key not in self.flags:
                self.flags.add(key)
                self._told("put", "isMigratedState", self._key(key, self.kind.max_parallelism), b"\1")
                for name, value in self.blobs.get("mainState", {}).get(key, ({}, 0))[0].items():
                    self._put_row(key, name, value)
                for state in ("mainState", "second"):
                    self._clear(state, key)
            case "row" if not has_either or key in self.rows:
                name, row = f"u{self.chosen.randrange(6)}", self.rows.get(key, {})
                if name in row and self.chosen.random() < 0.4:
                    del row[name]
                    self._told("delete", "newMainState", self._key(key, self.kind.max_parallelism) + text(name))
                else:
                    self._put_row(key, name, self._value())
            case "beside" if self.kind.extras:
                self._beside(self.chosen.choice(self.kind.extras), key)
            case "all gone":
                for state in ("mainState", "second"):
                    self._clear(state, key)
                for name in self.rows.pop(key, {}):
                    self._told("delete", "newMainState", self._key(key, self.kind.max_parallelism) + text(name))
                if key in self.flags:
                    self.flags.remove(key)
                    self._told("delete", "isMigratedState", self._key(key, self.kind.max_parallelism))

    def _legacy(self) -> str:
        return "second" if self.kind.has_second and self.chosen.random() < 0.4 else "mainState"

    def _value(self) -> int | None:
        return None if not self.kind.ttl and self.chosen.random() < 0.05 else self.chosen.randrange(-(10**6), 10**12)

    def _put_blob(self, key: str) -> None:
        state = self._legacy()
        content = {f"u{self.chosen.randrange(9)}": self._value() for _ in range(self.chosen.randrange(5))}
        stamp = NOW - self.chosen.randrange(2 * TTL)
        self.blobs.setdefault(state, {})[key] = content, stamp
        self._told("put", state, self._key(key, self.kind.max_parallelism), self._blob(content, stamp))

    def _blob(self, content: dict[Any, Any], stamp: int, *, upgraded: bool = False) -> bytes:
        if self.kind.flavour == "flink":
            entries = (text(name) + self._nullable(value) for name, value in content.items())
            written = struct.pack(">i", len(content)) + b"".join(entries)
        else:
            written = kryo_map(content, upgraded or self.kind.flavour == "kryo 5")
        return (long(stamp) if self.kind.ttl else b"") + written

    def _nullable(self, value: int | None, stamp: int | None = None) -> bytes:
        return b"\1" if value is None else b"\0" + (b"" if stamp is None else long(stamp)) + long(value)

    def _clear(self, state: str, key: str) -> None:
        if self.blobs.get(state, {}).pop(key, None) is not None:
            self._told("delete", state, self._key(key, self.kind.max_parallelism))

    def _put_row(self, key: str, name: str, value: int | None) -> None:
        self.rows.setdefault(key, {})[name] = value
        stamp = self.stamps[key, name] = NOW - self.chosen.randrange(2 * TTL)
        row = self._nullable(value, stamp if self.kind.ttl else None)
        self._told("put", "newMainState", self._key(key, self.kind.max_parallelism) + text(name), row)

    def _beside(self, state: str, key: str) -> None:
        there, number = self.beside.setdefault(state, {}), self.chosen.randrange(10**9)
        row, value = self._key(key, self.kind.max_parallelism), long(number)
        match state:
            case "other":
                row, value = row + text(f"u{self.chosen.randrange(4)}"), b"\0" + value
            case "windowed":
                start = 1000 * self.chosen.randrange(3)
                row = row[:-1] + long(start) + long(start + 1000)
            case "list" if row in there and self.chosen.random() < 0.7:
                there[row] += b"," + value
                self._told("merge", state, row, value)
                return
            case _ if state == TIMERS:
                due = 10**13 + self.chosen.randrange(5)
                width = len(row) - len(text(key)) - 1
                row, value = row[:width] + struct.pack(">Q", due + (1 << 63)) + row[width:], b""
            case _ if state == BY_KRYO:
                # The two Kryos write such a String in other bytes if it has 33 characters or more.
                name, content = f"u{self.chosen.randrange(4)}" * self.chosen.choice((1, 20)), {"u": number}
                of_five = row + kryo_object(name, five=True), b"\0" + kryo_map(content, five=True)
                row, value = row + kryo_object(name, five=False), b"\0" + kryo_map(content, five=False)
                self.by_kryo_5 |= zip((row, value), of_five, strict=True)
            case _ if state == AGING:
                value = long(NOW - self.chosen.randrange(2 * TTL)) + value
        self.keys[row] = key
        if row in there and self.chosen.random() < 0.4:
            del there[row]
            self._told("delete", state, row)
        else:
            there[row] = value
            # A list's first element is merged into nothing.
            self._told("merge" if state == "list" and self.chosen.random() < 0.5 else "put", state, row, value)
            if state == "list" and self.operations[-1][0] == "merge":
                self.operations.insert(-1, ("delete", state, row, b""))

    def _key(self, key: str, max_parallelism: int) -> bytes:
        return self._group(key, max_parallelism) + text(key) + b"\0"

    def _group(self, key: str, max_parallelism: int) -> bytes:
        return key_group(key, max_parallelism).to_bytes(1 if max_parallelism <= 128 else 2, "big")

    def _told(self, operation: str, state: str, key: bytes = b"", value: bytes = b"") -> None:
        self.operations.append((operation, state, key, value))

    def _named(self, state: str) -> str:
        return f"{self.uid}/{state}"

    def expected(self, *, moves: bool = True) -> Expected:
        """What the migrated state must have; a lazy run moves some keys, and what it leaves isn't as if it `moves`."""
        size = self.kind.becomes[1]
        width = len(self._group("", self.kind.max_parallelism))
        found: Expected = {
            (self._named(state), self._group(self.keys[row], size) + self.by_kryo_5.get(row, row)[width:]): (
                self.by_kryo_5.get(value, value),
                False,
            )
            for state, rows in self.beside.items()
            for row, value in rows.items()
        }
        for place, (stamped, _) in [one for one in found.items() if one[0][0] == self._named(AGING)]:
            expires = int.from_bytes(stamped[:8], "big") + TTL
            found[place] = stamped, expires <= self.clock
            if self.kind.of_aging == "drop" and expires <= NOW:
                del found[place]
        new_states = (("mainState", "newMainState"), ("second", "newSecond")) if self.kind.migrates else ()
        for legacy, new in new_states:
            of_keys = self.blobs.get(legacy, {})
            rows = self.rows if legacy == "mainState" else {}
            for key in of_keys.keys() | rows.keys():
                content, stamp = of_keys.get(key, ({}, NOW))
                if key in self.flags or not self._stays(stamp) or not moves:
                    content = {}
                at = dict.fromkeys(content, stamp) | {name: self.stamps[key, name] for name in rows.get(key, {})}
                for name, value in (content | rows.get(key, {})).items():
                    written = self._nullable(value, at[name] if self.kind.ttl else None)
                    is_gone = self.kind.ttl and at[name] + TTL <= self.clock
                    if self._stays(at[name]):
                        found[self._named(new), self._key(key, size) + text(name)] = written, is_gone
        if self.kind.is_lazy:
            self._add_divided(found, moves=moves)
        if self.keeps_legacy or not self.kind.migrates:
            for state, of_keys in self.blobs.items():
                for key, (content, stamp) in of_keys.items():
                    is_gone = self.kind.ttl and stamp + TTL <= self.clock
                    found[self._named(state), self._key(key, size)] = (
                        self._blob(content, stamp, upgraded=self.kind.for_flink_2),
                        is_gone,
                    )
            for key in self.flags:
                found[self._named("isMigratedState"), self._key(key, size)] = b"\1", False
        if not self.kind.migrates:
            for (key, name), stamp in self.stamps.items():
                if name in self.rows.get(key, {}):
                    row = self._nullable(self.rows[key][name], stamp if self.kind.ttl else None)
                    is_gone = self.kind.ttl and stamp + TTL <= self.clock
                    found[self._named("newMainState"), self._key(key, size) + text(name)] = row, is_gone
        return found

    def _add_divided(self, found: Expected, *, moves: bool) -> None:
        """The blobs of a lazy run, or the flags that it sets in their place."""
        flag, size = self._named("isMigratedState"), self.kind.becomes[1]
        found |= {(flag, self._key(key, size)): (b"\1", False) for key in self.flags}
        for key, (content, stamp) in self.blobs.get("mainState", {}).items():
            if key not in self.flags and self._stays(stamp):
                left = self._named("mainState"), self._blob(content, stamp, upgraded=self.kind.for_flink_2)
                state, value = (flag, b"\1") if moves else left
                found[state, self._key(key, size)] = value, self.kind.ttl and stamp + TTL <= self.clock

    def _stays(self, stamp: int) -> bool:
        return not self.kind.ttl or self.keeps_expired or stamp + TTL > NOW


def random_job(chosen: random.Random) -> list[RandomOperator]:
    """A job of one operator, or of two."""
    uids = UIDS if chosen.random() < 0.3 else UIDS[:1]
    keeps_legacy, keeps_expired = chosen.random() < 0.2, chosen.random() < 0.3
    kinds = [Kind.by(chosen) for _ in uids]
    if chosen.random() < 0.3:
        # It is one for all operators.
        size = chosen.choice((8, 48, 128, 300, 1024))
        kinds = [replace(one, becomes=(one.becomes[0], size)) for one in kinds]
    if chosen.random() < 0.3:
        migrates = chosen.random() < 0.5
        kinds = [one.upgraded(migrates=migrates) for one in kinds]
    return [
        RandomOperator(uid, kind, chosen, keeps_legacy, keeps_expired) for uid, kind in zip(uids, kinds, strict=True)
    ]


def options(job: list[RandomOperator]) -> dict[str, Any]:
    """The plan of a run that migrates all maps of a job, or upgrades it."""
    migrates, to = job[0].kind.migrates, {"to": "flink-2"} if job[0].kind.for_flink_2 else {}
    operators = [{"operator": one.uid, "states": one.kind.planned} for one in job] if migrates else []
    on_contradiction = "rows" if migrates and any(one.kind.has_flag for one in job) else "stop"
    layout: dict[str, Any] = {"parallelism": {one.uid: one.kind.becomes[0] for one in job}}
    if any(one.kind.becomes[1] != one.kind.max_parallelism for one in job):
        layout["max_parallelism"] = job[0].kind.becomes[1]
    return {
        **layout,
        **to,
        # A job of Flink 1 can't write null by itself, so a run wants to be told.
        "nulls": "keep" if to and migrates else "stop",
        **({"lazy": True, "share": 0.3} if job[0].kind.is_lazy else {}),
        "largest_first": job[0].kind.is_lazy and not to and len(job[0].kind.extras) % 2 > 0,
        "operators": operators,
        "on_contradiction": on_contradiction,
        "accept_empty": 1.0 if migrates else None,
        "accept_expired": 1.0 if migrates else None,
        "now": NOW,
        "keep_legacy": migrates and job[0].keeps_legacy,
        "keep_expired": migrates and job[0].keeps_expired and any(one.kind.ttl for one in job),
        "state_ttls": [
            {"operator": one.uid, "state": AGING, "ttl_ms": TTL, "expired": one.kind.of_aging}
            for one in job
            if one.kind.of_aging and AGING in one.kind.extras
        ],
    }
