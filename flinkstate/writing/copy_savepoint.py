"""Writes a savepoint anew in its own format and layout, with the entries of some keyed states replaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from flinkstate.errors import RefusedError, UsageError
from flinkstate.files.storage import Location
from flinkstate.files.uris import lies_in, real_name
from flinkstate.hashing.key_groups import range_for_operator_index
from flinkstate.keyed.compression import Buffer
from flinkstate.metadata.build_metadata import expect_writable
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import KeyedHandle, NativeHandle, Operator
from flinkstate.metadata.savepoint_properties import canonical_properties, native_properties
from flinkstate.reading.reader import Savepoint, has_native_state
from flinkstate.writing.new_entries import NewRows, as_entries
from flinkstate.writing.operator_rewrite import Copy, Layout, OperatorRewrite, TransformedFiles
from flinkstate.writing.writer import SavepointWriter

# The new rows of states, by their names.
Replaced = Mapping[str, NewRows]


def copy_with(source: Savepoint, target: str, new: Mapping[bytes, Replaced]) -> None:
    """Writes the source into a new folder; `new` has the rows that replace those of states, by operator id.

    Everything is prepared, and what can't be written is refused, before the first file is.
    """
    _refuse_inside(source.folder, target)
    expect_writable(source.metadata.version, source.folder.child(METADATA).shown)
    operators = source.metadata.operators
    layout = Layout(native=frozenset(operator.id for operator in operators if has_native_state(operator)))
    rewrites = []
    for operator in operators:
        replaced = new.get(operator.id, {})
        _refuse_finished(operator, replaced)
        rewrites.append((OperatorRewrite.prepare(source, operator, layout, Copy(replaced)), replaced))
    writer = SavepointWriter(target)
    written = tuple(rewrite.finish(writer, _keyed(rewrite, writer, replaced)) for rewrite, replaced in rewrites)
    as_format = native_properties if layout.native else canonical_properties
    properties = as_format(source.metadata)
    writer.commit(replace(source.metadata, operators=written, properties=properties))


def _refuse_inside(source: Location, target: str) -> None:
    if lies_in(real_name(Location.of(target).shown), real_name(source.shown)):
        raise UsageError(f"{target} lies in the savepoint {source.shown}, which is never written into: choose another")


def _refuse_finished(operator: Operator, replaced: Replaced) -> None:
    finished = {subtask.index for subtask in operator.subtasks if subtask.finished}
    if replaced and (operator.fully_finished or finished):
        raise RefusedError(
            f"operator {operator.label} has finished subtasks, which can't get entries: Flink restores no state there"
        )


def _keyed(
    rewrite: OperatorRewrite, writer: SavepointWriter, replaced: Replaced
) -> dict[int, KeyedHandle | NativeHandle]:
    """Writes an operator's keyed files. A subtask that had none gets one if it has new rows."""
    ranges, old = rewrite.ranges(), rewrite.old
    if not replaced:
        return {index: rewrite.copy_keyed(writer, index, key_groups) for index, key_groups in ranges.items()}
    groups = {group for rows in replaced.values() for group in rows}
    for index in range(old.parallelism):
        own = range_for_operator_index(old.max_parallelism, old.parallelism, index)
        if index not in ranges and any(group in own for group in groups):
            ranges[index] = own
    header = rewrite.header
    assert header is not None
    ids = {state.name: number for number, state in enumerate(header.states)}
    written = {}
    for index, key_groups in sorted(ranges.items()):
        with rewrite.open_old(key_groups) as files:

            def entries(key_group: int, files: TransformedFiles = files) -> Iterator[tuple[int, Buffer, int]]:
                yield from files.entries(key_group)
                for name, rows in replaced.items():
                    if key_group in rows:
                        yield ids[name], *as_entries(rows[key_group])

            written[index] = rewrite.write_keyed(writer, index, key_groups, entries)
    return written
