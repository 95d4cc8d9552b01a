"""This machine's Postgres in a pod, as the image of Postgres would start it: with passwords, and `docker/postgres`."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.docker.images.containers import Pod

_USER = "nobody"
_OWNER = "postgres"
_FIRST_START = Path(__file__).resolve().parents[3] / "docker" / "postgres" / "databases.sh"


def start_postgres(pod: Pod, host: str, programs: Path, folder: Path, variables: Mapping[str, str]) -> None:
    folder.mkdir()
    shutil.chown(folder, _USER)
    password = folder / "password"
    password.write_text(variables["POSTGRES_PASSWORD"])
    shutil.chown(password, _USER)
    make: list[str | Path] = ["--pgdata", folder / "data", "--username", _OWNER, "--pwfile", password, "--no-sync"]
    make += ["--auth-local", "trust", "--auth-host", "scram-sha-256"]
    subprocess.run([programs / "initdb", *make], check=True, capture_output=True, user=_USER, cwd=folder)
    with (folder / "data" / "pg_hba.conf").open("a") as logins:
        logins.write("host all all all scram-sha-256\n")
    server = [f"{programs}/postgres", "-D", f"{folder}/data", "-h", "*", "-k", str(folder), "-c", "fsync=off"]
    pod.start_process(host, *server, user=_USER)
    end = time.monotonic() + 60
    while subprocess.run([programs / "pg_isready", "--host", folder], capture_output=True, check=False).returncode:
        if time.monotonic() > end:
            raise TimeoutError(pod.log(host).read_text()[-2000:])
        time.sleep(0.2)
    environment = {**os.environ, **variables, "PGHOST": str(folder), "POSTGRES_USER": _OWNER}
    subprocess.run(["bash", _FIRST_START], check=True, capture_output=True, env=environment)
