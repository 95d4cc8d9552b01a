"""`stateferry check`: says what a savepoint will do in another Flink, before it is tried."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flinkstate.errors import UsageError
from stateferry.basics.exit_codes import REJECTED
from stateferry.cli.savepoint_options import add_classes, add_files_from, add_savepoint, classes_of, opened

if TYPE_CHECKING:
    from flinkstate.classfiles.job_classes import JobClasses
    from flinkstate.reading.reader import Savepoint
    from stateferry.runs.guards.all_losses import AllLosses
    from stateferry.verdict.outcomes import StateVerdict

HELP = "say what a savepoint will do in another Flink"
DESCRIPTION = """\
Say for each operator and state what happens when the same job starts from this savepoint in another Flink: the state
restores; it is refused at the start; it restores and is wrong, and what is lost; it restores and fails at the first
read; or nobody can tell. "The same job" declares its states by the same lines of code. With --classes and the new
job's jar, what its POJOs, enums and classes by Avro have gained, lost or changed is looked at too. Nothing is changed.

With --before and the savepoint from which an upgraded job was restored, what the upgrade lost is listed, key by key.
All state by Kryo that both savepoints have is read for this. Of operators that only one of the two has, and of what
can't be compared otherwise, nobody can tell: they are listed as not compared.

Read are _metadata, the file of one subtask of each operator, and of what Kryo wrote at most 10,000 values of each
state. --all reads every value of every subtask.

exit codes: 0 all states restore, and nothing was lost; 1 some don't, or something was, or nobody can tell; 2
wrong usage, or there is no savepoint at that place; 3 a savepoint can't be read.
"""
_TARGETS = ("flink-1.20", "flink-2", "flink-2.3")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_savepoint(parser)
    parser.add_argument(
        "--for",
        dest="target",
        required=True,
        choices=_TARGETS,
        metavar="FLINK",
        help="the Flink that is to restore it: flink-1.20, flink-2.3, or flink-2 for the newest 2.x that was tried",
    )
    add_asked(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    add_files_from(parser)


def add_asked(parser: argparse.ArgumentParser) -> None:
    """Adds what can be asked beside the savepoint and the Flink."""
    add_classes(
        parser,
        "a jar of the job that is to start, or a folder of class files: whether its POJOs, enums and classes by Avro "
        "still fit, and what the objects are in values by Kryo; may be repeated. None of its code runs",
    )
    parser.add_argument(
        "--before",
        metavar="OLD_SAVEPOINT",
        help="the savepoint of Flink 1 from which the upgraded job was restored: what the upgrade lost is listed",
    )
    parser.add_argument(
        "--state-ttl",
        action="append",
        default=[],
        metavar="OPERATOR/STATE=DURATION",
        help="beside --before: the time to live of a state, so that what has expired by now isn't listed as lost; may "
        "be repeated",
    )
    parser.add_argument(
        "--all-by-kryo-5",
        action="store_true",
        help="the job of a savepoint of Flink 2 was never upgraded from Flink 1 without stateferry run --to, so Kryo 5 "
        "wrote all of its values, also those that Kryo 2 could have written",
    )
    parser.add_argument("--all", action="store_true", help="read every value by Kryo, not a sample")


def run(options: argparse.Namespace) -> int:
    from stateferry.verdict.outcomes import Outcome

    savepoint = opened(options)
    found, losses = answer_of(options, savepoint)
    if options.json:
        sys.stdout.write(json.dumps(verdict_facts(options, savepoint, found, losses), indent=2) + "\n")
    else:
        from stateferry.cli.check_text import show
        from stateferry.verdict.versions import target_of

        show(savepoint, target_of(options.target).value, found, losses)
    restores = all(one.finding.outcome is Outcome.RESTORES for one in found)
    return 0 if restores and (losses is None or not losses.is_loss) else REJECTED


def answer_of(options: argparse.Namespace, savepoint: Savepoint) -> tuple[tuple[StateVerdict, ...], AllLosses | None]:
    """The verdict on each state, and what an upgrade lost."""
    from stateferry.verdict.judge import Asked, verdicts
    from stateferry.verdict.versions import target_of

    if options.all_by_kryo_5:
        _expect_kryo_5(options, savepoint)
    job = classes_of(options)
    asked = Asked(target_of(options.target), job, options.all, new_job=job, all_by_kryo_5=options.all_by_kryo_5)
    return tuple(verdicts(savepoint, asked)), _losses(options, savepoint, job)


def _expect_kryo_5(options: argparse.Namespace, savepoint: Savepoint) -> None:
    """Refuses to take all values for those of Kryo 5 where other words say that they aren't."""
    from stateferry.verdict.versions import Line, source_of, target_of

    if not source_of(savepoint.metadata.version) is target_of(options.target) is Line.TWO:
        raise UsageError("--all-by-kryo-5 is for a savepoint of Flink 2 and --for flink-2: leave it out")
    if options.before is not None:
        raise UsageError("--all-by-kryo-5 says that the job was never upgraded, --before that it was: leave one out")


def _losses(options: argparse.Namespace, savepoint: Savepoint, job: JobClasses | None) -> AllLosses | None:
    """What an upgrade lost, if the savepoint from before it is given."""
    if options.before is None:
        if options.state_ttl:
            raise UsageError("--state-ttl: only what an upgrade lost can have expired: give --before as well")
        return None
    from stateferry.basics.durations import now_ms
    from stateferry.runs.guards.all_losses import all_losses
    from stateferry.runs.plan.state_ttls import state_ttls_of

    old = opened(options, options.before)
    return all_losses(savepoint, old, state_ttls_of(options.state_ttl), now_ms(), job)


def verdict_facts(
    options: argparse.Namespace, savepoint: Savepoint, found: Sequence[StateVerdict], losses: AllLosses | None
) -> dict[str, Any]:
    """The answer as JSON."""
    from stateferry.verdict.versions import target_of, writer_of

    version = savepoint.metadata.version
    of_upgrade = {} if losses is None else {"losses": losses.to_json()}
    return {
        "path": savepoint.folder.shown,
        "version": version,
        "written_by": writer_of(savepoint.metadata),
        "for": target_of(options.target).value,
        "counts": dict(Counter(one.finding.outcome.word for one in found)),
        "states": [
            {
                "operator": one.operator,
                "state": one.state,
                "kind": one.kind,
                "type": one.type,
                "outcome": one.finding.outcome.word,
                "or_else": one.finding.or_else and one.finding.or_else.word,
                "reason": one.finding.reason,
                "exception": one.finding.exception,
                "advice": one.finding.advice,
            }
            for one in found
        ],
        **of_upgrade,
    }
