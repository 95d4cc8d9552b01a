"""Passes on what Spark's JVM writes to stderr, except for lines that every JVM of Spark's writes at its start."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# Spark's launcher adds this module to every JVM, and Java has no option that keeps its warning back.
AT_EACH_START = b"WARNING: Using incubator modules: jdk.incubator.vector"
_SECONDS = 5.0


@contextmanager
def passed_on() -> Iterator[int]:
    """Yields the file descriptor that a JVM which is started in here gets as its stderr.

    If the start fails, the context ends when all that the JVM has written is passed on.
    """
    reading, writing = os.pipe()
    thread = threading.Thread(target=_pass_on, args=(reading,), daemon=True, name="messages of Spark's JVM")
    thread.start()
    try:
        yield writing
    except BaseException:
        os.close(writing)
        thread.join(_SECONDS)
        raise
    os.close(writing)


def _pass_on(reading: int) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if line.rstrip() != AT_EACH_START:
                # If nobody reads our stderr any more, the JVM must not wait for us.
                with suppress(OSError, ValueError):
                    os.write(sys.stderr.fileno(), line)
