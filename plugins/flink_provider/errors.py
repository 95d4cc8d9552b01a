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
    """What a Java stack trace says first, and the cause that it ends in."""
    said = [line for line in trace.strip().splitlines() if line.strip() and not line.startswith((_FRAME, "\t..."))]
    # An answer in plain words may have more than one line; of a stack trace the first and the last cause will do.
    causes = [index for index, line in enumerate(said) if line.lstrip().startswith(_CAUSED_BY)]
    if not said:
        return "(nothing)"
    first = said[0].strip()
    for wrapper in _WRAPPERS:
        first = first.removeprefix(wrapper)
    if not causes:
        return " ".join(line.strip() for line in said)
    last = " ".join(line.strip() for line in said[causes[-1] :]).removeprefix(_CAUSED_BY)
    return last if last.split(":")[0] == first.split(":")[0] else f"{first} – caused by {last}"
