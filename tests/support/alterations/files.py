"""Compressed key groups, files and inlined state."""

from __future__ import annotations

from dataclasses import replace

import cramjam

from flinkstate.metadata.metadata import (
    InlineBytes,
    Operator,
    RelativeFile,
)
from tests.support.alterations.scene import (
    NotApplicableError,
    Place,
    Scene,
    flipped,
    harmful,
    harmless,
)


@harmful
def a_bit_of_a_compressed_key_group(scene: Scene) -> Place:
    operator, task, handle = scene.handle()
    if not scene.header(operator, task.index).compressed:
        raise NotApplicableError
    data = scene.content(handle.stream)
    at = scene.random.randrange(min(offset for offset in handle.offsets if offset), len(data))
    stream = scene.stored(flipped(data, at, scene.random.randrange(8)), handle.stream)
    scene.replace_handle(operator, task.index, replace(handle, stream=stream))
    return Place((operator.label,))


@harmless
def key_groups_compressed_in_other_blocks(scene: Scene) -> Place:
    operator, task, handle = scene.handle()
    if not scene.header(operator, task.index).compressed:
        raise NotApplicableError
    data, offsets = scene.content(handle.stream), [offset for offset in handle.offsets if offset]
    ends = dict(zip(sorted(offsets), [*sorted(offsets)[1:], len(data)], strict=True))
    out, at = data[: min(offsets)], []
    for offset in handle.offsets:
        at.append(len(out) if offset else 0)
        if offset:
            plain = bytes(cramjam.snappy.decompress(data[offset : ends[offset]]))
            halves = [
                bytes(cramjam.snappy.compress(part)) for part in (plain[: len(plain) // 2], plain[len(plain) // 2 :])
            ]
            out += halves[0] + halves[1]
    stream = scene.stored(out, handle.stream)
    scene.replace_handle(operator, task.index, replace(handle, offsets=tuple(at), stream=stream))
    return Place()


def _file(scene: Scene) -> tuple[Operator, RelativeFile]:
    """Any file, of keyed state or of others."""
    files = [
        (operator, stream)
        for operator in scene.metadata.operators
        for task in operator.subtasks
        for stream in task.streams()
        if isinstance(stream, RelativeFile)
    ]
    return scene.choose(files)


@harmful
def a_file_cut_short(scene: Scene) -> Place:
    operator, file = _file(scene)
    path = scene.folder / file.path
    path.write_bytes(path.read_bytes()[: -scene.random.randrange(1, 20)])
    return Place((operator.label,))


@harmful
def a_file_gone(scene: Scene) -> Place:
    operator, file = _file(scene)
    (scene.folder / file.path).unlink()
    return Place((operator.label,))


@harmful
def keyed_state_cut_short_and_its_size_with_it(scene: Scene) -> Place:
    operator, task, handle = scene.handle()
    data = scene.content(handle.stream)
    stream = scene.stored(data[: -scene.random.randrange(1, 20)], handle.stream)
    scene.replace_handle(operator, task.index, replace(handle, stream=stream))
    return Place((operator.label,))


@harmful
def the_files_of_two_subtasks_exchanged(scene: Scene) -> Place:
    operator, one, handle = scene.handle()
    other, its = scene.choose(
        [
            (task, task.managed_keyed)
            for task in operator.subtasks
            if task.index != one.index and task.managed_keyed and any(task.managed_keyed.offsets)
        ]
    )
    scene.replace_handle(operator, one.index, replace(handle, stream=its.stream))
    scene.replace_handle(operator, other.index, replace(its, stream=handle.stream))
    return Place((operator.label,))


@harmless
def a_file_inlined(scene: Scene) -> Place:
    operator, task, handle = scene.handle()
    if isinstance(handle.stream, RelativeFile):
        stream: InlineBytes | RelativeFile = InlineBytes("elsewhere", scene.content(handle.stream))
    else:
        (scene.folder / "a-file").write_bytes(scene.content(handle.stream))
        stream = RelativeFile("a-file", len(scene.content(handle.stream)))
    scene.replace_handle(operator, task.index, replace(handle, stream=stream))
    return Place()
