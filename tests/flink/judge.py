"""What Flink says a savepoint holds, against what the library says: read, and restored after it was rewritten."""

from __future__ import annotations

import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from flinkstate.keyed.compression import Compression
from flinkstate.metadata.metadata import InlineBytes, StreamHandle
from flinkstate.metadata.streams import open_stream
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.writing.operator_rewrite import Layout
from stateferry.basics.exit_codes import DAMAGED_OR_REFUSED
from stateferry.cli import main
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.steps import Step
from stateferry.verdict.outcomes import Outcome
from tests.flink import jars
from tests.flink.harness import FlinkError, FlinkHarness, Line, Made, Restored, by_state, restored_by_state
from tests.flink.jobs import Job, Operator
from tests.flink.scenarios import windows_read_back
from tests.support.rewriting import rewrite
from tests.support.verified_runs import STAGED, do_steps

NEVER_DUE = 3_000_000_000_000
"""Processing-time timers from here on don't fire while the tests run."""


# The harness of a version, with or without flink-scala and flink-avro on its class path.
Started = Callable[[str, bool], FlinkHarness]


class Make(Protocol):
    """Gives a job's savepoint; one that was made before is given again."""

    def __call__(self, version: str, job: Job, format_: str = "CANONICAL") -> Made: ...


@dataclass(frozen=True)
class Change:
    """A layout for all of a job's operators; None leaves it as it is."""

    parallelism: int | None = None
    max_parallelism: int | None = None
    compression: Compression = Compression.SOURCE

    def layout(self, job: Job) -> Layout:
        by_id = {operator_id(operator.uid): self.parallelism for operator in job.operators}
        parallelism = {id_: parallelism for id_, parallelism in by_id.items() if parallelism is not None}
        return Layout(parallelism, self.max_parallelism, self.compression)

    def job(self, job: Job) -> Job:
        """The job as it is started from a savepoint in that layout."""
        if self.parallelism is not None:
            job = with_parallelism(job, self.parallelism)
        if self.max_parallelism is not None:
            operators = tuple(replace(operator, max_parallelism=None) for operator in job.operators)
            job = replace(job, operators=operators, max_parallelism=self.max_parallelism)
        return job


def with_parallelism(job: Job, parallelism: int) -> Job:
    operators = tuple(replace(operator, parallelism=None) for operator in job.operators)
    return replace(job, operators=operators, parallelism=parallelism)


def rewritten(made: Made, job: Job, change: Change, target: Path) -> Path:
    rewrite(Savepoint.open(str(made.path)), str(target), change.layout(job))
    return target


# ---- reading


def answer(*arguments: str) -> str:
    """What the command line prints."""
    code, out, err = _run(*arguments)
    assert (code, err) == (0, "")
    return out


def refusal(*arguments: str) -> str:
    """The line with which the command line refuses its input, be it after some entries."""
    code, _, err = _run(*arguments)
    assert code == DAMAGED_OR_REFUSED
    return err


