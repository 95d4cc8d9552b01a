"""`stateferry ages`: says how old the entries of each state with time to live are, and what will expire when."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flinkstate.errors import UsageError
from stateferry.cli.progress import progress_bar
from stateferry.cli.savepoint_options import add_files_from, add_savepoint, opened

if TYPE_CHECKING:
    from flinkstate.reading.reader import Savepoint
    from stateferry.look.ages import GivenTtls, MeasuredAges, MeasuredState
    from stateferry.look.ages_forecast import Cleanup

HELP = "say how old the entries of states with time to live are, and what expires when"
DESCRIPTION = """\
Say how old the entries of each state with time to live are: values, entries of maps and blobs, elements of lists. The
savepoint doesn't contain the time to live. If the ages end all at once, the oldest one is a lower bound of it.
Otherwise give it (--state-ttl), or it can't be known. Then it says what expires on the next days, what each of Flink's
strategies of cleanup removes when, and what stays for ever because nobody reads it. Nothing is changed.
"""
_MOST_DAYS = 366


def add_options(parser: argparse.ArgumentParser) -> None:
    add_savepoint(parser)
    parser.add_argument(
        "--state-ttl",
        action="append",
        default=[],
        metavar="OPERATOR/STATE=DURATION",
        help="the time to live of a state, such as main/sessions=30d, or main/sessions=30d:OnReadAndWrite if reading "
        "renews it; can be repeated",
    )
    parser.add_argument(
        "--cleanup-size",
        type=int,
        default=5,
        metavar="N",
        help="the job's cleanupIncrementally looks at so many keys with each access (default: 5)",
    )
    parser.add_argument(
        "--compaction-period",
        default="30d",
        metavar="DURATION",
        help="the job's cleanupInRocksdbCompactFilter has each file compacted when it is so old; 0 for never (default: "
        "30d)",
    )
    parser.add_argument("--days", type=int, default=7, metavar="N", help="forecast so many days (default: 7)")
    parser.add_argument(
        "--now",
        type=int,
        metavar="MS",
        help="ages count from this moment, in milliseconds since 1970 (default: this moment; of a savepoint that is "
        "older than an hour, its youngest timestamp)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    add_files_from(parser)


def run(options: argparse.Namespace) -> int:
    from stateferry.basics.durations import MAX_MILLISECONDS, now_ms, parse_duration
    from stateferry.look.ages import measure_ages
    from stateferry.look.ages_forecast import Cleanup
    from stateferry.look.survey import bytes_to_read

    if not 0 <= options.days <= _MOST_DAYS:
        raise UsageError(f"expected --days of 0 to {_MOST_DAYS}, found {options.days}")
    if options.now is not None and not 0 <= options.now <= MAX_MILLISECONDS:
        raise UsageError(f"expected --now of 0 to {MAX_MILLISECONDS}, found {options.now}")
    cleanup = Cleanup(options.cleanup_size, parse_duration(options.compaction_period))
    savepoint = opened(options)
    given = _given_ttls(savepoint, options.state_ttl)
    with progress_bar("reading", bytes_to_read(savepoint)) as bytes_read:
        found = measure_ages(savepoint, given, now_ms(), options.now, bytes_read)
    if options.json:
        facts = {
            "path": savepoint.folder.shown,
            "format": savepoint.format,
            "checkpoint_id": savepoint.metadata.checkpoint_id,
            **_facts(found, options.days, cleanup),
        }
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
    else:
        from stateferry.cli.ages_text import show

        show(savepoint, found, options.days, cleanup)
    return 0


def _given_ttls(savepoint: Savepoint, texts: Sequence[str]) -> GivenTtls:
    from stateferry.runs.plan.state_ttls import state_ttls_of

    given: dict[tuple[str, str], Any] = {}
    for one in state_ttls_of(texts):
        operator = savepoint.operator(one.operator)
        state = savepoint.state(operator, one.state)
        if not state.ttl:
            raise UsageError(
                f"state {state.name} of operator {operator.label} has no time to live (its values have no timestamps): "
                "leave out its --state-ttl"
            )
        if (operator.hex_id, state.name) in given:
            raise UsageError(f"state {state.name} of operator {operator.label} has more than one --state-ttl: give one")
        given[operator.hex_id, state.name] = one.config
    return given


def _facts(found: MeasuredAges, days: int, cleanup: Cleanup) -> dict[str, Any]:
    return {
        "now": found.now,
        "now_is_youngest_timestamp": found.is_youngest,
        "cleanup": {"size": cleanup.size, "compaction_period": cleanup.compaction},
        "states": [_state_facts(one, days, cleanup) for one in found.states],
    }


def _state_facts(one: MeasuredState, days: int, cleanup: Cleanup) -> dict[str, Any]:
    from stateferry.look.ages_forecast import forecast
    from stateferry.look.histogram import classes

    ages, ttl = one.ages, one.ttl
    facts: dict[str, Any] = {
        "operator": {"id": one.operator.hex_id, "uid": one.operator.uid, "name": one.operator.name},
        "state": one.state.name,
        "kind": one.state.kind.value,
        "type": one.state.type_name,
        "counted": one.counted,
        "entries": ages.entries,
        "keys": one.keys,
        "not_known": one.why_not,
    }
    if not ages.entries:
        return facts
    given = one.given_ttl.time_to_live if one.given_ttl is not None else None
    ahead = forecast(ages, one.keys, ttl, days, cleanup) if ttl is not None else None
    return facts | {
        "future": ages.future,
        "youngest": ages.youngest,
        "quartiles": [ages.quantile(share) for share in (0.25, 0.5, 0.75)],
        "oldest": ages.oldest,
        "histogram": [{"from": it.least, "below": it.below, "entries": it.entries} for it in classes(ages)],
        "ttl": {
            "given": given,
            "at_least": ages.sharp_end(),
            "suggested": ages.suggested_ttl(),
            "update": one.given_ttl.update_type.value if one.given_ttl is not None else None,
        },
        "expired": None if ahead is None else ages.expired if given is not None else ahead.expired,
        "forecast": ahead
        and {
            "days": [
                {"day": day.day, "expires": day.expires, "expired": day.expired, "compacted_at_least": day.compacted}
                for day in ahead.days
            ],
            "accesses_of_an_incremental_round": ahead.accesses,
            "overdue_for_compaction": ahead.overdue,
        },
    }
