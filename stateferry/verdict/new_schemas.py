"""What an Avro schema in a new class means for values that were written with another one, by Flink's and Avro's rules.

| the new schema | Flink |
|---|---|
| differs in descriptions, aliases and an enum's default only | reads the values as before |
| has a field more with a default, or by an alias; lacks one; has them in another order | migrates each value |
| has `long` for `int`, `double` for `int` or `float`; a union for one of its types | migrates each value |
| has an enum without a symbol, but with a default | migrates each value; the symbol becomes the default |
| has a number that can't hold each value exactly | migrates each value, and rounds it |
| has a field more without a default; another type; an enum without a symbol | refuses the state |
| has a name in another namespace, another logical type, `string` for `bytes` | isn't looked at: can't tell |
| has an alias of a field or type that is still there | takes it, and Avro may fail or drop values: can't tell |

Any difference but the first is one that Flink would migrate, and it migrates no keys. Of a `GenericRecord` the code of
the job has the schema, so it is taken to be declared as before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.serializers.leaf_types import AvroOpaqueType
from flinkstate.serializers.types import AvroRecordType, FlinkType, type_name
from stateferry.verdict.avro_schema import Node, Schema, schema_in, schema_of
from stateferry.verdict.differences import Change, Difference, not_given

_AVROS_OWN = "org.apache.avro."
_EXACT = {("int", "long"), ("int", "double"), ("float", "double")}
_ROUNDED = {("int", "float"), ("long", "float"), ("long", "double")}
_TEXTS = {("string", "bytes"), ("bytes", "string")}
_MEANING = ("logicalType", "precision", "scale")
_STRUCTURE = frozenset(("type", "name", "aliases", "doc", "fields", "items", "values", "symbols", "size", "default"))


def job_class(old: FlinkType) -> str | None:
    """Returns the job's class of a value by Avro; None if a header doesn't say it, or if it is one of Avro's own."""
    name = _java_class(old)
    return None if name is None or name.startswith(_AVROS_OWN) else name


def _java_class(old: FlinkType) -> str | None:
    if isinstance(old, AvroOpaqueType):
        return old.class_name
    return old.java_class if isinstance(old, AvroRecordType) else None


def avro_differences(old: FlinkType, job: JobClasses) -> Iterator[Difference]:
    """Yields where the schema in the new class differs from the one that a header has."""
    name = _java_class(old)
    if name is None:
        yield _unknown(f"the header doesn't say of which class {type_name(old)} is")
        return
    if name.startswith(_AVROS_OWN):
        return
    if name not in job.classes:
        yield not_given(name)
        return
    new = schema_in(job.classes[name])
    written = schema_of(old.schema or "") if isinstance(old, AvroRecordType | AvroOpaqueType) else None
    if new is None or written is None:
        yield _unknown(f"the class file of {name} doesn't say which schema it has")
    elif new.text != written.text:
        if isinstance(old, AvroOpaqueType):
            yield _unknown(
                f"{name} has another schema now, and the old one is too large to compare, or contains itself"
            )
        else:
            found = list(_Comparison(written, new).of(written.root, new.root, f"the schema of {name}"))
            found += _read_twice(written.named, new.named.values(), "the type")
            yield from found or [_unknown(f"{name} has another schema now, which was not tried")]


def _unknown(text: str) -> Difference:
    return Difference(Change.UNKNOWN, text)


def _migrates(text: str) -> Difference:
    return Difference(Change.MIGRATES, text)


def _refuses(text: str) -> Difference:
    return Difference(Change.REFUSES, text)


