"""A schema of Avro's, its names written out, so that two of them can be compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from json import JSONDecoder
from typing import Any

from flinkstate.classfiles.class_file import AVRO_RECORD, ClassFile
from flinkstate.serializers.avro import with_namespace

_PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAMED = ("record", "enum", "fixed")
# What Avro doesn't keep as a property of a type, and of a field.
_RESERVED = frozenset(("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"))
_RESERVED_OF_FIELDS = frozenset(("default", "doc", "name", "order", "type", "aliases"))
# Which Avro doesn't compare.
_NOT_COMPARED = ("doc", "aliases")
_MOST_SCHEMAS = 8
_CANT_READ = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

# A union is a list. Every other type is an object with its kind; the name of a type that was met before has none else.
Node = Any


class Schema:
    """A parsed schema, with its types by name. `text` is equal for two schemas if Avro takes them for equal."""

    def __init__(self, parsed: object) -> None:
        self.named: dict[str, Node] = {}
        self.root = self._node(parsed, "")
        self.text = json.dumps(_compared(self.root), sort_keys=True)

    def found(self, node: Node) -> Node:
        """Returns the definition of a type that is given by its name."""
        return self.named[node] if isinstance(node, str) else node

    def _node(self, given: Any, namespace: str) -> Node:
        if isinstance(given, list):
            return [self._node(one, namespace) for one in given]
        if isinstance(given, str):
            return {"type": given} if given in _PRIMITIVES else self._known(given, namespace)
        kind = given["type"]
        node: dict[str, Any] = {name: one for name, one in given.items() if name not in _RESERVED} | {"type": kind}
        if kind == "array":
            return node | {"items": self._node(given["items"], namespace)}
        if kind == "map":
            return node | {"values": self._node(given["values"], namespace)}
        if kind in _NAMED:
            return self._named_node(given, node, namespace)
        if kind not in _PRIMITIVES:
            raise ValueError(f"{kind} is no type of Avro's")
        return node

    def _known(self, name: str, namespace: str) -> str:
        for one in (with_namespace(name, namespace), name):
            if one in self.named:
                return one
        raise KeyError(name)

    def _named_node(self, given: Mapping[str, Any], node: dict[str, Any], namespace: str) -> Node:
        name = with_namespace(given["name"], given.get("namespace", namespace))
        inner = name.rpartition(".")[0]
        node |= {"name": name, "aliases": [with_namespace(one, inner) for one in given.get("aliases", ())]}
        # Its fields may be of the type itself.
        self.named[name] = node
        if node["type"] == "enum":
            node["symbols"] = list(given["symbols"])
        elif node["type"] == "fixed":
            node["size"] = int(given["size"])
        else:
            node["fields"] = [self._field(one, inner) for one in given["fields"]]
        return node

    def _field(self, given: Mapping[str, Any], namespace: str) -> Node:
        field = {name: one for name, one in given.items() if name not in _RESERVED_OF_FIELDS}
        field |= {"name": given["name"], "type": self._node(given["type"], namespace)}
        field |= {name: given[name] for name in ("default", "aliases") if name in given}
        order = given.get("order", "ascending").lower()
        return field if order == "ascending" else field | {"order": order}


def schema_of(text: str) -> Schema | None:
    """Reads a schema; None if it isn't one."""
    try:
        return Schema(json.loads(text))
    except _CANT_READ:
        return None


def schema_in(class_file: ClassFile) -> Schema | None:
    """Returns the schema that a class of Avro's compiler has in its code; None if it can't be told which that is."""
    if class_file.superclass != AVRO_RECORD or class_file.differs:
        return None
    try:
        schemas = [Schema(one) for one in _records_in(class_file.texts)]
    except _CANT_READ:
        return None
    is_its = len(schemas) == 1 and _plain(schemas[0].root["name"]) == _plain(class_file.name)
    return schemas[0] if is_its else None


def _records_in(texts: tuple[str, ...]) -> Iterator[object]:
    """Yields the records in the strings of a class. Avro's compiler has a long schema in several, one after another."""
    begins = [number for number, text in enumerate(texts) if text.lstrip().startswith("{")]
    if len(begins) > _MOST_SCHEMAS:
        raise ValueError("too many strings of the class may be its schema")
    for begin in begins:
        following = "".join(texts[begin:]).lstrip()
        try:
            parsed, end = JSONDecoder().raw_decode(following)
        except ValueError:
            continue
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            continue
        # The reader of class files has this character for what Java writes in its own way.
        if "\ufffd" in following[:end]:
            raise ValueError("a character of the schema is not known")
        yield parsed


def _plain(name: str) -> str:
    """Returns a class's name, or its schema's, the same for both if one class is inside of another."""
    return name.replace("$", ".").replace("..", ".")


def _compared(node: Node) -> Node:
    if isinstance(node, list):
        return [_compared(one) for one in node]
    if not isinstance(node, dict):
        return node
    # A field has a default too, which Avro compares.
    is_enum = node["type"] == "enum" and "symbols" in node
    left_out = (*_NOT_COMPARED, "default") if is_enum else _NOT_COMPARED
    kept = {name: one for name, one in node.items() if name not in left_out}
    inner = ("fields", "items", "values", "type")
    return {name: _compared(one) if name in inner else one for name, one in kept.items()}
