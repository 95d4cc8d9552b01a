"""Reports the loss of one of Spark's processes as a transient error, in one line."""

from __future__ import annotations

import logging
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from flinkstate.errors import StateferryError, TransientError

# When a JVM is killed, its connections may close before the end of its process can be seen.
_LONGEST_END = 2.0
_MEMORY = "If no person ended it, the operating system may have done so for lack of memory; its log says that"

# Patterns in Spark's message of a failed job, and what we say about each; the first match counts.
_LOST = (
    (r"Python worker exited unexpectedly|Python worker failed to connect back", f"a Python worker was lost. {_MEMORY}"),
    (r"ExecutorLostFailure|Executor heartbeat timed out|Lost executor", f"an executor was lost. {_MEMORY}"),
    (
        r"Master removed our application|All masters are unresponsive",
        "Spark's master can't be reached, or has ended the application",
    ),
    (
        r"SparkContext (?:has been|was) shut ?down|stopped SparkContext|cancelled because SparkContext",
        "Spark was stopped from outside",
    ),
    (r"java\.lang\.OutOfMemoryError", "a JVM of Spark's ran out of memory"),
    (r"java\.io\.IOException: No space left on device", "the disk of Spark's temporary files is full"),
)


class _OurOwnWords(logging.Filter):
    """Drops what py4j logs with a stack trace, because the error that it raises says the same."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "py4j" not in record.pathname


_OUR_OWN_WORDS = _OurOwnWords()


def say_it_once() -> None:
    """Silences py4j's log of a lost JVM, which `lost_as_transient` reports."""
    for name in (None, "py4j", "py4j.java_gateway", "py4j.clientserver"):
        logging.getLogger(name).addFilter(_OUR_OWN_WORDS)


@contextmanager
def lost_as_transient() -> Iterator[None]:
    """Raises a transient error if an error comes from a lost process of Spark; other errors stay as they are."""
    try:
        yield
    except StateferryError:
        raise
    except Exception as error:
        if (loss := _loss(error)) is not None:
            raise TransientError(loss) from error
        raise


def _loss(error: Exception) -> str | None:
    if isinstance(error, Py4JJavaError):
        return _loss_in(error)
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return None
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return None if _answers(gateway) else f"Spark's JVM was lost in the middle of the work. {_MEMORY}"
    try:
        code = process.wait(0 if _answers(gateway) else _LONGEST_END)
    except subprocess.TimeoutExpired:
        return None
    return f"Spark's JVM (process {process.pid}) was lost in the middle of the work: {_end(code)}"


def _loss_in(error: Py4JJavaError) -> str | None:
    """What the JVM, which still answers, says about other processes."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 any error means that the JVM can't answer
        return f"Spark's JVM was lost in the middle of the work. {_MEMORY}"
    for pattern, words in _LOST:
        if re.search(pattern, text):
            return f"Spark could not go on with the work: {words}"
    return None


def _answers(gateway: Any) -> bool:
    try:
        place = gateway.gateway_parameters
        with socket.create_connection((place.address, place.port), timeout=5):
            return True
    except OSError:
        return False


def _end(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    return f"it was ended by {signal.Signals(-code).name}. {_MEMORY}"
