"""A list, in the run's folder, of the temporary folders that the run's processes have made.

A killed process can't remove its temporary folder, so the next process of the run does. The file is a JSON list of
objects with `folder` and `process`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flinkstate.files.storage import Location
from flinkstate.files.temporary_folder import is_in_use, is_temporary_folder, remove_temporary_folder, temporary_folder
from stateferry.runs.catalog.processes import Process


@dataclass(frozen=True, slots=True)
class TemporaryFolders:
    """The list of one run. Only the holder of the job's lease may change it."""

    file: Location

    def take_over(self) -> None:
        """Removes the folders that ended processes left on this machine, and adds this process's folder to the list."""
        listed = self._listed()
        left = _left_behind(listed)
        for folder in left:
            remove_temporary_folder(folder)
        me = {"folder": temporary_folder(), "process": str(Process.this())}
        # Entries of other machines stay: only those machines know whether the folder still exists.
        others = [one for one in listed if one["folder"] not in left and not _is_gone(one) and one != me]
        self.file.write_atomically(f"{json.dumps([*others, me], indent=2)}\n".encode())

    def left_behind(self) -> list[str]:
        """Folders that still exist although their processes, and the processes that these started, have ended."""
        return _left_behind(self._listed())

    def _listed(self) -> list[dict[str, str]]:
        try:
            listed = json.loads(self.file.read_if_there() or b"[]")
        except ValueError:
            # A damaged list only means that old folders aren't removed.
            return []
        return [one for one in listed if _is_entry(one)] if isinstance(listed, list) else []


def _left_behind(listed: Iterable[dict[str, str]]) -> list[str]:
    return [
        one["folder"]
        for one in listed
        if Process.parse(one["process"]).is_over and is_temporary_folder(one["folder"]) and not is_in_use(one["folder"])
    ]


def _is_entry(one: Any) -> bool:
    return isinstance(one, dict) and all(isinstance(one.get(name), str) for name in ("folder", "process"))


def _is_gone(one: dict[str, str]) -> bool:
    return Process.parse(one["process"]).is_over and not is_temporary_folder(one["folder"])
