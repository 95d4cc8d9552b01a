"""Errors of Flink, with the messages that Flink gives."""

from __future__ import annotations

_FRAME = "\tat "
_CAUSED_BY = "Caused by: "
_WRAPPERS = ("java.util.concurrent.CompletionException: ", "java.util.concurrent.ExecutionException: ")


class FlinkError(Exception):
    """The root of these errors."""


class FlinkUnreachableError(FlinkError):
    """Flink gave no answer in time, so it isn't known whether Flink did what was asked."""


class FlinkRefusedError(FlinkError):
    """Flink answered with an error."""

    def __init__(self, request: str, status: int, trace: str) -> None:
        super().__init__(f"{request} was answered with {status}: {root_cause(trace)}")
        self.status = status
        self.trace = trace

    def says(self, *words: str) -> bool:
        """Whether Flink's stack trace contains one of the words."""
        return any(word in self.trace for word in words)


class FlinkSavepointError(FlinkError):
    """Flink couldn't take the savepoint."""


class FlinkJobError(FlinkError):
    """The job ended in another state than expected."""


class FlinkJobLostError(FlinkError):
    """Flink doesn't know the job any more, so it can't be found out how the job ended."""


class FlinkTimeoutError(FlinkError):
    """Something hasn't happened in the given time; it may still happen."""


def root_cause(trace: str) -> str:
    """The messages of a Java stack trace, from the first to the root cause, without frames and repetitions."""
    lines: list[str] = []
    for line in trace.strip().splitlines():
        if line.startswith((_FRAME, "\t...")) or not line.strip():
            continue
        if lines and not line.startswith(_CAUSED_BY):
            lines[-1] += f" {line.strip()}"
            continue
        words = line.removeprefix(_CAUSED_BY).strip()
        for wrapper in _WRAPPERS:
            words = words.removeprefix(wrapper)
        lines.append(words)
    # An exception that wraps another repeats its words.
    shown = [words for index, words in enumerate(lines) if index == 0 or words not in lines[index - 1]]
    return " – caused by ".join(shown) or "(no reason is given)"
