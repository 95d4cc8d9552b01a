"""What is refused fails its task for good, in the words of the form, where a person can change it."""

from __future__ import annotations

import re
from functools import cache

from airflow.sdk.exceptions import AirflowFailException

from stateferry.airflow.flink.foreseen_failures import foreseen


def refusal(text: str) -> AirflowFailException:
    """A failure for good with this message."""
    return foreseen(AirflowFailException(in_words_of_the_form(text)))


def in_words_of_the_form(text: str) -> str:
    """The message with fields of the form in the place of the command line's options: *No flag state*.

    What is inside a command, such as `stateferry rollback --job orders`, stays.
    """
    names = _titles()
    options = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    named = re.compile(rf"(?P<command>\b(?:stateferry|flink) [a-z][^.;:]*)|(?<![\w/-])(?P<option>{options})(?![\w-])")
    return named.sub(lambda found: found["command"] or f"*{names[found['option']]}*", text)


@cache
def _titles() -> dict[str, str]:
    """The titles of the form's fields by the options of the same name."""
    from stateferry.airflow.requests.request import MigrationRequest
    from stateferry.runs.plan.option_marks import option_fields

    return {one.flag: one.option.title for one in option_fields(MigrationRequest) if one.option.in_form}
