"""A Spark application that is killed in the middle of its step: the next try goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standalone.killing import Killed
from tests.standalone.migration import Migration
from tests.standalone.orders import Orders, entries_of
from tests.support.browser import why_not

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(3000)]
if not why_not():
    # The run that is started in the browser is killed as well.
    pytestmark.append(pytest.mark.full)


def test_a_killed_application_goes_on_where_it_was(migration: Migration) -> None:
    run = migration.trigger(approval=False)
    killed = Killed.at_work(migration, run)

    assert migration.end_of(run) == "success", migration.told(run)
    killed.check_went_on()
    ferried = migration.run_of(run)
    assert entries_of(Path(ferried.plan.target)) == Orders().entries
    assert migration.in_tables(ferried) == Orders().entries
    publication = migration.published()
    assert publication is not None
    assert publication.record.target == ferried.plan.target
