"""The types of a plan's fields, and the base of its models."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StrictInt,
    StrictStr,
)

from flinkstate.errors import UsageError
from flinkstate.files.uris import check_uri, path_of_file_uri
from flinkstate.hashing.key_groups import UPPER_BOUND_MAX_PARALLELISM
from flinkstate.metadata.moved_files import root_of
from flinkstate.serializers.type_text import parse_map_type, type_text
from stateferry.basics.durations import MAX_MILLISECONDS, parse_duration
from stateferry.basics.quantities import parse_share


def valid_milliseconds(value: object) -> object:
    """The milliseconds of a duration in any of its forms; leaves other values to the field's type."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return value
    try:
        return parse_duration(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


def valid_map_type(text: str | None) -> str | None:
    """The text, if it names the type of a map."""
    try:
        return text if text is None else type_text(parse_map_type(text))
    except UsageError as error:
        raise ValueError(str(error)) from None


def valid_share(value: object) -> object:
    """The number of a share in any of its forms; leaves other values to the field's type."""
    if isinstance(value, bool) or not isinstance(value, str | float | int):
        return value
    try:
        return parse_share(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


def valid_parallelism(value: object) -> int | dict[str, int]:
    """One parallelism for all operators, or one for each of some, in any of its forms: 8, `8`, `main=4,enrich=8`."""
    if isinstance(value, str):
        value = _parsed_parallelism(value)
    if isinstance(value, Mapping):
        if not value:
            raise ValueError("expected a parallelism for at least one operator, found none")
        return {_operator(name): _parallelism(one, f" for operator {name!r}") for name, one in value.items()}
    return _parallelism(value, "")


# A name may have commas and equals signs, as the names that Flink makes do.
_OF_OPERATOR = re.compile(r"\s*(.*?)\s*=\s*([0-9]+)\s*(?:,|$)", re.ASCII | re.DOTALL)


def _parsed_parallelism(text: str) -> object:
    if re.fullmatch(r"\s*[0-9]+\s*", text, re.ASCII):
        return int(text)
    found: dict[str, int] = {}
    position = 0
    while position < len(text):
        one = _OF_OPERATOR.match(text, position)
        if one is None:
            raise ValueError(
                f"expected a number for all operators, or operator=number, several with commas between them, such as "
                f"main=4,enrich=8, found {text!r}"
            )
        if one[1] in found:
            raise ValueError(f"operator {one[1]!r} is there twice in {text!r}: give it one parallelism")
        found[one[1]] = int(one[2])
        position = one.end()
    return found


def _operator(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ValueError(f"expected the uid, name or id of an operator before '=', found {name!r}")
    return name


def _parallelism(value: object, of: str) -> int:
    most = UPPER_BOUND_MAX_PARALLELISM
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"expected a number from 1 to {most}{of}, found {value!r}")
    return value


def absolute_place(value: object) -> object:
    """Makes a local path absolute, because a run may continue from another working folder; refuses unclear URIs."""
    if not isinstance(value, str) or not value:
        return value
    if not value.strip() or "\0" in value:
        raise UsageError(f"{value!r} is no name of a place: expected a path or URI")
    if value.startswith("file:"):
        return os.path.abspath(path_of_file_uri(value))
    if "://" in value:
        check_uri(value)
        return value
    return os.path.abspath(os.path.expanduser(value))


def folder_of(name: str) -> str:
    """The savepoint's folder, without a slash at the end; `name` may also be the path of its `_metadata`."""
    return name.rstrip("/").removesuffix("/_metadata").rstrip("/")


def valid_place(value: object) -> object:
    """The same for a field of a plan."""
    try:
        return absolute_place(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


def valid_roots(value: object) -> object:
    """New beginnings of addresses by the old ones: those of `OLD=NEW` in each line of a text, or in each of a list."""
    lines = value.splitlines() if isinstance(value, str) else value
    if not isinstance(lines, list):
        return value
    try:
        return dict(root_of(line.strip()) for line in lines if line.strip())
    except UsageError as error:
        raise ValueError(str(error)) from None


def valid_declarations(value: object) -> object:
    """Types by state: those of `OPERATOR/STATE=TYPE` in each line of a text, or in each of a list."""
    lines = value.splitlines() if isinstance(value, str) else value
    if not isinstance(lines, list):
        return value
    found: dict[str, str] = {}
    for state, _, type_ in (line.rpartition("=") for line in lines if line.strip()):
        if "/" not in state or not type_.strip():
            raise ValueError("expected OPERATOR/STATE=TYPE, such as main/tags=List<String>")
        if state.strip() in found:
            raise ValueError(f"{state.strip()!r} is there twice: give it one type")
        found[state.strip()] = type_.strip()
    return found


def valid_jars(value: object) -> object:
    """Jars and folders: those of each line of a text, or of a list."""
    lines = value.splitlines() if isinstance(value, str) else value
    if not isinstance(lines, list | tuple):
        return value
    return tuple(valid_place(line.strip() if isinstance(line, str) else line) for line in lines if line)


# Where tables are, names are taken for URIs and patterns by the programs that read them.
_UNCLEAR = re.compile(r"[?#]|%(?=[0-9A-Fa-f]{2})|[\x00-\x1f\x7f]")


def check_name_of_home(name: str, what: str) -> None:
    """Refuses a folder of runs and tables, or a catalog in a file, whose name SQLite or Iceberg takes for another."""
    if (wrong := _UNCLEAR.search(name)) is not None:
        sign = "%, followed by two hexadecimal digits," if wrong[0] == "%" else repr(wrong[0])
        raise UsageError(
            f"{what} {name!r} has {sign} in its name, so that SQLite or Iceberg would write somewhere else: choose a "
            "name without it"
        )


def raise_problems(problems: Iterable[str]) -> None:
    """Raises an error with a line for each problem, if there are any."""
    if lines := list(problems):
        raise ValueError("\n".join(lines))


def repeated(names: Iterable[str]) -> list[str]:
    """The names that are there more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


Name = Annotated[StrictStr, Field(min_length=1)]
Place = Annotated[Name, BeforeValidator(valid_place)]
Parallelism = Annotated[StrictInt, Field(ge=1, le=UPPER_BOUND_MAX_PARALLELISM)]
# For all operators, or by the name of an operator.
ParallelismOfOperators = Annotated[int | dict[str, int], PlainValidator(valid_parallelism)]
Milliseconds = Annotated[StrictInt, Field(ge=0, le=MAX_MILLISECONDS)]
Share = Annotated[float, Field(ge=0, le=1)]
MovedShare = Annotated[float, Field(gt=0, le=1)]


class PlanModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
