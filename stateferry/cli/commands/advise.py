"""`stateferry advise`: shows how evenly key groups and subtasks are loaded, and searches for a better layout."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from flinkstate.errors import UsageError
from stateferry.cli.progress import progress_bar
from stateferry.cli.savepoint_options import add_files_from, add_savepoint, opened

if TYPE_CHECKING:
    from flinkstate.reading.reader import Savepoint
    from stateferry.look.balance.advice import Advice, Choice, Span
    from stateferry.look.balance.key_weights import KeyWeights
    from stateferry.look.balance.layouts import KeyGroupLayout, Loads
    from stateferry.look.balance.substitutes import Substitutes
    from stateferry.look.balance.traffic import Rates

HELP = "say how evenly state is spread, and which layout spreads it better"
DESCRIPTION = """\
Say how evenly keyed state is spread over key groups and subtasks, which keys are the heaviest, and whether another
parallelism or max parallelism would spread it better. Searches all max parallelisms from the present one on (of many
keys some hundred of them), and says how much of what the flattest one gains is systematic and how much is luck.
Nothing is changed.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_savepoint(parser)
    parser.add_argument("--operator", metavar="NAME", help="an operator's id, uid or unique name (default: all)")
    parser.add_argument("--parallelism", metavar="N[-M]", help="one or a range, such as 1-64 (default: as it is)")
    parser.add_argument(
        "--max-parallelism", metavar="N[-M]", help="one or a range (default: from the present one to 32768)"
    )
    parser.add_argument("--by", choices=("bytes", "rows", "keys"), help="what counts as load (default: bytes)")
    parser.add_argument(
        "--rates",
        metavar="FILE",
        help="what counts as load is how much work a key makes: a file with a line for each key: the key as dump "
        "prints it, a tab, and a whole number such as its records an hour",
    )
    parser.add_argument(
        "--changed-since",
        metavar="SAVEPOINT",
        help="what counts as load is which keys have changed since an earlier savepoint of the job, as of last night",
    )
    parser.add_argument(
        "--heaviest",
        type=int,
        metavar="N",
        help="show so many keys (default: 10); with --substitutes, give so many keys subtasks of their own choice "
        "(default: as many as help)",
    )
    parser.add_argument(
        "--substitutes",
        choices=("Integer", "Long", "String"),
        help="instead of advice: keys of this type by which the job can choose the subtask itself, and how they spread "
        "the measured keys",
    )
    parser.add_argument("--java", metavar="CLASS", help="print the substitutes as a Java class of this name")
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    add_files_from(parser)


def run(options: argparse.Namespace) -> int:
    from stateferry.look.balance.advice import Span, advise

    parallelism = Span.of(options.parallelism, "parallelism") if options.parallelism else None
    max_parallelism = Span.of(options.max_parallelism, "max parallelism") if options.max_parallelism else None
    if options.heaviest is not None and not 0 <= options.heaviest <= _MOST_SHOWN:
        raise UsageError(f"expected --heaviest of 0 to {_MOST_SHOWN}, found {options.heaviest}")
    measures = {"--by": options.by, "--rates": options.rates, "--changed-since": options.changed_since}
    given = [name for name, value in measures.items() if value is not None]
    if len(given) > 1:
        raise UsageError(
            f"expected --by, --rates or --changed-since, found {' and '.join(given)}: each says what counts as load"
        )
    if options.java is not None or options.substitutes is not None:
        return _substitutes(options, parallelism, max_parallelism)
    savepoint = opened(options)
    measured = _measured(savepoint, options, 10 if options.heaviest is None else options.heaviest)
    found = [advise(weights, parallelism, max_parallelism) for weights in measured]
    if options.json:
        facts = {"path": savepoint.folder.shown, "operators": [_facts(savepoint, advice) for advice in found]}
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
    else:
        from stateferry.cli.advise_text import show

        show(savepoint, found)
    return 0


