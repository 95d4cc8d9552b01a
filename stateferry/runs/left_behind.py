"""Which temporary folders a run's processes have made, kept in the run's folder: a process that was killed can't remove
its own, so whoever comes next does.

`temporary.json` is a list of objects with `folder` and `process`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from stateferry.runs.processes import Process
from stateferry.savepoint.storage import Location
from stateferry.temporary_folder import is_in_use, is_temporary_folder, remove_temporary_folder, temporary_folder

_FILE = "temporary.json"


@dataclass(frozen=True, slots=True)
class TemporaryFolders:
    """Of the run in `run_folder`. Only who has the job's lease may change the list."""

    run_folder: Location

    def take_over(self) -> None:
        """Removes what processes that are over have left on this machine, and puts down this process's folder."""
        left = self.left_behind()
        for folder in left:
            remove_temporary_folder(folder)
        me = {"folder": temporary_folder(), "process": str(Process.this())}
        # Of other machines only those know whether a folder is still there.
        others = [one for one in self._listed() if one["folder"] not in left and not _is_gone(one) and one != me]
        self._file.write_atomically(f"{json.dumps([*others, me], indent=2)}\n".encode())

    def left_behind(self) -> list[str]:
        """Folders that are still here although the processes that made them, and those that these started, are over."""
        return [
            one["folder"]
            for one in self._listed()
            if Process.parse(one["process"]).is_over
            and is_temporary_folder(one["folder"])
            and not is_in_use(one["folder"])
        ]

    @property
    def _file(self) -> Location:
        return self.run_folder.child(_FILE)

    def _listed(self) -> list[dict[str, str]]:
        try:
            listed = json.loads(self._file.read()) if self._file.exists() else []
        except ValueError:
            # Nothing depends on it but what is removed.
            return []
        return [one for one in listed if _is_entry(one)] if isinstance(listed, list) else []


def _is_entry(one: Any) -> bool:
    return isinstance(one, dict) and all(isinstance(one.get(name), str) for name in ("folder", "process"))


def _is_gone(one: dict[str, str]) -> bool:
    return Process.parse(one["process"]).is_over and not is_temporary_folder(one["folder"])
