"""Faults that change nothing that anyone could see, each with its reason."""

from __future__ import annotations

EQUIVALENT: dict[tuple[str, str, str, str], str] = {}
