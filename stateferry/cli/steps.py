"""The steps of a run in one application, for spark-submit.

    spark-submit spark_jobs/steps.py --run ~/.stateferry/runs/<job>/<run id> --application NAME

Whoever starts it announces it under its name (`stateferry/runs/shared_application.py`). It starts Spark once, waits for
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
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO

from stateferry.cli import step as one_step
from stateferry.cli.step import OpenWorkers
from stateferry.errors import PassingError
from stateferry.exit_codes import exit_code_of
from stateferry.printable import say
from stateferry.private_files import private_files
from stateferry.runs.facts import Step
from stateferry.runs.publications import Control
from stateferry.runs.run_states import RunState
from stateferry.runs.runs import Run
from stateferry.runs.shared_application import DismissedError, Request, Said, SharedApplication
from stateferry.savepoint.storage import Location
from stateferry.steps.workers import Progress, Watch, Workers

# Flink may take long for the savepoint; a scheduler on a busy machine takes half a minute between two steps.
_SECONDS_TO_FIRST, _SECONDS_BETWEEN = 1800.0, 120.0
_LOOK_FOR_RUN, _LOOK_FOR_REQUEST, _PASS_ON = 0.5, 0.2, 0.5
# More of a step's output isn't passed on at once; its reader looks more often than it grows by that.
_LONGEST = 1 << 16


def main(open_workers: OpenWorkers, argv: Sequence[str] | None = None) -> int:
    """Carries out steps until there is no more need, and returns the exit code."""
    return exit_code_of(lambda: _run(_parser().parse_args(argv), open_workers))


@private_files()
def _run(options: argparse.Namespace, open_workers: OpenWorkers) -> int:
    watching = _Watching()
    # The import runs while the workers start.
    threading.Thread(target=importlib.import_module, args=("stateferry.steps.pipeline",), daemon=True).start()
    with open_workers("stateferry", watching) as workers:
        started = time.monotonic()
        folder = Location.of(options.run)
        while (run := Run.if_there(folder)) is None:
            if time.monotonic() - started > _SECONDS_TO_FIRST:
                say(f"{folder.shown} has no run yet: ends")
                return 0
            time.sleep(_LOOK_FOR_RUN)
        with SharedApplication(run.plan.catalog_uri, folder.shown) as shared:
            try:
                return _serve(_Served(shared, options.application, run), _of(workers, watching))
            except DismissedError as error:
                say(f"{error}: ends")
                return 0


class _Watching:
    """Passes progress to the step at work."""

    def __init__(self) -> None:
        self.watch: Watch = lambda _: None

    def __call__(self, progress: Progress) -> None:
        self.watch(progress)


def _of(workers: Workers, watching: _Watching) -> OpenWorkers:
    """Lends the workers to one step."""

    @contextmanager
    def lent(_: str, watch: Watch) -> Iterator[Workers]:
        watching.watch = watch
        yield workers

    return lent


class _Served:
    """The run that is served."""

    def __init__(self, shared: SharedApplication, name: str, run: Run) -> None:
        self.shared, self.name, self.run = shared, name, run

    def needs_no_more(self) -> bool:
        state, plan = self.run.state, self.run.plan
        if state is RunState.PLANNED:  # There was nothing to do.
            return True
        if plan.rehearse and state is RunState.VERIFIED:
            return True
        if state is RunState.PUBLISHED:
            with Control(plan.catalog_uri) as control:
                return not control.are_tables_pending(plan.job, plan.run_id)
        return state in (RunState.FAILED, RunState.REJECTED, RunState.ROLLED_BACK)


def _serve(served: _Served, open_workers: OpenWorkers) -> int:
    since, patience = time.monotonic(), _SECONDS_TO_FIRST
    while True:
        request = served.shared.request(served.name)
        if request is None:
            if time.monotonic() - since > patience and served.shared.end_if_idle(served.name):
                say(f"no step was asked for in {patience:.0f} s: ends")
                return 0
            time.sleep(_LOOK_FOR_REQUEST)
            continue
        if _carry_out(served, request, open_workers) != 0 or served.needs_no_more():
            return 0
        since, patience = time.monotonic(), _SECONDS_BETWEEN


def _carry_out(served: _Served, request: Request, open_workers: OpenWorkers) -> int:
    with _passed_on(served, request) as heard:
        code = one_step.main(Step(request.step), open_workers, ["--run", served.run.folder.shown])
    served.shared.tell(served.name, request.number, heard.said(code))
    return code


@contextmanager
def _passed_on(served: _Served, request: Request) -> Iterator[_Heard]:
    """Passes on to the one who asked what is printed in the context; ends this process once nobody asks any more."""
    heard, ended = _Heard(sys.stderr), threading.Event()

    def pass_on() -> None:
        told = 0
        while not ended.wait(_PASS_ON):
            said = heard.said()
            try:
                if said.length > told:
                    served.shared.tell(served.name, request.number, said)
                    told = said.length
                served.shared.request(served.name)
            except DismissedError:
                os.kill(os.getpid(), signal.SIGTERM)
                return
            except PassingError:
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
            self._text += text
            if (excess := len(self._text) - _LONGEST) > 0:
                self._text, self._before = self._text[excess:], self._before + excess
        return len(text)

    def flush(self) -> None:
        self._out.flush()

    def said(self, exit_code: int | None = None) -> Said:
        with self._lock:
            return Said(self._text, self._before, exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="steps", description="The steps of a run.", allow_abbrev=False)
    parser.add_argument("--run", metavar="FOLDER", required=True, help="the run's folder, which may be made later")
    parser.add_argument("--application", metavar="NAME", required=True, help="under which it is announced")
    return parser
