"""Writes substitute keys as a Java class, which needs nothing but Java itself."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from flinkstate.errors import UsageError
from flinkstate.serializers.types import Scalar
from stateferry.look.balance.java_literals import java_literal, java_type
from stateferry.look.balance.substitutes import TYPES, Substitutes

_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*\.)*[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PRIMITIVES = {Scalar.INTEGER: "int", Scalar.LONG: "long", Scalar.STRING: "String"}
_HEAD = """\
import java.util.Map;

/**
 * Keys by which Flink sends a record to the subtask that the job chooses, for {parallelism} subtasks at max parallelism
 * {max_parallelism}. With another parallelism or max parallelism they lead elsewhere: make the class anew.
 * Written by stateferry advise.
 */
public final class {name} {{
    public static final int PARALLELISM = {parallelism};
    public static final int MAX_PARALLELISM = {max_parallelism};

    private static final {primitive}[] KEYS = {{
{keys}
    }};
"""
_ALWAYS = """\

    private {name}() {{}}

    /** Returns the key that Flink routes to this subtask, 0 to PARALLELISM - 1. */
    public static {type} partitionToKey(int partition) {{
        return KEYS[partition];
    }}

    /** Returns the subtask to which Flink routes this key. */
    public static int keyToPartition({type} key) {{
        return murmur(key.hashCode()) % MAX_PARALLELISM * PARALLELISM / MAX_PARALLELISM;
    }}
"""
_SPREAD = """\

    /** The subtasks of the heaviest keys. */
    private static final Map<{own}, Integer> HEAVY = Map.ofEntries({heavy});

    /** Of each subtask the last hash of the other keys that it gets. */
    private static final int[] LAST = {{
{last}
    }};

    /** Returns the substitute for one of the job's own keys, so that every subtask gets its share. */
    public static {type} substitute({own} key) {{
        Integer heavy = HEAVY.get(key);
        if (heavy != null) {{
            return KEYS[heavy];
        }}
        int hash = murmur(key.hashCode()), low = 0, high = PARALLELISM - 1;
        while (low < high) {{
            int middle = (low + high) >>> 1;
            if (LAST[middle] < hash) {{
                low = middle + 1;
            }} else {{
                high = middle;
            }}
        }}
        return KEYS[low];
    }}
"""
_MURMUR = """\

    /** Flink's MathUtils.murmurHash. */
    private static int murmur(int code) {
        code *= 0xcc9e2d51;
        code = Integer.rotateLeft(code, 15);
        code *= 0x1b873593;
        code = Integer.rotateLeft(code, 13);
        code = code * 5 + 0xe6546b64;
        code ^= 4;
        code = (code ^ code >>> 16) * 0x85ebca6b;
        code = (code ^ code >>> 13) * 0xc2b2ae35;
        code ^= code >>> 16;
        return code >= 0 ? code : code == Integer.MIN_VALUE ? 0 : -code;
    }
}
"""


def check_class_name(name: str) -> None:
    """Refuses what can't be the name of a Java class."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"expected the name of a Java class such as org.example.Substitutes, found {name!r}")


def java_class(substitutes: Substitutes, class_name: str) -> str:
    """Returns the source of the class."""
    check_class_name(class_name)
    package, _, name = class_name.rpartition(".")
    layout, names = substitutes.layout, {scalar: name for name, scalar in TYPES.items()}
    words = {
        "name": name,
        "parallelism": layout.parallelism,
        "max_parallelism": layout.max_parallelism,
        "type": names[substitutes.type],
        "primitive": _PRIMITIVES[substitutes.type],
        "keys": _lines(java_literal(substitutes.type, key) or "" for key in substitutes.keys),
    }
    source = f"package {package};\n\n" if package else ""
    source += _HEAD.format(**words) + _ALWAYS.format(**words)
    if substitutes.own_type is not None:
        heavy = ",".join(f"\n        Map.entry({literal}, {subtask})" for literal, subtask in substitutes.pinned)
        last = _lines(map(str, substitutes.last_hashes))
        source += _SPREAD.format(own=java_type(substitutes.own_type), heavy=heavy, last=last, **words)
    else:
        source = source.replace("import java.util.Map;\n\n", "")
    return source + _MURMUR


def _lines(items: Iterable[str]) -> str:
    return textwrap.fill(
        ", ".join(items), 116, initial_indent=" " * 8, subsequent_indent=" " * 8, break_on_hyphens=False
    )
