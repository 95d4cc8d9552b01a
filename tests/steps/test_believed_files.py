"""Each file that a later step believes is altered once: what is published then is what was validated, or nothing.

`BELIEVED` is the table of these files. Whatever the step says to an alteration, the target has no `_metadata`
afterwards, or it is, with all its files, to the byte as without the alteration. Savepoints that a plan names beside its
source are altered in `test_other_sources`.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from flinkstate.errors import StateferryError
from flinkstate.files.storage import Location
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import Metadata
from flinkstate.metadata.parse_metadata import parse_metadata
from stateferry.runs.control.target_metadata import TargetMetadata
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run, _digest
from stateferry.runs.record.step_facts import SnapshotFacts
from stateferry.runs.record.steps import Step
from stateferry.steps.workers import Fact, InProcess, Measure, Work
from tests.steps.test_nights_since import first_state
from tests.steps.test_nights_since import run as night
from tests.steps.test_steps_alone import control_of, plan_of, the_run
from tests.support.facts import kept_facts
from tests.support.in_process import do_step, interrupted
from tests.support.kill_points import Picture
from tests.support.legacy_states import LegacyState
from tests.support.native_nights import NightlyDatabase

__all__ = ["plan_of"]

DAY = 86_400_000
NOW = 100 * DAY
STEPS = ("snapshot", "migrate", "rescale", "validate", "cut_over", "tables")
OF_REHEARSAL = ("snapshot", "migrate", "rescale", "validate", "tables")
RUN = "home/runs/orders/one"
TARGET = "one"

Alter = Callable[[bytes, Random], bytes]


def flipped(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def cut(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data))]


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where numbers, words and truth values are: their container and key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        if isinstance(one, dict | list):
            yield from leaves(one)
        elif one is not None:
            yield value, key


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return {"passed": "failed", "failed": "passed"}.get(value) or f"{value[1:]}0"


def fact_changed(data: bytes, random: Random) -> bytes:
    content = json.loads(data)
    within = content["facts"] if "facts" in content and "step" in content else content
    found = list(leaves(within))
    holder, key = random.choice(found)
    holder[key] = other(holder[key])
    return json.dumps(content, indent=2).encode()


def choice_changed(data: bytes, _: Random) -> bytes:
    """A lazy run would move other keys."""
    content = json.loads(data)
    content["facts"]["lazy"][0]["last"] -= 1 << 60
    return json.dumps(content, indent=2).encode()


def row_dropped(data: bytes, _: Random) -> bytes:
    table, out = pq.read_table(io.BytesIO(data)), io.BytesIO()
    pq.write_table(table.slice(0, len(table) - 1), out)
    return out.getvalue()


@dataclass(frozen=True)
class Believed:
    """A file of the run's folder or of the target, and what happens when it is altered after `after`.

    `held` says what keeps the alteration out. `refused_by` is the step that says no; None if nothing depends on it, or
    on some of its bytes. `kind` is the kind of run in which the file is believed.
    """

    file: str
    written_by: str
    believed_by: str
    held: str
    after: str
    refused_by: tuple[str | None, ...]
    alter: Sequence[Alter] = (fact_changed,)
    kind: str = "canonical"


OWN_DIGEST = "the digest beside the facts in the same file"
BELIEVED = (
    Believed(f"{RUN}/to-publish/{METADATA}", "migrate", "cut_over", "it must be the staged one", "rescale",
             ("cut_over",), (flipped, cut)),
    Believed(f"{RUN}/to-publish/{METADATA}", "migrate", "cut_over", "it must be the staged one", "validate",
             ("cut_over",), (flipped, cut)),
    Believed(f"{RUN}/staged/{METADATA}", "migrate", "validate", "it is what is validated", "rescale",
             ("validate", "cut_over"), (flipped, cut)),
    Believed(f"{RUN}/staged/{METADATA}", "migrate", "cut_over", "its digest in the report", "validate",
             ("cut_over",), (flipped, cut)),
    Believed(f"{TARGET}/*-keyed-*", "migrate", "validate", "it is what is validated", "rescale",
             ("validate", "cut_over"), (flipped, cut)),
    Believed(f"{TARGET}/*-keyed-*", "migrate", "cut_over", "its digest in the report", "validate",
             ("cut_over",), (flipped, cut)),
    Believed(f"{TARGET}/*.sst", "migrate", "validate", "it is what is validated", "rescale", ("validate",),
             (flipped, cut)),
    Believed(f"{TARGET}/*.sst", "migrate", "cut_over", "its digest in the report", "validate", ("cut_over",),
             (flipped, cut)),
    Believed(f"{TARGET}/*MANIFEST*", "migrate", "validate", "it is what is validated", "rescale", ("validate",),
             (flipped, cut)),
    Believed(f"{TARGET}/*MANIFEST*", "migrate", "cut_over", "its digest in the report", "validate", ("cut_over",),
             (flipped, cut)),
    Believed(f"{TARGET}/*CURRENT", "migrate", "cut_over", "its digest in the report", "validate", ("cut_over",),
             (flipped, cut)),
    Believed(f"{TARGET}/*-meta", "migrate", "cut_over", "its digest in the report", "validate", ("cut_over",),
             (flipped, cut)),
    Believed(f"{RUN}/report.json", "validate", "cut_over", "its digest in validate.json", "validate", ("cut_over",),
             (fact_changed, flipped)),
    Believed(f"{RUN}/steps/snapshot.json", "snapshot", "migrate, and all steps behind it", OWN_DIGEST, "snapshot",
             ("migrate",)),
    Believed(f"{RUN}/steps/digests.json", "migrate", "validate, for what it hasn't read", OWN_DIGEST, "rescale",
             ("validate",)),
    Believed(f"{RUN}/steps/claim.json", "migrate", "cut_over, for the target's permissions", OWN_DIGEST, "validate",
             ("cut_over",)),
    Believed(f"{RUN}/steps/validate.json", "validate", "cut_over", OWN_DIGEST, "validate", ("cut_over",)),
    Believed(f"{RUN}/steps/accounts.json", "validate", "tables", OWN_DIGEST, "cut_over", ("tables",)),
    Believed(f"{RUN}/steps/rescale.json", "rescale", "validate, for the report's text", OWN_DIGEST, "rescale",
             ("validate",)),
    Believed(f"{RUN}/steps/source_key_groups.json", "snapshot", "pages", OWN_DIGEST, "snapshot", ()),
    Believed(f"{RUN}/steps/staged_key_groups.json", "validate", "pages", OWN_DIGEST, "validate", ()),
    Believed(f"{RUN}/steps/layout.json", "snapshot", "pages", OWN_DIGEST, "snapshot", ()),
    Believed(f"{RUN}/steps/prediction.json", "snapshot", "migrate, which keeps it, and pages", OWN_DIGEST, "snapshot",
             ("migrate",)),
    Believed(f"{RUN}/steps/cut_over.json", "cut_over", "pages", OWN_DIGEST, "cut_over", ()),
    Believed(f"{RUN}/rescale-plan.json", "migrate", "pages", "nothing depends on it", "rescale", (), (cut,)),
    Believed(f"{RUN}/plan.json", "the first step", "all", "it must be the plan that was given", "validate",
             ("cut_over",), (flipped, cut)),
    Believed(f"{RUN}/state.json", "each step", "each step", "the catalog's record counts", "validate",
             ("cut_over", None), (flipped, cut)),
    Believed(f"{RUN}/report.html", "validate", "people", "nothing depends on it", "validate", (), (cut,)),
    Believed(f"{RUN}/temporary.json", "each step", "cleaning", "only folders with our mark are removed", "validate",
             (), (flipped, cut)),
    Believed(f"{RUN}/staged/*-keyed-*", "migrate", "validate", "it is what is validated", "rescale", ("validate",),
             (flipped, cut), "rehearsal"),
    Believed(f"{RUN}/steps/snapshot.json", "snapshot", "migrate, for the keys that are moved", OWN_DIGEST, "snapshot",
             ("migrate",), (choice_changed, fact_changed), "lazy"),
    Believed(f"{RUN}/steps/snapshot.json", "snapshot", "validate, for the keys that are moved", OWN_DIGEST, "rescale",
             ("validate",), (choice_changed,), "lazy"),
    Believed(f"{RUN}/steps/migrate.json", "migrate", "rescale", OWN_DIGEST, "migrate", ("rescale",)),
    Believed(f"{RUN}/steps/exchange.json", "migrate", "rescale", OWN_DIGEST, "migrate", ("rescale",), kind="exchange"),
    Believed(f"{RUN}/exchange/written", "migrate", "rescale", "its digest in exchange.json", "migrate", ("rescale",),
             (flipped, cut), "exchange"),
    Believed(f"{RUN}/exchange/*/directory-*", "migrate", "rescale", "its digest in exchange.json", "migrate",
             ("rescale",), (flipped, cut), "exchange"),
    Believed(f"{RUN}/exchange/*/0*", "migrate", "rescale", "digests that the directory leads to", "migrate",
             ("rescale",), (flipped, cut), "exchange"),
)  # fmt: skip
# What no step of the run believes any more when it is complete, or what isn't altered here.
NOT_BELIEVED = {
    "plan.json": "the command's own argument",
    "home/catalog.db": "the database in which the publication is",
    f"{RUN}/state.lock": "empty",
    f"{RUN}/steps/written_tables.json": "the last step's",
    f"{RUN}/steps/tables.json": "the last step's",
    f"{TARGET}/{METADATA}": "what is published; another one there is named",
    f"{TARGET}/*.claim": "empty; its name says which run writes there",
    "home/warehouse/*": "the last step's, which compares what it has written",
    "source/*": "the source; damage in it has tests of its own",
}


@dataclass(frozen=True)
class World:
    """A run, its pictures behind each step, and what it published."""

    root: Path
    plan: str
    pictures: dict[str, Picture]
    published: dict[str, bytes]
    steps: tuple[str, ...] = STEPS

    def do(self, step: str, workers: InProcess | None = None) -> int:
        return do_step(step, "--plan", self.plan, workers=workers)

    def target(self) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in sorted((self.root / TARGET).glob("*"))}

    def go_on(self, after: str) -> str | None:
        """Does all steps behind this one; returns the one that said no."""
        for step in self.steps[self.steps.index(after) + 1 :]:
            if self.do(step):
                return step
        return None

    def expect_nothing_else_published(self) -> None:
        target = self.root / TARGET
        assert not (target / METADATA).exists() or self.target() == self.published


def world_of(root: Path, **options: object) -> World:
    root.mkdir()
    blobs = {f"key-{number}": ({"a": number, "b": 1}, NOW - number * DAY // 2) for number in range(40)}
    LegacyState(blobs=blobs, ttl=True).write(str(root / "source"))
    state = {"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState", "ttl_ms": 30 * DAY}
    values = {
        "job": "orders", "run_id": "one", "now": NOW, "source": str(root / "source"), "target": str(root / TARGET),
        "home": str(root / "home"), "operators": [{"operator": "main", "states": [state]}], "parallelism": 2, **options,
    }  # fmt: skip
    plan = root / "plan.json"
    plan.write_text(json.dumps(values))
    pictures, steps = {}, OF_REHEARSAL if options.get("rehearse") else STEPS
    for step in steps:
        assert do_step(step, "--plan", str(plan)) == 0
        pictures[step] = Picture.of(root)
    world = World(root, str(plan), pictures, {}, steps)
    return replace(world, published=world.target())


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], World]:
    known: dict[str, World] = {}

    def of(kind: str) -> World:
        if kind not in known:
            known[kind] = world_of(tmp_path_factory.mktemp("worlds") / kind, **OPTIONS[kind])
        return known[kind]

    return of


OPTIONS: dict[str, dict[str, object]] = {
    "canonical": {},
    "native": {"output_format": "native"},
    "lazy": {"lazy": True, "share": 0.5},
    "rehearsal": {"rehearse": True},
    "exchange": {"max_parallelism": 300},
}


def kind_of(believed: Believed) -> str:
    return "native" if believed.file.endswith((".sst", "MANIFEST*", "CURRENT", "-meta")) else believed.kind


CASES = [
    pytest.param(one, alter, id=f"{kind_of(one)}: {one.file.rpartition('/')[2]} after {one.after}: {alter.__name__}")
    for one in BELIEVED
    for alter in one.alter
]


@pytest.mark.slow
@pytest.mark.matrix(most=3)
@pytest.mark.parametrize(("believed", "alter"), CASES)
def test_what_is_altered_is_not_published(
    believed: Believed, alter: Alter, worlds: Callable[[str], World], capsys: pytest.CaptureFixture[str]
) -> None:
    world, seed = worlds(kind_of(believed)), Random(f"{believed.file} {believed.after} {alter.__name__}")
    world.pictures[believed.after].restore(world.root)
    files = sorted(world.root.glob(believed.file))
    assert files, "a run has no such file"
    file = seed.choice(files)
    file.write_bytes(alter(file.read_bytes(), seed))
    refused = world.go_on(believed.after)
    assert refused in (believed.refused_by or (None,)), capsys.readouterr().err
    world.expect_nothing_else_published()
    if (
        refused == "cut_over"
        and "steps" not in believed.file
        and not believed.file.endswith(("plan.json", "state.json"))
    ):
        for step in STEPS[1:]:
            assert world.do(step) == 0
        assert world.target() == world.published


@pytest.mark.slow
@pytest.mark.parametrize("kind", OPTIONS)
def test_the_table_has_every_file_of_a_run(kind: str, worlds: Callable[[str], World]) -> None:
    known = [*(one.file.replace("**/", "*") for one in BELIEVED), *NOT_BELIEVED]
    for picture in worlds(kind).pictures.values():
        files = [name for name, content in picture.content.items() if content is not None]
        assert [name for name in files if not any(fnmatch(name, one) for one in known)] == []


def kept_metadata(change: Callable[[Metadata, Metadata], Metadata]) -> Callable[[World], None]:
    def altered(world: World) -> None:
        file = world.root / RUN / "to-publish" / METADATA
        own, source = (parse_metadata(one.read_bytes(), METADATA) for one in (file, world.root / "source" / METADATA))
        file.write_bytes(build_metadata(change(own, source)))

    return altered


def _keyed(change: Callable[[list[Any]], list[Any]]) -> Callable[[World], None]:
    """Changes the handles of the operator's subtasks."""

    def changed(own: Metadata, _: Metadata) -> Metadata:
        (operator,) = own.operators
        handles = change([one.managed_keyed for one in operator.subtasks])
        subtasks = (replace(one, managed_keyed=handle) for one, handle in zip(operator.subtasks, handles, strict=True))
        return replace(own, operators=(replace(operator, subtasks=tuple(subtasks)),))

    return kept_metadata(changed)


