"""Finds the files of a checkpoint that was moved: its `_metadata` has their absolute addresses from before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from stateferry.savepoint.metadata import (
    AbsoluteFile,
    KeyedHandle,
    Metadata,
    NamedFile,
    NativeHandle,
    Operator,
    OperatorHandle,
    StreamHandle,
    Subtask,
)

_Handle = TypeVar("_Handle", KeyedHandle, OperatorHandle)


def with_moved_files(metadata: Metadata, roots: Mapping[str, str]) -> Metadata:
    """Returns the metadata with the addresses that files have now; `roots` has new beginnings by the old ones."""
    return replace(metadata, operators=tuple(_operator(operator, roots) for operator in metadata.operators))


def _operator(operator: Operator, roots: Mapping[str, str]) -> Operator:
    return replace(operator, subtasks=tuple(_subtask(subtask, roots) for subtask in operator.subtasks))


def _subtask(subtask: Subtask, roots: Mapping[str, str]) -> Subtask:
    def moved(handle: _Handle | None) -> _Handle | None:
        return handle and replace(handle, stream=_stream(handle.stream, roots))

    return replace(
        subtask,
        managed_operator=moved(subtask.managed_operator),
        raw_operator=moved(subtask.raw_operator),
        managed_keyed=moved(subtask.managed_keyed),
        raw_keyed=moved(subtask.raw_keyed),
        native_keyed=subtask.native_keyed and _native(subtask.native_keyed, roots),
    )


def _native(handle: NativeHandle, roots: Mapping[str, str]) -> NativeHandle:
    def moved(files: tuple[NamedFile, ...]) -> tuple[NamedFile, ...]:
        return tuple(replace(file, stream=_stream(file.stream, roots)) for file in files)

    meta = _stream(handle.meta, roots)
    return replace(handle, meta=meta, shared=moved(handle.shared), private=moved(handle.private))


def _stream(stream: StreamHandle, roots: Mapping[str, str]) -> StreamHandle:
    if isinstance(stream, AbsoluteFile):
        address = _plain(stream.uri)
        for old, new in roots.items():
            root = _plain(old).rstrip("/")
            if address.startswith(f"{root}/"):
                return replace(stream, uri=new.rstrip("/") + address.removeprefix(root))
    return stream


def _plain(uri: str) -> str:
    """Returns the path of a local file's URI, of which there are several forms; other URIs stay."""
    if not uri.startswith("file:"):
        return uri
    return "/" + uri.removeprefix("file:").removeprefix("//localhost/").lstrip("/")
