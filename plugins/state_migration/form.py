"""The forms that Airflow shows when a DAG is triggered: the fields of a request, with descriptions and rules."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

_DURATION = r"^[1-9][0-9]*(ms|s|m|h|d)$"
_OPTIONAL_DURATION = rf"({_DURATION})|^$"
_OPTIONAL_SHARE = r"^([0-9]+(\.[0-9]+)? ?%?)?$"

_SOURCE, _WHAT, _HOW, _APPROVAL, _START, _BACK = (
    "1. Which savepoint",
    "2. Which state becomes which",
    "3. Rehearse or cut over",
    "4. Approval",
    "5. Start the new job on Flink",
    "6. The way back: the job as it was",
)


def _field(default: Any, title: str, section: str, description: str, **rules: Any) -> Param:
    """A field of the form.

    The form renders Markdown only in `description_md`, and only if there is no plain description.
    """
    return Param(default, title=title, section=section, description_md=description, **rules)


def _text(title: str, section: str, description: str, **rules: Any) -> Param:
    return _field(None, title, section, description, type=["null", "string"], **rules)


def _words(default: str, title: str, section: str, description: str, **rules: Any) -> Param:
    return _field(default, title, section, description, type="string", **rules)


def _choice(choices: list[str], title: str, section: str, description: str) -> Param:
    return _field(choices[0], title, section, description, type="string", enum=choices)


def _switch(default: bool, title: str, section: str, description: str) -> Param:
    return _field(default, title, section, description, type="boolean")


def _number(title: str, section: str, description: str) -> Param:
    return _field(None, title, section, description, type=["null", "integer"], minimum=1, maximum=32768)


def _approval() -> dict[str, Param]:
    return {
        "approval": _switch(True, "Ask a person", _APPROVAL, "Off: go on without asking, for automation."),
        "approval_timeout": _words(
            "24h",
            "Wait at most",
            _APPROVAL,
            "If nobody answers by then the run ends as rejected. `90s`, `15m`, `12h`, `2d`.",
            pattern=_DURATION,
        ),
    }


def _old_job() -> dict[str, Param]:
    return {
        "old_jar": _text(
            "Old job's jar", _BACK, "File name or id of the uploaded jar. Without it, nothing is started again."
        ),
        "old_entry_class": _text("Old entry class", _BACK, "Empty: the jar's own."),
        "old_program_args": _text("Old arguments", _BACK, "As on a command line."),
        "old_job_parallelism": _number("Old job's parallelism", _BACK, "Empty: as the job or Flink says."),
    }


def _flink_connection(section: str) -> Param:
    return _words("flink_default", "Flink connection", section, "Airflow's connection of type Flink.", minLength=1)


def migration_params() -> dict[str, Param]:
    """The form of a migration."""
    return {
        "source": _choice(
            ["demo", "path", "folder", "flink"],
            "Where from",
            _SOURCE,
            "`demo`: the demo savepoint. `path`: a savepoint you name. `folder`: the newest one in a folder. `flink`: "
            "take one now; a cut-over stops the job with it, a rehearsal lets the job go on.",
        ),
        "savepoint": _text("Savepoint", _SOURCE, "For `path`: the canonical savepoint's folder."),
        "savepoint_folder": _text(
            "Folder of savepoints", _SOURCE, "For `folder`: one folder in it for each savepoint."
        ),
        "flink_job": _text("Running job", _SOURCE, "For `flink`: the job's name or id."),
        "savepoint_directory": _text(
            "Savepoint directory", _SOURCE, "For `flink`: where Flink writes it, and Spark can read it."
        ),
        "flink_conn_id": _flink_connection(_SOURCE),
        "operator": _text("Operator", _WHAT, "Its uid, name or id. The demo knows its own."),
        "legacy_state": _text("Legacy state", _WHAT, "The ValueState of a map, by its name in the job."),
        "new_state": _text("New state", _WHAT, "The MapState that it becomes, by its name in the new job."),
        "flag_state": _text("Flag state", _WHAT, "If the job has begun to migrate itself: its flag of what is done."),
        "no_flag_state": _switch(
            False, "No flag state", _WHAT, "The job has no such flag, though a Boolean state may look like one."
        ),
        "ttl": _text(
            "Time to live",
            _WHAT,
            "The states' time to live, if they have one: `90s`, `15m`, `12h`, `30d`. It isn't in the savepoint.",
            pattern=_OPTIONAL_DURATION,
        ),
        "operators": _field(
            None,
            "Several at once",
            _WHAT,
            "For several operators or states, instead of the fields above: "
            '`[{"operator": "main", "states": [{"legacy": "a", "new": "b", "ttl_ms": "30d"}]}]`',
            type=["null", "array"],
            items={"type": "object"},
        ),
        "job": _text("Name of the job", _WHAT, "What runs, tables and publications belong to. Empty: the operator's."),
        "on_contradiction": _choice(
            ["stop", "blob", "rows"], "On contradiction", _WHAT, "Where a key is flagged as done and still has a blob."
        ),
        "keep_expired": _switch(False, "Keep expired entries", _WHAT, "Carry over what has expired too."),
        "accept_expired": _field(
            None,
            "Accept that expires",
            _WHAT,
            "The share of a state's entries that may expire, such as `60%`. Empty: a quarter, and not many more than "
            "in the last green run.",
            type=["null", "string", "number"],
            pattern=_OPTIONAL_SHARE,
        ),
        "clock_tolerance": _words(
            "10m",
            "Clocks may differ by",
            _WHAT,
            "A timestamp that is later than the run's moment by more than this stops the run. `90s`, `10m`, `2h`.",
            pattern=_DURATION,
        ),
        "keep_legacy": _switch(False, "Keep the legacy state", _WHAT, "And the flag, beside the new state."),
        "drop_unrepresentable_nulls": _switch(
            False, "Drop null values", _WHAT, "Those that a MapState with time to live can't hold."
        ),
        "mode": _choice(
            ["cut over", "rehearse"], "Mode", _HOW, "`rehearse`: everything but approval, publication and start."
        ),
        "parallelism": _number("Parallelism", _HOW, "Of the migrated operators. Empty: as it is."),
        "max_parallelism": _number("Max parallelism", _HOW, "Of every operator. Empty: as it is."),
        "target": _text("Target", _HOW, "The folder of the new savepoint. Empty: a new one in Stateferry's home."),
        **_approval(),
        "start_job": _switch(False, "Start the new job", _START, "From the new savepoint, when it is published."),
        "jar": _text("Jar", _START, "File name or id of the jar that was uploaded to Flink."),
        "entry_class": _text("Entry class", _START, "Empty: the jar's own."),
        "program_args": _text("Arguments", _START, "As on a command line."),
        "job_parallelism": _number("Parallelism of the job", _START, "Empty: as the job or Flink says."),
        "start_timeout": _words(
            "10m",
            "Time to its first checkpoint",
            _START,
            "A new job that has completed none by then has failed, and the old one is started again.",
            pattern=_DURATION,
        ),
        **_old_job(),
    }


def rollback_params() -> dict[str, Param]:
    """The form of a rollback."""
    return {
        "job": _text("Job", "1. What is undone", "The name under which the migration was run."),
        **_approval(),
        "restart_job": _switch(False, "Start the old job", _BACK, "From the savepoint that stands after the rollback."),
        "flink_job": _text("Job to cancel first", _BACK, "Name or id of the new job. Empty: it is over already."),
        "flink_conn_id": _flink_connection(_BACK),
        **_old_job(),
    }
