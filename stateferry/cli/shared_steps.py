"""The steps of a run in one application, for spark-submit.

    spark-submit spark_jobs/steps.py --run ~/.stateferry/runs/<job>/<run id> --application NAME

Without `--application` it does all steps of a rehearsal up to its validation at once, and asks nobody: that is how a
catch-up is made.

Whoever starts it announces it under its name (`shared_application.py`). It starts Spark once, waits for
the run's folder, and carries out the steps that it is asked for, each as an application of its own would. It ends when
the run needs no more steps, after a step that failed, or when nobody has asked it for some time: while a person thinks,
nothing is kept busy.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import TextIO

from flinkstate.errors import StateferryError
from flinkstate.files.storage import Location
from stateferry.basics.exit_codes import exit_code_of
from stateferry.basics.printable import printable_lines, say
from stateferry.basics.private_files import private_files
from stateferry.cli import step as one_step
from stateferry.cli.engine import OpenWorkers, opened_before
from stateferry.runs.catalog.processes import Process
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.after_publication import needs_no_more_steps
from stateferry.runs.control.shared_application import DismissedError, Output, SharedApplication, StepRequest, patiently
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.steps import Step

# Flink may take long for the savepoint; a scheduler on a busy machine takes half a minute between two steps.
_SECONDS_TO_RUN, _SECONDS_BETWEEN = 1800.0, 120.0
# After an answer the next request comes soon, or takes a while.
_LOOK, _LOOK_LATER, _SECONDS_UNTIL_LATER = 0.2, 1.0, 20.0
_PASS_ON, _LOOK_AT_RUN = 0.5, 2.0
_IMPORTS = ("stateferry.steps.pipeline", "stateferry.steps.tables")
# More of a step's output isn't passed on at once; its reader looks more often than it grows by that.
_LONGEST = 1 << 16
_OVER = (RunState.REJECTED, RunState.ROLLED_BACK)


def main(open_workers: OpenWorkers, argv: Sequence[str] | None = None) -> int:
    """Carries out steps until there is no more need, and returns the exit code."""
    return exit_code_of(lambda: _run(_parser().parse_args(argv), open_workers))


@private_files()
def _run(options: argparse.Namespace, open_workers: OpenWorkers) -> int:
    parent = os.getppid()
    # The imports run while the workers start. The last one brings Iceberg's library, which the migrate step needs too.
    imports = threading.Thread(target=lambda: list(map(importlib.import_module, _IMPORTS)), daemon=True)
    imports.start()
    with opened_before(open_workers) as lent:
        if options.application is None:
            # They are no work of the steps, whose times are compared with those of the copy.
            imports.join()
            return without_tables(Run.open(Location.of(options.run)), lent)
        if options.catalog is not None:
            # Nothing depends on it, so its failure ends nothing.
            with suppress(StateferryError), SharedApplication(options.catalog, Location.of(options.run).shown) as early:
                early.say_ready(options.application)
        run = _planned(Location.of(options.run), parent)
        if run is None:
            return 0
        with SharedApplication(run.plan.catalog_uri, run.folder.shown) as shared:
            served = _Served(shared, options.application, run, parent)
            try:
                say(_serve(served, lent))
            except DismissedError as error:
                say(f"{error}: ends")
            finally:
                served.leave()
    return 0


def without_tables(run: Run, open_workers: OpenWorkers) -> int:
    """Does all steps up to the validation, and frees the job: no tables follow."""
    try:
        for step in Step.TABLES.earlier(rehearses=True):
            code = one_step.main(step, open_workers, ["--run", run.folder.shown])
            if code != 0:
                return code
    finally:
        with Control(run.plan.catalog_uri) as control:
            control.release_between_steps(run.plan.job, run.plan.run_id)
    return 0


def _planned(folder: Location, parent: int) -> Run | None:
    """The run, which may be planned later; None if it isn't, or if who started this process has ended."""
    end = time.monotonic() + _SECONDS_TO_RUN
    while time.monotonic() < end and os.getppid() == parent:
        run = Run.if_there(folder)
        # Its state is written after its plan.
        if run is not None and run.changes():
            return run
        time.sleep(_LOOK)
    say(f"{folder.shown} has no run: ends")
    return None


