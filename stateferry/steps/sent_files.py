"""The files of the exchange, which the step migrate writes and the step rescale reads, perhaps in another process.

| path under `exchange/` | holds |
|---|---|
| `<operator id>/` | the files of one operator's senders, and their directory (`changes/max_parallelism_exchange.py`) |
| written | a `_metadata` of the operators whose new files migrate has written already |

The senders' files have digests of their own, which the directory leads to. The facts have the digests of the
directories and of `written`, and the sizes of all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flinkstate.errors import DamagedError
from flinkstate.files.digests import digest_of, hasher_of
from flinkstate.files.storage import Location
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.metadata import Metadata
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.writing.operator_rewrite import OperatorRewrite
from stateferry.changes.max_parallelism_exchange import Exchange
from stateferry.runs.record.facts import SentEntries, SentFiles
from stateferry.steps.new_files import Sent

_WRITTEN = "written"


def to_facts(folder: Location, written: Metadata, sent: Iterable[Sent]) -> SentFiles:
    """Writes what the operators are whose files are written already; returns the facts of all files."""
    folder.child(_WRITTEN).write_atomically(build_metadata(written))
    operators = tuple(
        SentEntries(one.rewrite.old.hex_id, one.exchange.driver, one.exchange.receivers, one.sizes) for one in sent
    )
    return SentFiles(operators, {name: _digest(file) for name, file in _digested(folder, operators).items()})


def are_there(folder: Location, facts: SentFiles) -> bool:
    """Whether all files are there in their sizes."""
    if not all(file.is_file() for file in _digested(folder, facts.operators).values()):
        return False
    for one in facts.operators:
        exchange = _exchange(folder, one)
        found = {listed.location.name: listed.size for listed in exchange.folder.listed()}
        if any(found.get(exchange.file(sender).name) != size for sender, size in enumerate(one.sizes)):
            return False
    return True


def of_facts(
    folder: Location, facts: SentFiles, rewrites: Sequence[OperatorRewrite]
) -> tuple[Metadata, tuple[Sent, ...]]:
    """The operators whose files are written already, and what was sent of the others; checks the digests."""
    for name, file in _digested(folder, facts.operators).items():
        if (found := _digest(file)) != facts.digests.get(name):
            raise DamagedError(f"the file with digest {facts.digests.get(name)}", f"one with {found}", file=file.shown)
    written = folder.child(_WRITTEN)
    by_id = {one.old.hex_id: one for one in rewrites}
    sent = tuple(Sent(by_id[one.operator], _exchange(folder, one), one.sizes, {}) for one in facts.operators)
    return parse_metadata(written.read(), written.shown), sent


def _digested(folder: Location, operators: Iterable[SentEntries]) -> dict[str, Location]:
    directories = {one.operator: _exchange(folder, one).directory for one in operators}
    return {_WRITTEN: folder.child(_WRITTEN), **directories}


def _exchange(folder: Location, one: SentEntries) -> Exchange:
    return Exchange(folder.child(one.operator), one.driver, len(one.sizes), one.receivers)


def _digest(file: Location) -> str:
    with file.open() as opened:
        return digest_of(hasher_of(opened))
