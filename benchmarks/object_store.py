"""Measures `stateferry run` on an S3 store that is 30 ms and 200 MB/s away, beside a local disk and the bytes alone.

The store is S3Proxy behind `slow_pipe`. What the run sends and receives is counted, and then sent and received once
more by as many threads as the run has tasks at a time, without any work on it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from pyarrow import fs

from benchmarks.executing import ALL_CORES, execute
from benchmarks.measuring import Duration, Scale, Subject, expect
from benchmarks.pipeline import Bench, entries_in, run_command
from benchmarks.sections import ENTRIES_PER_KEY, NOW
from local_airflow.settings import free_port
from tests.support.s3_server import S3Server

_MILLISECONDS, _MEGABYTES = 30, 200
_TIMES = 1.5
_AT_ONCE = 2 * len(ALL_CORES)
_PIECE = 8 << 20


@dataclass(frozen=True, slots=True)
class Passed:
    """What went through a pipe."""

    requests: int
    in_sequence: int
    to_server: int
    to_client: int


@contextmanager
def _pipe(server: S3Server, passed_by: list[Passed]) -> Iterator[dict[str, str]]:
    """The environment by which the server is found at the other end of a pipe; at the end, what went through it."""
    port = free_port()
    wanted = [str(number) for number in (port, server.port, _MILLISECONDS, _MEGABYTES)]
    command = [sys.executable, "-m", "benchmarks.slow_pipe", *wanted]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    expect(process.stdout.readline(), "ready\n", "the pipe's first line")
    try:
        yield {**server.environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    finally:
        out, _ = process.communicate()
        passed_by.append(Passed(**json.loads(out)))


def _bytes_alone(server: S3Server, passed: Passed) -> float:
    """The seconds that the same bytes need: first those to the server, then those from it."""
    part, passed_by = os.urandom(_PIECE), list[Passed]()
    with _pipe(server, passed_by) as environment:
        store = fs.S3FileSystem(
            access_key=server.key,
            secret_key=server.secret,
            endpoint_override=environment["AWS_ENDPOINT_URL"],
            region=server.region,
            background_writes=False,
        )
        parts = passed.to_server // _PIECE // _AT_ONCE + 1
        pieces = passed.to_client // _PIECE // _AT_ONCE + 1

        def put(number: int) -> None:
            with store.open_output_stream(f"{server.bucket}/alone/{number}") as stream:
                for _ in range(parts):
                    stream.write(part)

        def get(number: int) -> None:
            with store.open_input_file(f"{server.bucket}/alone/{number}") as file:
                for piece in range(pieces):
                    file.read_at(_PIECE, piece % parts * _PIECE)

        began = perf_counter()
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for work in (put, get):
                list(threads.map(work, range(_AT_ONCE)))
        return perf_counter() - began


def measure(scale: Scale) -> Iterator[Duration]:
    """Measures once: on the disk, on the store, and the bytes alone."""
    bench = Bench(scale.folder, scale.keys)
    source = bench.source("plain", bench.plain)
    local = scale.folder / "local"
    log = scale.folder / "run.log"
    command = run_command(source, local / "target", "--now", str(NOW))
    on_disk = execute(command, log, environment={"STATEFERRY_HOME": str(local / "home")})
    expect(entries_in(local / "target"), scale.keys * ENTRIES_PER_KEY, "entries of the run on the disk")
    shutil.rmtree(local)
    with S3Server(_folder(scale, "s3")) as server:
        for file in source.iterdir():
            _upload(server, file)
        passed_by: list[Passed] = []
        with _pipe(server, passed_by) as environment:
            places = {
                "STATEFERRY_HOME": server.uri("home"),
                "STATEFERRY_CATALOG": f"sqlite:///{scale.folder / 'catalog.db'}",
            }
            command = run_command(server.uri("source"), server.uri("target"), "--now", str(NOW))
            on_store = execute(command, log, environment={**environment, **places})
        (passed,) = passed_by
        alone = _bytes_alone(server, passed)
    most = _TIMES * max(alone, on_disk.seconds)
    yield Duration("on a local disk", (on_disk.seconds,))
    megabytes = f"{passed.to_client / 1e6:,.0f} MB received, {passed.to_server / 1e6:,.0f} MB sent"
    yield Duration("the bytes of the run on the store, alone", (alone,), None, megabytes)
    requests = f"{passed.requests:,} requests, {passed.in_sequence:,} of them one after the other"
    note = f"{requests}, {on_store.cpu_seconds:.0f} processor seconds"
    yield Duration("on the store", (on_store.seconds,), most, note)


def _folder(scale: Scale, name: str) -> Path:
    folder = scale.folder / name
    folder.mkdir()
    return folder


def _upload(server: S3Server, file: Path) -> None:
    store = fs.S3FileSystem(
        access_key=server.key, secret_key=server.secret, endpoint_override=server.url, region=server.region
    )
    with file.open("rb") as source, store.open_output_stream(f"{server.bucket}/source/{file.name}") as target:
        shutil.copyfileobj(source, target, _PIECE)


SUBJECT = Subject(
    f"A whole run with everything on an S3 store with {_MILLISECONDS} ms a request and {_MEGABYTES} MB/s, "
    "String -> Long, 100 entries a key, on all cores",
    measure,
)
