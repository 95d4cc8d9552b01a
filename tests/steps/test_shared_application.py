"""Steps of one run in one application: the same results as in one each, what it prints, and when it ends."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import TransientError
from stateferry.basics.exit_codes import MAY_PASS
from stateferry.cli import shared_steps
from stateferry.cli.engine import OpenWorkers
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.rejecting import reject
from stateferry.runs.control.shared_application import Output, SharedApplication
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.live_progress import LiveProgress
from stateferry.runs.record.run_folder import run_folder
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.steps.workers import InProcess, Watch
from tests.steps.test_steps_alone import PlanOf
from tests.steps.test_steps_alone import plan_of as plan_file

__all__ = ["plan_file"]

PATIENCE = 240


@dataclass(frozen=True)
class Watched(InProcess):
    """Workers that say how far they are, as Spark's do."""

    watch: Watch = lambda _: None

    def do(self, step: str, work: Any, fn: Any, measure: Any = None) -> Any:
        done = super().do(step, work, fn, measure)
        self.watch(LiveProgress(step, len(done), len(work), 0.1, ended=True))
        return done


def in_process(_: str, watch: Watch) -> nullcontext[InProcess]:
    return nullcontext(Watched(watch=watch))


class Served:
    """An application in a thread, and the run that it serves."""

    def __init__(self, run: Run | None, folder: str, uri: str, open_workers: OpenWorkers) -> None:
        self.run, self.folder, self.uri = run, folder, uri
        self.codes: list[int] = []
        argv = ["--run", folder, "--application", "a", "--catalog", uri]
        self.thread = threading.Thread(
            target=lambda: self.codes.append(shared_steps.main(open_workers, argv)), daemon=True
        )
        with SharedApplication(uri, folder) as shared:
            shared.announce("a")
        self.thread.start()

    def ask(self, step: str) -> Output:
        with SharedApplication(self.uri, self.folder) as shared:
            number = shared.ask(step)
            assert number is not None, "the application has ended"
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                output = shared.output(number)
                assert output is not None, "the application has ended before it answered"
                if output.exit_code is not None:
                    return output
                time.sleep(0.01)
            raise AssertionError(f"{step} isn't done after {PATIENCE} s")

    def code(self) -> int:
        """Its exit code, when it has ended."""
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "the application goes on"
        return self.codes[0]


Serve = Callable[..., Served]


@pytest.fixture
def serve(plan_file: PlanOf) -> Iterator[Serve]:
    served: list[Served] = []

    def start(*, exists: bool = True, open_workers: OpenWorkers = in_process, **plan: object) -> Served:
        values = plan_of(json.loads(Path(plan_file("night", **plan)).read_bytes()), "the plan")
        run = Run.create(values, 0) if exists else None
        folder = run_folder(values.home, values.job, values.run_id).shown
        served.append(Served(run, folder, values.catalog_uri, open_workers))
        return served[-1]

    yield start
    for one in served:
        with SharedApplication(one.uri, one.folder) as shared:
            shared.dismiss()
        one.thread.join(PATIENCE)


def test_a_run_needs_one_application_which_ends_with_its_last_step(serve: Serve) -> None:
    served = serve()
    for step in ("snapshot", "migrate", "rescale", "validate", "cut_over"):
        output = served.ask(step)
        assert output.exit_code == 0, output.text
        assert f"{step} of run night is done" in output.text
        if step == "rescale":
            assert "rescale: nothing to do" in output.text
        else:
            assert " 100%; " in output.text, "the progress is passed on too"
    assert served.ask("tables").exit_code == 0
    assert served.code() == 0
    assert served.run is not None
    assert served.run.state is RunState.PUBLISHED


def test_a_rehearsal_ends_with_its_tables(serve: Serve) -> None:
    served = serve(rehearse=True)
    for step in ("snapshot", "migrate", "rescale", "validate", "tables"):
        assert served.ask(step).exit_code == 0
    assert served.code() == 0