class _Served:
    """The run that is served."""

    def __init__(self, shared: SharedApplication, name: str, run: Run, parent: int) -> None:
        self.shared, self.name, self.run, self._parent = shared, name, run, parent

    def is_over(self) -> bool:
        """Whether the run needs no more steps, or nobody is there who waits for this process."""
        return os.getppid() != self._parent or needs_no_more_steps(self.run)

    def has_failed_or_had_nothing_to_do(self) -> bool:
        """After a step; before the first one, a failed run may be about to go on."""
        return self.run.state in (RunState.FAILED, RunState.PLANNED)

    def leave(self) -> None:
        """Tells the steps that this process serves no more, and frees the job of a run that is over."""
        with suppress(StateferryError):
            self.shared.end(self.name)
            if self.run.state in _OVER:
                plan = self.run.plan
                with Control(plan.catalog_uri) as control:
                    held = control.lease_of(plan.job)
                    if held is not None and (held.run_id, held.holder) == (plan.run_id, str(Process.this())):
                        control.release(held)


def _serve(served: _Served, open_workers: OpenWorkers) -> str:
    """Carries out what is asked for; returns why there is no more to do."""
    since, looked_at_run = time.monotonic(), 0.0
    while True:
        now = time.monotonic()
        if (request := patiently(lambda: served.shared.request(served.name))) is not None:
            code = _carry_out(served, request, open_workers)
            if code != 0:
                return f"{request.step} has ended with exit code {code}: ends"
            if served.is_over() or served.has_failed_or_had_nothing_to_do():
                return "the run needs no more steps: ends"
            since = looked_at_run = time.monotonic()
            continue
        if now - looked_at_run > _LOOK_AT_RUN:
            looked_at_run = now
            if patiently(served.is_over):
                return "the run needs no more steps: ends"
        if now - since > _SECONDS_BETWEEN and patiently(lambda: served.shared.end_if_idle(served.name)):
            return f"no step was asked for in {_SECONDS_BETWEEN:.0f} s: ends"
        time.sleep(_LOOK if now - since < _SECONDS_UNTIL_LATER else _LOOK_LATER)


def _carry_out(served: _Served, request: StepRequest, open_workers: OpenWorkers) -> int:
    with _passed_on(served, request) as heard:
        say(f"the application that the steps share begins {request.step}")
        code = one_step.main(Step(request.step), open_workers, ["--run", served.run.folder.shown])
    patiently(lambda: served.shared.keep_output(served.name, request.number, heard.output(code)))
    return code


@contextmanager
def _passed_on(served: _Served, request: StepRequest) -> Iterator[_Heard]:
    """Passes on to the one who asked what is printed in the context; ends this process once nobody asks any more."""
    heard, ended = _Heard(sys.stderr), threading.Event()

    def pass_on() -> None:
        kept = 0
        while not ended.wait(_PASS_ON):
            output = heard.output()
            try:
                if output.length > kept:
                    served.shared.keep_output(served.name, request.number, output)
                    kept = output.length
                served.shared.request(served.name)
            except DismissedError:
                os.kill(os.getpid(), signal.SIGTERM)
                return
            except Exception:  # noqa: BLE001 the step goes on, and its answer comes in any case
                continue

    thread = threading.Thread(target=pass_on, daemon=True, name="what the step prints")
    thread.start()
    try:
        with redirect_stdout(heard), redirect_stderr(heard):
            yield heard
    finally:
        ended.set()
        thread.join()


class _Heard(io.TextIOBase):
    """Prints what is written, and keeps the end of it."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._lock = out, threading.Lock()
        self._text, self._before = "", 0

    def write(self, text: str) -> int:
        self._out.write(text)
        with self._lock:
            # What a database or a terminal would not take.
            self._text += printable_lines(text)
            if (excess := len(self._text) - _LONGEST) > 0:
                self._text, self._before = self._text[excess:], self._before + excess
        return len(text)

    def flush(self) -> None:
        self._out.flush()

    def output(self, exit_code: int | None = None) -> Output:
        with self._lock:
            return Output(self._text, self._before, exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="steps", description="The steps of a run.", allow_abbrev=False)
    parser.add_argument("--run", metavar="FOLDER", required=True, help="the run's folder, which may be made later")
    parser.add_argument(
        "--catalog", metavar="URI", help="where the application says that Spark has started, before there is a plan"
    )
    parser.add_argument("--application", metavar="NAME", help="under which it is announced")
    return parser
