"""What can go wrong with Flink, in Flink's own words."""

from __future__ import annotations

_FRAME = "\tat "
_CAUSED_BY = "Caused by: "
_WRAPPERS = ("java.util.concurrent.CompletionException: ", "java.util.concurrent.ExecutionException: ")


class FlinkError(Exception):
    """The root of them all."""


class FlinkUnreachableError(FlinkError):
    """No answer for as long as we had patience; whether Flink did what was asked is unknown."""


class FlinkRefusedError(FlinkError):
    """An answer that says no."""

    def __init__(self, request: str, status: int, trace: str) -> None:
        super().__init__(f"{request} was answered with {status}: {root_cause(trace)}")
        self.status = status
        self.trace = trace

    def says(self, *words: str) -> bool:
        return any(word in self.trace for word in words)


class FlinkSavepointError(FlinkError):
    """Flink took no savepoint."""


class FlinkJobError(FlinkError):
    """The job ended otherwise than it was to."""


class FlinkJobLostError(FlinkError):
    """Flink doesn't know the job any more, and nothing else tells what became of it."""


class FlinkTimeoutError(FlinkError):
    """It hasn't happened within the time that was given; it may yet."""


def root_cause(trace: str) -> str:
    """What a Java stack trace says, from its first words down to the root cause, without frames and repetitions."""
    said: list[str] = []
    for line in trace.strip().splitlines():
        if line.startswith((_FRAME, "\t...")) or not line.strip():
            continue
        if said and not line.startswith(_CAUSED_BY):
            said[-1] += f" {line.strip()}"
            continue
        words = line.removeprefix(_CAUSED_BY).strip()
        for wrapper in _WRAPPERS:
            words = words.removeprefix(wrapper)
        said.append(words)
    # An exception that wraps another repeats its words.
    told = [words for index, words in enumerate(said) if index == 0 or words not in said[index - 1]]
    return " – caused by ".join(told) or "(nothing)"
