"""`stateferry inspect`: shows what a savepoint holds and which states can be migrated, as tables or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from stateferry.cli.progress import progress_bar
from stateferry.cli.savepoint_options import add_classes, add_files_from, add_savepoint, classes_of, opened, roots_of

if TYPE_CHECKING:
    from flinkstate.keyed.state import KeyedState
    from flinkstate.kryo.found_classes import FoundClasses
    from flinkstate.reading.reader import Savepoint
    from stateferry.look.blob_sizes import BlobSizes, SizeDistribution
    from stateferry.look.survey import OperatorSurvey, StateSurvey


HELP = "say what a savepoint holds"
DESCRIPTION = (
    "Say what a savepoint holds: operators, states, their types and sizes, which states are a "
    "ValueState of a map that can be migrated, and whether that is worth it. All keyed state is read once, so "
    "damage is found as well."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_savepoint(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    add_classes(parser)
    add_files_from(parser)


def run(options: argparse.Namespace) -> int:
    from stateferry.look.survey import bytes_to_read, survey

    savepoint = opened(options)
    with progress_bar("reading", bytes_to_read(savepoint)) as bytes_read:
        operators = survey(savepoint, bytes_read, classes_of(options))
    if options.json:
        sys.stdout.write(json.dumps(facts_of(savepoint, operators), indent=2) + "\n")
    else:
        from stateferry.cli.inspect_text import show

        show(savepoint, operators, roots_of(options))
    return 0


def facts_of(savepoint: Savepoint, operators: tuple[OperatorSurvey, ...]) -> dict[str, Any]:
    """What the survey of the savepoint's operators has found, as JSON."""
    return {
        "path": savepoint.folder.shown,
        "version": savepoint.metadata.version,
        "format": savepoint.format,
        "checkpoint_id": savepoint.metadata.checkpoint_id,
        "operators": [_operator_facts(operator) for operator in operators],
    }


def _operator_facts(survey: OperatorSurvey) -> dict[str, Any]:
    from flinkstate.hashing.key_groups import default_max_parallelism
    from flinkstate.reading.reader import has_native_state
    from flinkstate.serializers.types import type_name

    operator = survey.operator
    keyed = survey.keyed and {
        "key_type": type_name(survey.keyed.key),
        "compression": None if has_native_state(operator) else sorted(survey.keyed.compressions),
        "states": [_state_facts(state) for state in survey.keyed.states],
    }
    return {
        "id": operator.hex_id,
        "uid": operator.uid,
        "name": operator.name,
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "default_max_parallelism": default_max_parallelism(operator.parallelism),
        "finished_subtasks": survey.finished_subtasks,
        "keyed": keyed,
        "operator_states": [
            {"name": state.name, "mode": state.mode.label, "elements": state.elements}
            for state in survey.operator_states
        ],
        "coordinator_bytes": survey.coordinator_bytes,
        "raw_bytes": survey.raw_bytes,
    }


def _state_facts(survey: StateSurvey) -> dict[str, Any]:
    from flinkstate.serializers.types import type_name
    from stateferry.look.declaration import declared

    state, largest = survey.state, survey.largest_key_group
    return {
        "name": state.name,
        "kind": state.kind.value,
        "type": state.type_name,
        "namespace_type": type_name(state.namespace),
        "ttl": state.ttl,
        "entries": survey.entries,
        "bytes": survey.bytes,
        "key_groups": {
            "empty": survey.empty_key_groups,
            "largest": largest and {"key_group": largest.key_group, "entries": largest.entries, "bytes": largest.bytes},
        },
        "migratable": survey.why_not_migratable is None,
        "reason": survey.why_not_migratable,
        "kryo": survey.maps and kryo_facts(state, survey.maps),
        "declaration": declared("NEW_STATE", state.map_type, state.value) if state.map_type is not None else None,
        "worth": survey.blobs and worth_facts(survey.blobs),
    }


def kryo_facts(state: KeyedState, found: FoundClasses) -> dict[str, Any]:
    """What the maps of a state by Kryo are, as JSON."""
    from stateferry.look.kryo_maps import maps_line

    return {
        "maps": found.maps,
        "null_maps": found.null_maps,
        "empty_maps": found.empty_maps,
        "entries": found.entries,
        "kryo": found.kryo,
        "classes": found.classes,
        "foreign": found.foreign,
        "line": maps_line(state.type_name, found) if state.map_type is not None else None,
    }


def worth_facts(blobs: BlobSizes) -> dict[str, Any]:
    """What the sizes of a state's maps say, as JSON."""

    def spread(of: SizeDistribution) -> dict[str, int]:
        return {"median": of.median, "p90": of.ninety, "p99": of.ninety_nine, "largest": of.largest}

    return {
        "blobs": blobs.blobs,
        "entries": spread(blobs.entries),
        "bytes": spread(blobs.bytes),
        "backend": blobs.backend.value,
        "bytes_per_access_before": blobs.access_before,
        "bytes_per_access_after": blobs.access_after,
        "extra_key_bytes": blobs.extra_key_bytes,
        "worth_it": blobs.why_not_worth_it is None,
        "condition": blobs.condition,
        "reason": blobs.why_not_worth_it,
    }
