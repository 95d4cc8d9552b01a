"""The absolute addresses of files in `_metadata`: where they are after a checkpoint was moved, and which are followed.

Whoever can write a `_metadata` could have its readers connect to any server, with their credentials, by an address in
it. So only addresses on stores that a person has named are followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from flinkstate.errors import RefusedError, UsageError
from flinkstate.files.uris import check_uri, store_in, without_user
from flinkstate.metadata.metadata import AbsoluteFile, FileSegment, Metadata, Operator, StreamHandle

# How an absolute path or a URI begins.
ADDRESS = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")


def root_of(text: str, option: str = "") -> tuple[str, str]:
    """Returns the old and the new beginning of addresses that `OLD=NEW` names.

    Both may have equals signs in them, as the folders of partitions have: NEW begins where an address does.
    """
    places = [found.start() for found in re.finditer("=", text) if ADDRESS.match(text, found.end())]
    pairs = [(text[:place], text[place + 1 :]) for place in places]
    if len(pairs) != 1 or not ADDRESS.match(text):
        of_option = f"option {option}: " if option else ""
        raise UsageError(f"{of_option}expected OLD=NEW, two absolute paths or URIs, found {text!r}")
    return pairs[0]


def with_moved_files(metadata: Metadata, roots: Mapping[str, str]) -> Metadata:
    """Returns the metadata with the addresses that files have now; `roots` has new beginnings by the old ones."""
    return replace(metadata, operators=tuple(_operator(operator, roots) for operator in metadata.operators))


def needless_roots(metadata: Metadata, roots: Mapping[str, str], place: str) -> Iterator[str]:
    """Yields a note for each of the `roots` with which the metadata was read, but which no address in it needed.

    `place` is the name of the snapshot.
    """
    streams = (stream for one in metadata.operators for subtask in one.subtasks for stream in subtask.streams())
    addresses = {_plain(stream.uri) for stream in streams if isinstance(stream, AbsoluteFile | FileSegment)}
    for old, new in roots.items():
        below = _plain(new).rstrip("/") + "/"
        if not any(address.startswith(below) for address in addresses):
            yield f"--files-from {old}={new} had no effect: {place} has no address of a file below {old}"


def check_stores(metadata: Metadata, file: str, named: Iterable[str]) -> None:
    """Refuses `_metadata` with an address on another store than those of the places that a person has `named`."""
    stores = {store_in(name) for name in named}
    known: dict[str, bool] = {}
    for operator in metadata.operators:
        for subtask in operator.subtasks:
            for stream in subtask.streams():
                if not isinstance(stream, AbsoluteFile | FileSegment):
                    continue
                store = _beginning(stream.uri)
                if store not in known:
                    known[store] = store_in(stream.uri) in stores
                if not known[store]:
                    raise RefusedError(_not_named(stream.uri, operator, file))
                if store:
                    _check_address(stream.uri, operator, file)


def _beginning(uri: str) -> str:
    """The part of the address that tells the store; empty for a local file."""
    return "" if uri.startswith("file:") or "://" not in uri else "/".join(uri.split("/", 3)[:3])


def _not_named(uri: str, operator: Operator, file: str) -> str:
    place = _beginning(uri) or "file:"
    return (
        f"{file}: the address {without_user(uri)} of a file of operator {operator.label} is in _metadata alone, and on "
        f"another store than the savepoint. Nothing is read from a place that only _metadata names: if the files are "
        f"there, name it (--files-from {without_user(place)}/={without_user(place)}/)"
    )


def _check_address(uri: str, operator: Operator, file: str) -> None:
    try:
        check_uri(uri)
    except UsageError as error:
        raise RefusedError(
            f"{file}: the address of a file of operator {operator.label}, which is in _metadata: {error}"
        ) from None


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
