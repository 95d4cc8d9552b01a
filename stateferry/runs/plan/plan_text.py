"""Values of a plan as people read them: moments and durations instead of milliseconds."""

from __future__ import annotations

from stateferry.basics.durations import format_duration, moment


def shown(name: str, value: object) -> str:
    """The value of the field `name`."""
    if isinstance(value, int) and not isinstance(value, bool):
        if name == "now":
            return moment(value)
        if name.endswith("_ms"):
            return format_duration(value)
    if isinstance(value, list):
        return f"[{', '.join(shown(name, one) for one in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {shown(key, one)}' for key, one in value.items() if one is not None)}}}"
    return str(value)