def _operator(**values: object) -> Callable[[World], None]:
    return kept_metadata(
        lambda own, _: replace(own, operators=tuple(replace(one, **values) for one in own.operators))  # type: ignore[arg-type]
    )


WELL_FORMED: dict[str, Callable[[World], None]] = {
    "a handle dropped": _keyed(lambda handles: [handles[0], None]),
    "two handles exchanged": _keyed(lambda handles: handles[::-1]),
    "one handle twice": _keyed(lambda handles: [handles[0], handles[0]]),
    "another checkpoint id": kept_metadata(lambda own, _: replace(own, checkpoint_id=own.checkpoint_id + 1)),
    "the source's own": kept_metadata(lambda _, source: source),
    "no operators": kept_metadata(lambda own, _: replace(own, operators=())),
    "another name of the operator": _operator(name="other"),
    "another parallelism": _operator(parallelism=3),
    "a byte behind": lambda world: _append(world.root / RUN / "to-publish" / METADATA),
    "none": lambda world: (world.root / RUN / "to-publish" / METADATA).unlink(),
}


def _append(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.parametrize("after_record", [False, True], ids=["before the record", "killed behind the record"])
@pytest.mark.parametrize("how", WELL_FORMED)
def test_another_metadata_that_flink_could_read_is_not_published(
    how: str,
    after_record: bool,
    worlds: Callable[[str], World],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = worlds("canonical")
    world.pictures["validate"].restore(world.root)
    if after_record:
        with monkeypatch.context() as patch:
            patch.setattr(TargetMetadata, "roll_forward", interrupted)
            assert world.do("cut_over") == 130
    WELL_FORMED[how](world)
    capsys.readouterr()
    assert world.do("cut_over") != 0
    assert not (world.root / TARGET / METADATA).exists()
    said = capsys.readouterr().err
    assert "to-publish/_metadata" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("after", ["validate", "tables"])
def test_a_metadata_that_another_hand_put_into_the_target_is_named(
    after: str, worlds: Callable[[str], World], capsys: pytest.CaptureFixture[str]
) -> None:
    world = worlds("canonical")
    world.pictures[after].restore(world.root)
    shutil.copy(world.root / "source" / METADATA, world.root / TARGET / METADATA)
    assert world.do("cut_over") == 1
    said = capsys.readouterr().err
    assert "that was validated, so nothing is published" in said or "start no job from it" in said
    with control_of(world.root) as control:
        assert (control.standing("orders") is not None) == (after == "tables")


def test_a_run_that_only_calls_itself_published_is_not(
    worlds: Callable[[str], World], capsys: pytest.CaptureFixture[str]
) -> None:
    world = worlds("canonical")
    world.pictures["rescale"].restore(world.root)
    file = world.root / RUN / "state.json"
    file.write_text(file.read_text().replace('"staged"', '"published"'))
    assert world.do("cut_over") == 1
    assert "the catalog has no publication of it" in capsys.readouterr().err
    assert not (world.root / TARGET / METADATA).exists()


def test_another_plan_has_no_steps_done(worlds: Callable[[str], World], capsys: pytest.CaptureFixture[str]) -> None:
    world = worlds("canonical")
    world.pictures["validate"].restore(world.root)
    for file in (world.root / RUN / "plan.json", Path(world.plan)):
        file.write_text(file.read_text().replace(f"{30 * DAY}", f"{60 * DAY}"))
    assert world.do("cut_over") == 1
    assert "comes after snapshot" in capsys.readouterr().err
    assert not (world.root / TARGET / METADATA).exists()


@dataclass(frozen=True)
class _ExchangeAltered(InProcess):
    """Alters a file of the exchange between those that write it and those that read it."""

    exchange: Path = Path()
    alter: Alter = cut

    def do(
        self, step: str, work: Sequence[Work], fn: Callable[[Work], Fact], measure: Measure[Fact] | None = None
    ) -> list[Fact]:
        done = InProcess.do(self, step, work, fn, measure)
        if step == f"{Step.MIGRATE}: send":
            file = max((one for one in self.exchange.rglob("*") if one.is_file()), key=lambda one: one.stat().st_size)
            file.write_bytes(self.alter(file.read_bytes(), Random(1)))
        return done


@pytest.mark.matrix(most=1)
@pytest.mark.slow
@pytest.mark.parametrize("alter", [flipped, cut])
def test_an_exchange_that_is_altered_under_way_is_not_published(
    alter: Alter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = world_of(tmp_path / "world", max_parallelism=300)
    world.pictures["snapshot"].restore(world.root)
    codes = [world.do("migrate", _ExchangeAltered(exchange=world.root / RUN / "exchange", alter=alter))]
    codes += [world.do(step) for step in ("rescale", "validate") if not any(codes)]
    assert any(codes), capsys.readouterr().err
    assert 70 not in codes
    assert world.go_on("snapshot") is None
    assert world.target() == world.published


KEPT_AGAIN = ("snapshot", "digests", "rescale", "claim", "validate")


@pytest.mark.slow
@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", KEPT_AGAIN)
def test_facts_that_are_altered_with_their_digest_let_nothing_else_through(
    name: str, seed: int, worlds: Callable[[str], World]
) -> None:
    """As somebody would alter them who knows how they are kept."""
    world, random = worlds("native"), Random(f"{name} {seed}")
    after = {"snapshot": "snapshot", "validate": "validate"}.get(name, "rescale")
    world.pictures[after].restore(world.root)
    file = world.root / RUN / "steps" / f"{name}.json"
    content = json.loads(fact_changed(file.read_bytes(), random))
    file.write_text(json.dumps(content | {"digest": _digest(content["facts"])}))
    assert world.go_on(after) != "tables"
    world.expect_nothing_else_published()
    assert the_run(world.root, "one").state.value in ("published", "failed", "running", "staged", "verified")


NIGHT = "home/runs/nights/nights-0"
# What a night believes of the night before, whose source and tables it goes on from.
OF_THE_NIGHT_BEFORE: dict[str, tuple[str, Sequence[Alter]]] = {
    f"{NIGHT}/steps/snapshot.json": ("its digest; else everything is read", (fact_changed, cut)),
    f"{NIGHT}/steps/counted.json": ("its digest; else everything is read", (fact_changed, cut)),
    f"{NIGHT}/blob-times": ("the digest it begins with; else everything is read", (flipped, cut)),
    f"{NIGHT}/plan.json": ("must be alike; else everything is read", (flipped, cut)),
    f"{NIGHT}/state.json": ("must be green; else everything is read", (flipped, cut)),
    f"job/chk-0/{METADATA}": ("its digest of that night; else everything is read", (flipped, cut)),
    "job/chk-0/MANIFEST-000001": ("the validation reads everything", (flipped, cut)),
    "home/warehouse/**/map_entry/data/**/*.parquet": ("the tables step compares them", (row_dropped, cut)),
    "home/warehouse/**/key_ledger/data/**/*.parquet": ("the tables step compares them", (row_dropped, cut)),
}


@dataclass(frozen=True)
class TwoNights:
    """What a night before has left, and what a night finds that nobody has disturbed."""

    root: Path
    before: Picture
    found: tuple[Any, ...]


def second_night(root: Path) -> tuple[Any, ...]:
    report, run = night(root / "job" / "chk-1", root, 1, state={"ttl_ms": 10**9})
    assert report.is_green, report.failed
    facts, staged = kept_facts(run, SnapshotFacts), root / "home" / "runs" / "nights" / "nights-1" / "staged"
    return facts.states, facts.met, facts.ages, {file.name: file.read_bytes() for file in staged.iterdir()}


@pytest.fixture(scope="module")
def two_nights(tmp_path_factory: pytest.TempPathFactory) -> TwoNights:
    root = tmp_path_factory.mktemp("nights") / "world"
    database, state = NightlyDatabase(root / "job"), first_state(ttl=True)
    database.flush(state)
    database.checkpoint(0)
    assert night(root / "job" / "chk-0", root, 0, state={"ttl_ms": 10**9})[0].is_green
    database.flush(state.with_changes(blobs=dict(list(state.blobs.items())[3:])))
    database.checkpoint(1)
    before = Picture.of(root)
    found = second_night(root)
    (facts,) = (one for one in (the_night(root).facts(SnapshotFacts),) if one is not None)
    assert any("have changed since run nights-0" in note for note in facts.notes)
    return TwoNights(root, before, found)


def the_night(root: Path) -> Run:
    return Run.open(Location.of(str(root / "home" / "runs" / "nights" / "nights-1")))


@pytest.mark.slow
@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(
    ("file", "alter"),
    [
        pytest.param(file, alter, id=f"{file.rpartition('home/')[2]}: {alter.__name__}")
        for file, (_, several) in OF_THE_NIGHT_BEFORE.items()
        for alter in several
    ],
)
def test_what_is_altered_of_the_night_before_changes_nothing_of_the_next(
    file: str, alter: Alter, two_nights: TwoNights
) -> None:
    two_nights.before.restore(two_nights.root)
    seed, files = Random(f"{file} {alter.__name__}"), sorted(two_nights.root.glob(file))
    assert files, "a night has no such file"
    altered = seed.choice(files)
    altered.write_bytes(alter(altered.read_bytes(), seed))
    if "warehouse" in file or "MANIFEST" in file:
        # It may say so, or be red: then nothing of it counts.
        with suppress(StateferryError, AssertionError):
            assert second_night(two_nights.root) == two_nights.found
            return
        assert the_night(two_nights.root).state is RunState.FAILED
    else:
        assert second_night(two_nights.root) == two_nights.found
