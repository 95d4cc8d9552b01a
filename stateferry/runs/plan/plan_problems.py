"""Messages for an invalid plan: one line for each problem, which says how to fix it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel, ValidationError

from flinkstate.basics.did_you_mean import nearest

_LONGEST_VALUE = 80

Model = type[BaseModel]


def problem_lines(
    error: ValidationError, models: Sequence[Model], lists: Mapping[str, Model] | None = None
) -> list[str]:
    """One line for each problem in the error.

    `models` are the model that was validated, and the models inside its lists, from the outermost to the innermost.
    `lists` are the models inside other lists of the first one, by the lists' names.
    """
    found: list[str] = []
    for problem in error.errors():
        inside = (lists or {}).get(str(problem["loc"][0])) if problem["loc"] else None
        found += _lines(problem, models if inside is None else (models[0], inside))
    return list(dict.fromkeys(found))


def _lines(problem: object, models: Sequence[Model]) -> Iterator[str]:
    assert isinstance(problem, dict)  # a TypedDict for the type checker
    place: tuple[int | str, ...] = problem["loc"]
    fields = list(models[min(sum(isinstance(part, int) for part in place), len(models) - 1)].model_fields)
    match problem["type"]:
        case "extra_forbidden":
            near = nearest(str(place[-1]), fields)
            did_you_mean = f": did you mean {near}?" if near else f"; there are: {', '.join(fields)}"
            yield f"{_shown(place)}: unknown field{did_you_mean}"
        case "missing":
            yield f"{_shown(place)}: missing, and it has no default: add it"
        case "value_error":
            where = f"{_shown(place)}: " if place else ""
            yield from (f"{where}{line}" for line in str(problem["ctx"]["error"]).splitlines())
        case "too_short" if problem["input"]:
            pass  # The items have problems of their own.
        case "too_short" | "string_too_short":
            of = "character" if problem["type"] == "string_too_short" else "item"
            yield f"{_shown(place)}: expected at least one {of}, found none"
        case _:
            expected = str(problem["msg"]).removeprefix("Input should be ")
            yield f"{_shown(place)}: expected {expected}, found {_short(problem['input'])}"


def _shown(place: tuple[int | str, ...]) -> str:
    """A field's place as people write it: `operators[0].states[1].ttl_ms`."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the whole"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
