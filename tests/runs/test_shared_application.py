"""The application that steps share: who may ask it, what becomes of a request, and when it no longer counts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateferry.runs.catalog.publications import Control
from stateferry.runs.control import shared_application
from stateferry.runs.control.shared_application import ALIVE_MS, DismissedError, Output, SharedApplication, StepRequest
from tests.runs.test_publications import Clock, clock, server, uri

__all__ = ["clock", "server", "uri"]


@pytest.fixture
def shared(uri: str, clock: Clock) -> Iterator[SharedApplication]:
    with SharedApplication(uri, "/home/runs/orders/night", clock) as opened:
        yield opened


def test_a_request_is_answered_with_what_the_step_prints(shared: SharedApplication) -> None:
    shared.announce("a")
    assert shared.is_alive()
    assert shared.request("a") is None
    number = shared.ask("snapshot")
    assert number == 1
    assert shared.request("a") == StepRequest(1, "snapshot")
    assert shared.output(1) == Output("")
    shared.keep_output("a", 1, Output("reads\n"))
    assert shared.output(1) == Output("reads\n")
    shared.keep_output("a", 1, Output("reads\nis done\n", exit_code=0))
    assert shared.output(1) == Output("reads\nis done\n", exit_code=0)
    assert shared.request("a") is None
    # The next one begins anew.
    assert shared.ask("rescale") == 2
    assert shared.output(2) == Output("")
    assert shared.output(1) is None


def test_it_is_ready_once_spark_has_started(shared: SharedApplication) -> None:
    assert not shared.is_ready()
    shared.announce("a")
    assert shared.is_alive()
    assert not shared.is_ready()
    shared.say_ready("another")
    assert not shared.is_ready()
    shared.say_ready("a")
    assert shared.is_ready()
    # What it says is not taken for the words of a step.
    assert shared.ask("snapshot") == 1
    assert shared.output(1) == Output("")
    shared.announce("b")
    assert not shared.is_ready()


def test_that_spark_has_started_is_no_word_of_a_step_that_waits_for_it(shared: SharedApplication) -> None:
    shared.announce("a")
    assert shared.ask("snapshot") == 1
    shared.say_ready("a")
    assert shared.output(1) == Output("")


def test_without_an_application_nobody_can_be_asked(shared: SharedApplication, uri: str) -> None:
    assert not shared.is_alive()
    assert shared.ask("snapshot") is None
    assert shared.output(1) is None
    shared.dismiss()
    shared.say_ready("a")
    with pytest.raises(DismissedError):
        shared.request("a")
    shared.announce("a")
    with SharedApplication(uri, "/home/runs/orders/another") as other:
        assert not other.is_alive()


def test_an_answer_outlives_the_application(shared: SharedApplication) -> None:
    shared.announce("a")
    assert shared.ask("validate") == 1
    shared.keep_output("a", 1, Output("red\n", exit_code=1))
    assert shared.end_if_idle("a")
    assert shared.output(1) == Output("red\n", exit_code=1)
    assert shared.ask("cut_over") is None


def test_who_waits_learns_that_the_application_has_ended(shared: SharedApplication, clock: Clock) -> None:
    with shared.kept_alive("a"):
        shared.announce("a")
        assert shared.ask("rescale") == 1
        assert not shared.end_if_idle("a")
        assert shared.output(1) == Output("")
    assert shared.output(1) is None
    # Whoever kept it alive may be lost too.
    shared.announce("b")
    assert shared.ask("rescale") == 2
    clock.now += ALIVE_MS
    assert shared.output(2) is None
    assert shared.ask("rescale") is None


def test_the_next_application_doesnt_take_over_what_an_earlier_one_was_asked_for(shared: SharedApplication) -> None:
    shared.announce("a")
    assert shared.ask("rescale") == 1
    shared.announce("b")
    assert shared.output(1) is None
    assert shared.request("b") is None
    with pytest.raises(DismissedError):
        shared.request("a")
    # What the earlier one has yet to say reaches nobody.
    assert shared.ask("rescale") == 2
    shared.keep_output("a", 2, Output("", exit_code=0))
    assert shared.output(2) == Output("")


def test_a_step_that_is_tried_again_waits_for_the_same_answer(shared: SharedApplication) -> None:
    shared.announce("a")
    assert (shared.ask("rescale"), shared.ask("rescale")) == (1, 1)
    assert shared.ask("validate") is None


def test_a_dismissed_application_is_told_so(shared: SharedApplication, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_application, "ALIVE_MS", 40)
    monkeypatch.setattr(shared_application, "_SECONDS_TO_END", 0.05)
    told = threading.Event()
    shared.announce("a")
    with shared.kept_alive("a", told.set) as dismissed:
        shared.dismiss()
        assert told.wait(10)
        assert dismissed.is_set()


def test_only_an_idle_application_is_dismissed_if_that_is_asked_for(shared: SharedApplication) -> None:
    shared.announce("a")
    assert shared.ask("rescale") == 1
    shared.dismiss(if_idle=True)
    assert shared.is_alive()
    shared.keep_output("a", 1, Output("", exit_code=0))
    shared.dismiss(if_idle=True)
    assert not shared.is_alive()


def test_an_application_that_serves_no_more_isnt_asked(shared: SharedApplication) -> None:
    shared.announce("a")
    assert shared.ask("rescale") == 1
    shared.end("a")
    assert shared.output(1) is None
    assert shared.ask("rescale") is None
    # Until its process has ended, whoever started it keeps saying that it is alive.
    assert shared.request("a") == StepRequest(1, "rescale")


def test_what_was_seen_is_not_shown_twice_though_the_beginning_is_gone() -> None:
    output = Output("cdef", before=2)
    assert [output.after(seen) for seen in (0, 2, 4, 6)] == ["cdef", "cdef", "ef", ""]
    assert output.length == 6


def test_rows_of_long_ago_are_removed(uri: str, clock: Clock) -> None:
    with SharedApplication(uri, "old", clock) as old, SharedApplication(uri, "new", clock) as new:
        old.announce("a")
        assert old.ask("snapshot") == 1
        old.keep_output("a", 1, Output("", exit_code=0))
        clock.now += 8 * 24 * 3600 * 1000
        assert old.output(1) == Output("", exit_code=0)
        new.announce("b")
        assert old.output(1) is None


def test_a_catalog_without_the_table_serves_all_else(tmp_path: Path) -> None:
    """As one whose role may not create tables."""
    uri = f"sqlite:///{tmp_path}/catalog.db"
    with Control(uri) as control:
        control.release(control.acquire("orders", "night"))
    with SharedApplication(uri, "night") as shared:
        assert shared.ask("snapshot") is None