def _run(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(arguments)
    return code, out.getvalue(), err.getvalue()


def inspected(savepoint: Path) -> dict[str, dict[str, Any]]:
    """The facts about each operator, by its id."""
    facts = json.loads(answer("inspect", str(savepoint), "--json"))
    return {operator["id"]: operator for operator in facts["operators"]}


def dump_of(savepoint: Path, operator: str, state: str) -> tuple[str, ...]:
    return "dump", str(savepoint), "--operator", operator, "--state", state


def dumped(savepoint: Path, operator: str, state: str) -> list[Line]:
    text = answer(*dump_of(savepoint, operator, state))
    return [{"operator": operator, "state": state, **json.loads(line)} for line in text.split("\n")[:-1]]


def all_dumped(savepoint: Path, job: Job) -> list[Line]:
    places = [(operator.uid, name) for operator in declared(job).operators for name in keyed_names(operator)]
    return [line for operator, state in places for line in dumped(savepoint, operator, state)]


def declared(job: Job) -> Job:
    """The job, with what its window operators hold declared as states."""
    return windows_read_back(job) if any(operator.type == "window" for operator in job.operators) else job


def timer_names(operator: Operator) -> tuple[str, ...]:
    service = operator.timers.service if operator.timers else ""
    return tuple(f"_timer_state/{kind}_{service}" for kind in ("event", "processing")) if service else ()


def keyed_names(operator: Operator) -> tuple[str, ...]:
    return (*(state.name for state in operator.states), *timer_names(operator))


def keyed_lines(lines: Iterable[Line]) -> list[Line]:
    return [line for line in lines if "key" in line]


def shown_type(expression: str) -> str:
    """How people would name the type of an expression: sizes, nulls and what allows them don't belong to it."""
    plain = re.sub(r"\{\d+-\d+}|[? ]", "", expression)
    plain = re.sub(r"\bSql(Date|Time|Timestamp)\b", r"java.sql.\1", plain)
    plain = re.sub(r"\bScala(Tuple|Either)", r"\1", plain)
    plain = plain.replace("ProtobufText", "StringValue")
    while (start := re.search(r"(Padded)?Nullable<", plain)) is not None:
        end = _closing(plain, start.end())
        plain = plain[: start.start()] + plain[start.end() : end] + plain[end + 1 :]
    return plain


def _closing(text: str, position: int) -> int:
    depth = 1
    while depth:
        depth += {"<": 1, ">": -1}.get(text[position], 0)
        position += 1
    return position - 1


# ---- contents, byte by byte


def raw_entries(savepoint: Path | str) -> Counter[tuple[str, str, bytes, bytes]]:
    """Every entry of keyed state: its operator and state, the bytes of its key (key group included) and value."""
    out: Counter[tuple[str, str, bytes, bytes]] = Counter()
    opened = Savepoint.open(str(savepoint))
    for operator in opened.keyed_operators():
        for file in opened.open_files(operator):
            names = [state.name for state in file.header.states]
            for key_group in file.handle.range:
                for section in file.sections(key_group):
                    data = section.data.tobytes()
                    positions = (section.starts, section.key_ends, section.ends)
                    for start, key_end, end in zip(*(part.tolist() for part in positions), strict=True):
                        key, value = data[start + 4 : key_end], data[key_end + 4 : end]
                        out[operator.hex_id, names[section.state], key, value] += 1
    return out


def described_states(savepoint: Path) -> dict[tuple[str, int], tuple[bytes, dict[str, object]]]:
    """By operator and subtask: the bytes of the key serializer's snapshot, and how each state is described."""
    opened = Savepoint.open(str(savepoint))
    return {
        (operator.hex_id, file.subtask_file.subtask): (
            file.header.key_serializer.raw,
            {state.name: (state.kind, state.options, _raw(state.serializers)) for state in file.header.states},
        )
        for operator in opened.keyed_operators()
        for file in opened.open_files(operator)
    }


def _raw(serializers: Any) -> list[tuple[str, bytes]]:
    return sorted((name, snapshot.raw) for name, snapshot in serializers)


def handles(savepoint: Path) -> dict[tuple[str, int], object]:
    """By operator and subtask, all but where keyed state lies: ranges, operator and raw state to the byte, who has
    finished."""
    nowhere = InlineBytes("", b"")
    opened = Savepoint.open(str(savepoint))
    out: dict[tuple[str, int], object] = {}
    for operator in opened.metadata.operators:
        out[operator.hex_id, -1] = replace(operator, subtasks=())
        for task in operator.subtasks:
            held = task.managed_operator
            of_operator = None if held is None else (held.states, _content(opened, held.stream))
            ranged = None if task.managed_keyed is None else task.managed_keyed.range
            raw = [
                (replace(handle, stream=nowhere), _content(opened, handle.stream))
                for handle in (task.raw_keyed, task.raw_operator)
                if handle is not None
            ]
            out[operator.hex_id, task.index] = (task.finished, ranged, of_operator, raw)
    return out


def _content(savepoint: Savepoint, stream: StreamHandle) -> bytes:
    file, _, size = open_stream(savepoint.folder, stream)
    with file:
        return bytes(file.read(size))


# ---- restored


def plain(contents: dict[tuple[str, str], Counter[str]], *, key_groups: bool) -> dict[tuple[str, str], Counter[str]]:
    """The contents of states that hold anything, with or without the key groups of their entries."""
    if key_groups:
        return {place: texts for place, texts in contents.items() if texts}
    out: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for place, texts in contents.items():
        for text, count in texts.items():
            line = json.loads(text)
            line.pop("key_group", None)
            out[place][json.dumps(line, sort_keys=True)] += count
    return dict(out)


def key_groups(lines: Iterable[Line]) -> Counter[tuple[str, str, str, int]]:
    """The key group of each entry's key."""
    return Counter(
        (line["operator"], line["state"], json.dumps(line["key"], sort_keys=True), line["key_group"])
        for line in keyed_lines(lines)
    )


def due(lines: Iterable[Line]) -> list[Line]:
    """The timers that fire once a job runs and event time has reached its end."""
    timers = [line for line in lines if line["state"].startswith("_timer_state/")]
    return [line for line in timers if "processing" not in line["state"] or line["timestamp"] < NEVER_DUE]


def dealt(restored: Restored) -> dict[tuple[str, str, int], list[str]]:
    """Operator state as each subtask got it. Flink reads a subtask's files in no order, so the lists have none."""
    out: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    for line in restored.lines:
        if "subtask" in line:
            parts = [line.get("user_key"), line["value"]]
            out[line["operator"], line["state"], line["subtask"]].append(json.dumps(parts, sort_keys=True))
    return {place: sorted(texts) for place, texts in out.items()}


def upgraded(
    source: Path, home: Path, with_classes: bool = False, steps: tuple[Step, ...] = STAGED, **options: object
) -> Path:
    """The new savepoint of a run for Flink 2, whose report is green; without the step validate, it has none."""
    classes = [jars.class_path("1.20.0").partition(":")[0]] if with_classes else []
    told = {"source": str(source), "target": str(home / "new"), "job": "job", "operators": [], "to": "flink-2"}
    plan = plan_of({**told, "home": str(home), "classes": classes, **options})
    do_steps(Run.create(plan, plan.now), steps)
    return home / "new"


# Our own code, which shows a value that Flink has read: it is of another class, or broken.
_SHOWING = "stateferry.flink.types.Kind.show("


def observed(flink: FlinkHarness, job: Job, made: Made) -> tuple[Outcome, str]:
    """What real Flink does when it starts the job from a savepoint, and its exception."""
    job = declared(job)
    try:
        restored = flink.restore(made.path, job)
    except FlinkError as error:
        text = str(error)
        if "StateMigrationException" in text:
            return Outcome.REFUSED, text
        if _SHOWING in text and ".deserialize(" not in text:
            return Outcome.WRONG, text
        # Operator state is read whole at the start, and a list of it holds no nulls.
        reading = ".deserialize(" in text or "You cannot add null to a ListState" in text
        return (Outcome.FAILS if reading else Outcome.REFUSED), text
    equal = by_state(made.lines) == restored_by_state(restored, job) and not restored.problems
    return (Outcome.RESTORES if equal else Outcome.WRONG), ""


def check_restored(
    flink: FlinkHarness, savepoint: Path, job: Job, made: Made, *, moved: bool, with_nulls: tuple[str, ...] = ()
) -> Restored:
    """A running job finds all that was made, and no more: entries, timestamps, timers, each in its key group. `moved`:
    at another max parallelism, where Flink says what key group each key is in now. In the states `with_nulls`, a key
    whose value is null is for a job like one without value."""
    job = declared(job)
    restored = flink.restore(savepoint, job)
    problems = [one for one in restored.problems if one["state"] not in with_nulls]
    assert not problems, problems[:3]
    assert restored.timers_missed == 0
    found = restored_by_state(restored, job)
    assert plain(found, key_groups=not moved) == plain(by_state(made.lines), key_groups=not moved)
    fired, expected = by_state(restored.fired), by_state(due(made.lines))
    assert plain(fired, key_groups=not moved) == plain(expected, key_groups=not moved)
    return restored
