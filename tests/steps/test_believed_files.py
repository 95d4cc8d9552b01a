"""Each file that a later step believes is altered once: what is published then is what was validated, or nothing.

`BELIEVED` is the table of these files. Whatever the step says to an alteration, the target has no `_metadata`
afterwards, or it is, with all its files, to the byte as without the alteration.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import Metadata
from flinkstate.metadata.parse_metadata import parse_metadata
from stateferry.runs.control.target_metadata import TargetMetadata
from stateferry.runs.record.facts import Step
from stateferry.runs.record.runs import _digest
from stateferry.steps.workers import Fact, InProcess, Measure, Work
from tests.steps.test_steps_alone import control_of, plan_of, the_run
from tests.support.in_process import do_step
from tests.support.kill_points import Picture
from tests.support.legacy_states import LegacyState

__all__ = ["plan_of"]

DAY = 86_400_000
NOW = 100 * DAY
STEPS = ("snapshot", "rescale", "validate", "cut_over", "tables")
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


@dataclass(frozen=True)
class Believed:
    """A file of the run's folder or of the target, and what happens when it is altered after `after`.

    `held` says what keeps the alteration out. `refused_by` is the step that says no; None if nothing depends on it.
    """

    file: str
    written_by: str
    believed_by: str
    held: str
    after: str
    refused_by: tuple[str, ...]
    alter: Sequence[Alter] = (fact_changed,)


OWN_DIGEST = "the digest beside the facts in the same file"
BELIEVED = (
    Believed(f"{RUN}/to-publish/{METADATA}", "rescale", "cut_over", "it must be the staged one", "rescale",
             ("cut_over",), (flipped, cut)),
    Believed(f"{RUN}/to-publish/{METADATA}", "rescale", "cut_over", "it must be the staged one", "validate",
             ("cut_over",), (flipped, cut)),
    Believed(f"{RUN}/staged/{METADATA}", "rescale", "validate", "it is what is validated", "rescale",
             ("validate", "cut_over"), (flipped, cut)),
    Believed(f"{RUN}/staged/{METADATA}", "rescale", "cut_over", "its digest in the report", "validate",
             ("cut_over",), (flipped, cut)),
    Believed(f"{TARGET}/*-keyed-*", "rescale", "validate", "it is what is validated", "rescale",
             ("validate", "cut_over"), (flipped, cut)),
    Believed(f"{TARGET}/*-keyed-*", "rescale", "cut_over", "its digest in the report", "validate",
             ("cut_over",), (flipped, cut)),
    Believed(f"{TARGET}/*.sst", "rescale", "validate", "it is what is validated", "rescale", ("validate",),
             (flipped, cut)),
    Believed(f"{TARGET}/*.sst", "rescale", "cut_over", "its digest in the report", "validate", ("cut_over",),
             (flipped, cut)),
    Believed(f"{TARGET}/*MANIFEST*", "rescale", "validate", "it is what is validated", "rescale", ("validate",),
             (flipped, cut)),
    Believed(f"{TARGET}/*MANIFEST*", "rescale", "cut_over", "its digest in the report", "validate", ("cut_over",),
             (flipped, cut)),
    Believed(f"{TARGET}/*CURRENT", "rescale", "cut_over", "its digest in the report", "validate", ("cut_over",),
             (flipped, cut)),
    Believed(f"{TARGET}/*-meta", "rescale", "cut_over", "its digest in the report", "validate", ("cut_over",),
             (flipped, cut)),
    Believed(f"{RUN}/report.json", "validate", "cut_over", "its digest in validate.json", "validate", ("cut_over",),
             (fact_changed, flipped)),
    Believed(f"{RUN}/steps/snapshot.json", "snapshot", "validate, and rescale of a lazy run", OWN_DIGEST, "snapshot",
             ("rescale", "validate")),
    Believed(f"{RUN}/steps/digests.json", "rescale", "validate, for what it hasn't read", OWN_DIGEST, "rescale",
             ("validate",)),
    Believed(f"{RUN}/steps/claim.json", "rescale", "cut_over, for the target's permissions", OWN_DIGEST, "validate",
             ("cut_over",)),
    Believed(f"{RUN}/steps/validate.json", "validate", "cut_over", OWN_DIGEST, "validate", ("cut_over",)),
    Believed(f"{RUN}/steps/accounts.json", "validate", "tables", OWN_DIGEST, "cut_over", ("tables",)),
    Believed(f"{RUN}/steps/rescale.json", "rescale", "validate, for the report's text", OWN_DIGEST, "rescale",
             ("validate",)),
    Believed(f"{RUN}/steps/source_key_groups.json", "snapshot", "pages", OWN_DIGEST, "snapshot", ()),
    Believed(f"{RUN}/blob-times", "snapshot", "the next night", "the digest it begins with; it is left out then",
             "snapshot", (), (flipped, cut)),
    Believed(f"{RUN}/rescale-plan.json", "rescale", "pages", "nothing depends on it", "rescale", (), (cut,)),
    Believed(f"{RUN}/progress.json", "each step", "status", "nothing depends on it", "validate", (), (cut,)),
)  # fmt: skip


@dataclass(frozen=True)
class World:
    """A run, its pictures behind each step, and what it published."""

    root: Path
    plan: str
    pictures: dict[str, Picture]
    published: dict[str, bytes]

    def do(self, step: str, workers: InProcess | None = None) -> int:
        return do_step(step, "--plan", self.plan, workers=workers)

    def target(self) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in sorted((self.root / TARGET).iterdir())}

    def go_on(self, after: str) -> str | None:
        """Does all steps behind this one; returns the one that said no."""
        for step in STEPS[STEPS.index(after) + 1 :]:
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
    pictures = {}
    for step in STEPS:
        assert do_step(step, "--plan", str(plan)) == 0
        pictures[step] = Picture.of(root)
    world = World(root, str(plan), pictures, {})
    return replace(world, published=world.target())


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], World]:
    known: dict[str, World] = {}

    def of(kind: str) -> World:
        if kind not in known:
            options: dict[str, dict[str, object]] = {"native": {"output_format": "native"}}
            known[kind] = world_of(tmp_path_factory.mktemp("worlds") / kind, **options.get(kind, {}))
        return known[kind]

    return of


def kind_of(believed: Believed) -> str:
    return "native" if believed.file.endswith((".sst", "MANIFEST*", "CURRENT", "-meta")) else "canonical"


CASES = [
    pytest.param(one, alter, id=f"{one.file.rpartition('/')[2]} after {one.after}: {alter.__name__}")
    for one in BELIEVED
    for alter in one.alter
]


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.parametrize(("believed", "alter"), CASES)
def test_what_is_altered_is_not_published(
    believed: Believed, alter: Alter, worlds: Callable[[str], World], capsys: pytest.CaptureFixture[str]
) -> None:
    world, seed = worlds(kind_of(believed)), Random(f"{believed.file} {believed.after} {alter.__name__}")
    world.pictures[believed.after].restore(world.root)
    files = sorted(world.root.glob(believed.file))
    if not files:
        assert not believed.refused_by, "a run has no such file"
        return
    file = seed.choice(files)
    file.write_bytes(alter(file.read_bytes(), seed))
    refused = world.go_on(believed.after)
    assert refused in (believed.refused_by or (None,)), capsys.readouterr().err
    world.expect_nothing_else_published()
    if refused == "cut_over" and "steps" not in believed.file:
        for step in ("rescale", "validate", "cut_over", "tables"):
            assert world.do(step) == 0
        assert world.target() == world.published


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

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(TargetMetadata, "roll_forward", killed)
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
        if step == f"{Step.RESCALE}: send":
            file = max((one for one in self.exchange.rglob("*") if one.is_file()), key=lambda one: one.stat().st_size)
            file.write_bytes(self.alter(file.read_bytes(), Random(1)))
        return done


@pytest.mark.slow
@pytest.mark.parametrize("alter", [flipped, cut])
def test_an_exchange_that_is_altered_under_way_is_not_published(
    alter: Alter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = world_of(tmp_path / "world", max_parallelism=300)
    world.pictures["snapshot"].restore(world.root)
    codes = [world.do("rescale", _ExchangeAltered(exchange=world.root / RUN / "exchange", alter=alter))]
    codes += [world.do("validate")] if not any(codes) else []
    assert any(codes), capsys.readouterr().err
    assert 70 not in codes
    assert world.go_on("snapshot") is None
    assert world.target() == world.published


KEPT_AGAIN = ("snapshot", "digests", "rescale", "claim", "validate")


@pytest.mark.slow
@pytest.mark.matrix
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
