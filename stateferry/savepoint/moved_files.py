"""Finds the files of a checkpoint that was moved: its `_metadata` has their absolute addresses from before."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from stateferry.errors import UsageError
from stateferry.savepoint.metadata import AbsoluteFile, FileSegment, Metadata, Operator, StreamHandle

# How an absolute path or a URI begins.
ADDRESS = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")


def root_of(text: str, option: str) -> tuple[str, str]:
    """Returns the old and the new beginning of addresses that `OLD=NEW` names.

    Both may have equals signs in them, as the folders of partitions have: NEW begins where an address does.
    """
    places = [found.start() for found in re.finditer("=", text)]
    if len(places) > 1:
        places = [place for place in places if ADDRESS.match(text, place + 1)]
    pairs = [(text[:place], text[place + 1 :]) for place in places]
    if len(pairs) != 1 or not all(pairs[0]):
        raise UsageError(f"option {option}: expected OLD=NEW, two absolute paths or URIs, found {text!r}")
    return pairs[0]


def with_moved_files(metadata: Metadata, roots: Mapping[str, str]) -> Metadata:
    """Returns the metadata with the addresses that files have now; `roots` has new beginnings by the old ones."""
    return replace(metadata, operators=tuple(_operator(operator, roots) for operator in metadata.operators))


def _operator(operator: Operator, roots: Mapping[str, str]) -> Operator:
    def moved(stream: StreamHandle) -> StreamHandle:
        return _stream(stream, roots)

    return replace(operator, subtasks=tuple(subtask.with_streams(moved) for subtask in operator.subtasks))


def _stream(stream: StreamHandle, roots: Mapping[str, str]) -> StreamHandle:
    if isinstance(stream, AbsoluteFile | FileSegment):
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