class _Comparison:
    """Two schemas whose types are compared."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old, new

    def of(self, given_old: Node, given_new: Node, what: str) -> Iterator[Difference]:
        """Yields where two types differ; `what` says whose they are."""
        old, new = self._old.found(given_old), self._new.found(given_new)
        if isinstance(new, list):
            yield from self._of_unions(old, new, what)
        elif isinstance(old, list):
            yield from self._of_one_for_union(old, new, what)
        elif old["type"] != new["type"]:
            yield _of_kinds(old, new, what)
        else:
            yield from _of_properties(old, new, what)
            match old["type"]:
                case "array":
                    yield from self.of(old["items"], new["items"], what)
                case "map":
                    yield from self.of(old["values"], new["values"], what)
                case "record" | "enum" | "fixed":
                    yield from self._of_named(old, new, what)

    def _of_named(self, old: Node, new: Node, what: str) -> Iterator[Difference]:
        if old["name"] != new["name"]:
            short = [one["name"].rpartition(".")[2] for one in (old, new)]
            text = f"{what} is of {new['name']} now, and was of {old['name']}"
            if short[0] != short[1] and old["name"] not in new["aliases"]:
                yield _refuses(text)
                return
            yield _unknown(f"{text}: another name was not tried")
        if old["type"] == "enum":
            yield from _of_enums(old, new)
        elif old["type"] == "record":
            yield from self._of_records(old, new)
        elif old["size"] != new["size"]:
            yield _refuses(f"{new['name']} has {new['size']} bytes now, and had {old['size']}")

    def _of_records(self, old: Node, new: Node) -> Iterator[Difference]:
        name = new["name"]
        before, after = ({one["name"]: one for one in record["fields"]} for record in (old, new))
        yield from _read_twice(before, new["fields"], f"in {name} the field")
        read, added = set(), []
        for field in new["fields"]:
            what = f"the field {field['name']} of {name}"
            found = [one for one in dict.fromkeys((field["name"], *field.get("aliases", ()))) if one in before]
            if not found:
                added.append(field)
                yield self._of_added(field, what)
                continue
            if len(found) > 1:
                yield _unknown(f"{what} is read from {' and '.join(found)} by its aliases")
            elif found[0] != field["name"]:
                yield _migrates(f"{what} is a new name of {found[0]}, by an alias")
            read.update(found)
            yield from self.of(before[found[0]]["type"], field["type"], what)
            if _beside_type(before[found[0]]) != _beside_type(field):
                yield _migrates(f"{what} has another default or other properties")
        removed = [one for one in old["fields"] if one["name"] not in read]
        for one in removed:
            yield _migrates(f"the field {one['name']} of {name} is removed: the values are dropped")
        for one, field in product(removed, added):
            if not _is_refused(self.of(one["type"], field["type"], "")):
                text = f"{name} lacks the field {one['name']}, and has {field['name']} new, without an alias for it"
                yield Difference(Change.RENAMES, text)
        if [one for one in before if one in after] != [one for one in after if one in before]:
            yield _migrates(f"the fields of {name} are in another order")

    def _of_added(self, field: Node, what: str) -> Difference:
        if "default" in field:
            return _migrates(f"{what} is new: its default in each value")
        kind = self._new.found(field["type"])
        if isinstance(kind, dict) and kind["type"] == "enum" and "default" in kind:
            return _unknown(f"{what} is new, and only its enum has a default, which was not tried")
        return _refuses(f"{what} is new, and has no default")

    def _of_unions(self, old: Node, new: list[Node], what: str) -> Iterator[Difference]:
        olds = old if isinstance(old, list) else [old]
        keys = [_key(self._new.found(one)) for one in new]
        text = f"{what} is of {self._shown(new, self._new)} now, and was of {self._shown(old, self._old)}"
        for one in olds:
            key = _key(self._old.found(one))
            at = keys.index(key) if key in keys else None
            alike = [] if at is None else list(self.of(one, new[at], what))
            # A branch that was compared isn't compared again: with each level of a deep schema that would double.
            others = (self.of(one, other, what) for number, other in enumerate(new) if number != at)
            if at is not None and not _is_refused(alike):
                yield from alike
            elif all(map(_is_refused, others)):
                yield _refuses(text)
            else:
                yield _unknown(f"{text}, which was not tried")
        if keys != [_key(self._old.found(one)) for one in olds] or not isinstance(old, list):
            yield _migrates(text)

    def _of_one_for_union(self, old: list[Node], new: Node, what: str) -> Iterator[Difference]:
        text = f"{what} is of {self._shown(new, self._new)} now, and was of {self._shown(old, self._old)}"
        is_refused = any(_is_refused(self.of(one, new, what)) for one in old)
        yield _refuses(text) if is_refused else _unknown(f"{text}, which was not tried")

    def _shown(self, node: Node, schema: Schema) -> str:
        if isinstance(node, list):
            return f"[{', '.join(self._shown(one, schema) for one in node)}]"
        return str(_key(schema.found(node))[-1])


def _read_twice(old: Iterable[str], new: Iterable[Node], what: str) -> Iterator[Difference]:
    """Yields the old names that several new fields or types have, as a name or an alias.

    Avro renames what was written to one of these, and the others lack it.
    """
    named = Counter(name for one in new for name in {one["name"], *one.get("aliases", ())})
    for name in old:
        if named[name] > 1:
            yield _unknown(f"{what} {name} is the name or an alias of several now, which was not tried")


def _of_kinds(old: Node, new: Node, what: str) -> Difference:
    kinds = old["type"], new["type"]
    text = f"{what} is of {_key(new)[-1]} now, and was of {_key(old)[-1]}"
    if kinds not in _EXACT | _ROUNDED | _TEXTS:
        return _refuses(text)
    if kinds in _TEXTS or "logicalType" in old or "logicalType" in new:
        return _unknown(f"{text}, which was not tried")
    return _migrates(text) if kinds in _EXACT else Difference(Change.LOSES, f"{text}: large numbers are rounded")


def _of_properties(old: Node, new: Node, what: str) -> Iterator[Difference]:
    if any(old.get(name) != new.get(name) for name in _MEANING):
        yield _unknown(f"{what} has another logical type now, and whether its values mean the same was not tried")
    elif _properties(old) != _properties(new):
        yield _migrates(f"{what} has other properties")


def _properties(node: Node) -> dict[str, Any]:
    return {name: one for name, one in node.items() if name not in _STRUCTURE}


def _of_enums(old: Node, new: Node) -> Iterator[Difference]:
    name, gone = new["name"], [one for one in old["symbols"] if one not in new["symbols"]]
    if gone and new.get("default") not in new["symbols"]:
        yield _refuses(f"the enum {name} lacks {', '.join(gone)}")
    elif gone:
        yield Difference(Change.LOSES, f"the enum {name} lacks {', '.join(gone)}, which becomes {new['default']}")
    elif old["symbols"] != new["symbols"]:
        yield _migrates(f"the enum {name} has other symbols, or another order of them")


def _beside_type(field: Node) -> dict[str, Any]:
    return {name: one for name, one in field.items() if name not in ("type", "name", "aliases")}


def _key(node: Node) -> tuple[str, ...]:
    """Returns what tells a type from the others in a union."""
    return (node["type"],) if "name" not in node else (node["type"], node["name"])


def _is_refused(differences: Iterable[Difference]) -> bool:
    return any(one.change is Change.REFUSES for one in differences)