def _substitutes(options: argparse.Namespace, parallelism: Span | None, max_parallelism: Span | None) -> int:
    from stateferry.look.balance.java import check_class_name, java_class
    from stateferry.look.balance.layouts import KeyGroupLayout
    from stateferry.look.balance.substitutes import TYPES, substitutes

    if options.java is not None:
        check_class_name(options.java)
        if options.json:
            raise UsageError("expected --java or --json, found both: a Java class isn't JSON")
    for span, name in ((parallelism, "--parallelism"), (max_parallelism, "--max-parallelism")):
        if span is not None and span.least != span.most:
            raise UsageError(f"expected one {name} for substitutes, found a range: they are made for one layout")
    savepoint = opened(options)
    measured = _measured(savepoint, options, _MOST_SHOWN if options.heaviest is None else options.heaviest)
    if len(measured) > 1:
        names = ", ".join(weights.operator.label for weights in measured)
        raise UsageError(f"expected --operator for substitutes, because several have keyed state: {names}")
    operator = measured[0].operator
    layout = KeyGroupLayout(
        parallelism.least if parallelism else operator.parallelism,
        max_parallelism.least if max_parallelism else operator.max_parallelism,
    )
    found = substitutes(measured[0], layout, TYPES[options.substitutes or "Integer"])
    if options.java is not None:
        sys.stdout.write(java_class(found, options.java))
    elif options.json:
        sys.stdout.write(json.dumps(_substitute_facts(found), indent=2) + "\n")
    else:
        from stateferry.cli.advise_text import show_substitutes

        show_substitutes(measured[0], found)
    return 0


_MOST_SHOWN = 1000


def _measured(savepoint: Savepoint, options: argparse.Namespace, heaviest: int) -> list[KeyWeights]:
    from stateferry.basics.printable import say
    from stateferry.look.balance.key_weights import measure_keys
    from stateferry.look.balance.traffic import Rates, traffic_of
    from stateferry.look.survey import bytes_to_read

    operators = savepoint.keyed_operators()
    if options.operator is not None:
        operators = (savepoint.operator(options.operator),)
    if options.rates is not None and len(operators) > 1:
        names = ", ".join(operator.label for operator in operators)
        raise UsageError(f"expected --operator for --rates, because several have keyed state: {names}")
    earlier = None
    if options.changed_since is not None:
        earlier = opened(options, options.changed_since)
    measured = []
    with progress_bar("reading", bytes_to_read(savepoint)) as bytes_read:
        for operator in operators:
            traffic = traffic_of(savepoint, operator, options.rates, earlier)
            weights = measure_keys(
                savepoint, operator, options.by or "bytes", traffic=traffic, heaviest=heaviest, bytes_read=bytes_read
            )
            if weights is not None:
                measured.append(weights)
            if isinstance(traffic, Rates) and not traffic.met and weights is not None:
                raise UsageError(_no_rates(weights, traffic, options.rates))
            if isinstance(traffic, Rates) and traffic.met < traffic.keys:
                say(
                    f"note: {traffic.keys - traffic.met:,} of the {traffic.keys:,} keys in {options.rates} have no "
                    "state in this savepoint, so they count nowhere",
                    sys.stderr,
                )
    if not measured:
        named = f"operator {options.operator}" if options.operator is not None else "the savepoint"
        raise UsageError(f"{named} has no keyed state, so there is nothing to balance")
    return measured


def _no_rates(weights: KeyWeights, rates: Rates, path: str) -> str:
    """Says that no key of the file has state, and which keys have."""
    from flinkstate.basics.did_you_mean import there_are
    from flinkstate.serializers.types import type_name

    known = [key.text for key in weights.heaviest if key.text is not None]
    count = int(weights.groups["keys"].sum())
    listed = f"{count:,} of the type {type_name(weights.key)}, such as {', '.join(known[:3])}" if known else ""
    return (
        f"{path}: expected rates of keys of operator {weights.operator.label}, found {rates.keys:,} that have no state "
        f"in this savepoint, such as {rates.last[:100]}: they are of another operator or savepoint, or are written "
        f"otherwise than stateferry dump prints them. {there_are(rates.last[:100], known, listed)}"
    )


