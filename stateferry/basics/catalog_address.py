"""The address of the catalog's database, and the password in it, which is in no file and in no message."""

from __future__ import annotations

import os
import re

VARIABLE = "STATEFERRY_CATALOG"

_OF_USER = re.compile(r"(?<=://)([^/@:]*):.*@")
_OPTION = re.compile(r"([?&])((?:ssl)?password)=[^&]*", re.IGNORECASE)


def hidden(address: str) -> str:
    """Returns the address with asterisks in place of passwords."""
    return _OPTION.sub(r"\1\2=***", _OF_USER.sub(r"\1:***@", address))


def without_password(address: str) -> str:
    """Returns the address without passwords."""
    rest = _OPTION.sub(lambda found: found[1] if found[1] == "?" else "", _OF_USER.sub(r"\1@", address))
    return rest.replace("?&", "?").removesuffix("?")


def has_password(address: str) -> bool:
    """Whether the address has a password in it."""
    return hidden(address) != address


def to_connect(address: str) -> str:
    """Returns the address with the password that `STATEFERRY_CATALOG` has for the same database, if it has one."""
    named = os.environ.get(VARIABLE, "")
    return named if has_password(named) and without_password(named) == without_password(address) else address