def test_it_waits_for_a_run_that_is_planned_later(serve: Serve, plan_file: PlanOf) -> None:
    served = serve(exists=False)
    with SharedApplication(served.uri, served.folder) as shared:
        end = time.monotonic() + PATIENCE
        while not shared.is_ready():
            assert time.monotonic() < end, "it doesn't say that its workers are there"
            time.sleep(0.01)
    Run.create(plan_of(json.loads(Path(plan_file("night")).read_bytes()), "the plan"), 0)
    assert served.ask("snapshot").exit_code == 0


def test_a_run_is_planned_when_it_has_a_state(plan_file: PlanOf) -> None:
    run = Run.create(plan_of(json.loads(Path(plan_file("night")).read_bytes()), "the plan"), 0)
    state = Path(run.state_file.shown)
    content = state.read_bytes()
    state.unlink()
    threading.Timer(0.5, lambda: state.write_bytes(content)).start()
    found = shared_steps._planned(run.folder, os.getppid())
    assert found is not None
    assert found.state is RunState.PLANNED


def test_a_refused_step_is_answered_and_ends_it(serve: Serve) -> None:
    served = serve(source="/nowhere")
    output = served.ask("snapshot")
    assert output.exit_code not in (0, MAY_PASS)
    assert "stateferry: " in output.text
    assert served.code() == 0
    assert served.run is not None
    assert served.run.state is RunState.FAILED


def test_a_lost_engine_is_answered_and_ends_it_so_that_the_next_try_has_another(serve: Serve) -> None:
    class Lost(InProcess):
        def do(self, *_: Any) -> Any:
            raise TransientError("Spark's JVM was lost")

    served = serve(open_workers=lambda *_: nullcontext(Lost()))
    output = served.ask("snapshot")
    assert (output.exit_code, "Spark's JVM was lost" in output.text) == (MAY_PASS, True)
    assert served.code() == 0


def test_it_ends_when_nobody_asks(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_steps, "_SECONDS_BETWEEN", 0.3)
    served = serve()
    assert served.ask("snapshot").exit_code == 0
    assert served.code() == 0
    with SharedApplication(served.uri, served.folder) as shared:
        assert shared.ask("rescale") is None


def test_it_ends_when_the_run_is_rejected_between_two_steps_and_frees_the_job(serve: Serve) -> None:
    served = serve()
    assert served.ask("snapshot").exit_code == 0
    assert served.run is not None
    with Control(served.uri) as control:
        reject(served.run, control, "it differs from its rehearsal")
        assert served.code() == 0
        assert control.lease_of("orders") is None


def test_it_ends_at_once_if_the_run_is_over(serve: Serve) -> None:
    first = serve(rehearse=True)
    for step in ("snapshot", "migrate", "rescale", "validate", "tables"):
        assert first.ask(step).exit_code == 0
    assert first.code() == 0
    # A person has cleared the task.
    assert serve(rehearse=True).code() == 0


def test_it_ends_when_nobody_is_there_who_waits_for_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve()
    assert served.ask("snapshot").exit_code == 0
    monkeypatch.setattr("os.getppid", lambda: 0)
    assert served.code() == 0


def test_it_works_on_while_the_catalog_is_away(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stateferry.runs.control.shared_application._PAUSE", 0.05)
    served, tell = serve(), SharedApplication.keep_output
    lost: list[str] = []

    def away(self: SharedApplication, name: str, number: int, output: Output) -> None:
        if output.exit_code is not None and len(lost) < 3:
            lost.append(name)
            raise TransientError("the catalog is away")
        tell(self, name, number, output)

    monkeypatch.setattr(SharedApplication, "keep_output", away)
    assert served.ask("snapshot").exit_code == 0
    assert len(lost) == 3


def test_it_ends_when_another_one_is_announced(serve: Serve) -> None:
    served = serve()
    assert served.ask("snapshot").exit_code == 0
    with SharedApplication(served.uri, served.folder) as shared:
        shared.announce("b")
    assert served.code() == 0