def _facts(savepoint: Savepoint, advice: Advice) -> dict[str, Any]:
    from flinkstate.hashing.key_groups import default_max_parallelism
    from flinkstate.serializers.types import type_name
    from stateferry.look.balance.apply import how_to_apply

    weights, proposal = advice.weights, advice.proposal
    return {
        "id": weights.operator.hex_id,
        "uid": weights.operator.uid,
        "name": weights.operator.name,
        "key_type": type_name(weights.key),
        "by": weights.measure,
        "sampled": weights.sampled,
        "keys_not_known": weights.why_no_keys,
        "max_parallelism_fixed": weights.why_fixed,
        "key_groups": {measure: groups.tolist() for measure, groups in weights.groups.items()},
        "heaviest_keys": [
            {
                "key": None if key.text is None else json.loads(key.text),
                "key_group": key.key_group,
                "rows": key.rows,
                "bytes": key.bytes,
                "weight": key.weight,
            }
            for key in weights.heaviest
        ],
        "one_key_is_too_heavy": advice.one_key_is_too_heavy,
        "default_max_parallelism": default_max_parallelism(weights.operator.parallelism),
        "today": _layout_facts(advice.before),
        "candidates": advice.candidates,
        "choices": [_choice_facts(choice) for choice in advice.choices],
        "proposal": {
            **_layout_facts(advice.after),
            "is_worth_it": advice.is_worth_it,
            "gain": advice.chance
            and {
                "systematic": advice.chance.systematic,
                "bad_luck_before": advice.chance.bad_luck_before,
                "good_luck_after": advice.chance.good_luck_after,
            },
            "how": list(how_to_apply(savepoint, weights.operator, proposal.flattest.layout)),
        },
        "steady": advice.steady and {**_layout(advice.steady.layout), **_loads_facts(advice.steady)},
        "curve": [
            {
                **_layout(point.layout),
                "worst_over_mean": point.worst_over_mean,
                "idle_subtasks": point.idle,
                "empty_key_groups": point.empty_key_groups,
                "offset_bytes": point.offset_bytes,
                "prefix_bytes": point.prefix_bytes,
            }
            for point in advice.curve
        ],
    }


def _choice_facts(choice: Choice) -> dict[str, Any]:
    flattest = {"max_parallelism": choice.flattest.layout.max_parallelism, **_loads_facts(choice.flattest)}
    return {
        "parallelism": choice.parallelism,
        "today": choice.today and _loads_facts(choice.today),
        "flattest": flattest,
        "least_possible": choice.least_over_mean,
    }


def _layout(layout: KeyGroupLayout) -> dict[str, int]:
    return {"parallelism": layout.parallelism, "max_parallelism": layout.max_parallelism}


def _layout_facts(loads: dict[str, Loads]) -> dict[str, Any]:
    layout = next(iter(loads.values())).layout
    subtasks = {measure: {**_loads_facts(one), "by_subtask": one.by_subtask.tolist()} for measure, one in loads.items()}
    return {**_layout(layout), **subtasks}


def _loads_facts(loads: Loads) -> dict[str, Any]:
    return {"worst": loads.worst, "worst_over_mean": loads.worst_over_mean, "idle_subtasks": loads.idle}


def _substitute_facts(found: Substitutes) -> dict[str, Any]:
    return {
        **_layout(found.layout),
        "substitutes": list(found.keys),
        "partition_to_key": found.partition_to_key,
        "key_to_partition": found.key_to_partition,
        "heaviest_keys": [{"java": literal, "subtask": subtask} for literal, subtask in found.pinned],
        "last_hashes": list(found.last_hashes),
        "load": found.loads and {**_loads_facts(found.loads), "by_subtask": found.loads.by_subtask.tolist()},
    }
