"""Reads a savepoint and writes one, with the library `flinkstate`: python examples/library.py [SAVEPOINT] [FOLDER]

Without a savepoint it writes one first. The copy leaves out every count below 10.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow.compute as pc

import flinkstate
from flinkstate import NewState, Scalar

USERS = ("ada", "grace", "edsger")


def write_source(folder: Path) -> None:
    """A job that counts words for each user, as it would have left its state."""
    entries = [{"key": user, "user_key": f"word-{number}", "value": number} for user in USERS for number in range(20)]
    words = NewState("words", "MAP", Scalar.LONG, user_key=Scalar.STRING, entries=entries)
    flinkstate.write(str(folder), "word-count", Scalar.STRING, [words], parallelism=2)


def main(source: Path, target: Path) -> None:
    savepoint = flinkstate.open(str(source))
    for operator in savepoint.operators:
        for state in operator.states:
            print(f"{operator.id} {state.name}: {state.kind} of {state.type}, keyed by {state.key_type}")  # noqa: T201
    words = savepoint.operator("word-count").state("words").to_arrow().read_all()
    frequent = words.filter(pc.greater_equal(words["value"], 10))
    savepoint.copy(str(target), {("word-count", "words"): frequent})
    print(f"{words.num_rows} counts in {source}, {frequent.num_rows} in {target}")  # noqa: T201


if __name__ == "__main__":
    places = [Path(argument) for argument in sys.argv[1:3]]
    folder = Path(tempfile.mkdtemp(prefix="flinkstate-"))
    if not places:
        write_source(folder / "source")
    main(*(places + [folder / "source", folder / "target"][len(places) :]))
