"""The jobs of the cut-over's tests as a jar for any Flink cluster: `python -m tests.flink.demo_jar FOLDER`."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from tests.flink import jars

_VERSION = "2.3.0"
# Where the jobs' purchases come from; Flink's own distribution has it not.
_BUNDLED = f"flink-connector-datagen-{_VERSION}.jar"


def write(folder: Path) -> Path:
    """The jar, in the folder: `totals.jar`."""
    flink, classes = jars.totals(_VERSION).made()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "totals.jar"
    with zipfile.ZipFile(path, "w") as archive, zipfile.ZipFile(flink / _BUNDLED) as bundled:
        for file in sorted(classes.rglob("*.class")):
            archive.write(file, file.relative_to(classes))
        for name in bundled.namelist():
            if name.endswith(".class"):
                archive.writestr(name, bundled.read(name))
    return path


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("python -m tests.flink.demo_jar FOLDER\n")
        return 2
    sys.stdout.write(f"{write(Path(arguments[0]))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
