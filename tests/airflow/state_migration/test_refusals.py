"""What a refused run says in Airflow names the fields of the form, which is where a person can change them."""

from __future__ import annotations

import pytest

from stateferry.airflow.dag_runs.refusals import in_words_of_the_form, refusal


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "Plan again with --flag-state moved, or with --no-flag-state if no state does",
            "Plan again with *Flag state* moved, or with *No flag state* if no state does",
        ),
        ("but --ttl is missing: give the duration", "but *Time to live* is missing: give the duration"),
        (
            "are meant to expire, allow it: --accept-expired 60%",
            "are meant to expire, allow it: *Accept that expires* 60%",
        ),
        ("give the job a name (--job)", "give the job a name (*Name of the job*)"),
        ("roll it back: stateferry rollback --job orders", "roll it back: stateferry rollback --job orders"),
        ("take one: flink savepoint --type canonical JOB DIR", "take one: flink savepoint --type canonical JOB DIR"),
        ("file /a/--ttl/b of x--job is damaged", "file /a/--ttl/b of x--job is damaged"),
    ],
)
def test_options_of_the_command_line_become_fields_of_the_form(said: str, shown: str) -> None:
    assert in_words_of_the_form(said) == shown
    assert str(refusal(said)) == shown
