"""Values by Kryo: what the other line's Kryo makes of their bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flinkstate.classfiles.constructors import may_lack_fields
from flinkstate.classfiles.job_classes import is_of_others
from flinkstate.kryo.found_classes import FoundClasses
from flinkstate.kryo.places_in_maps import ROOT
from flinkstate.serializers.type_parts import with_parts
from flinkstate.serializers.types import KryoType, simple_name
from stateferry.basics.quantities import noun
from stateferry.verdict.job_fields import has_no_references, may_end_in_small_array
from stateferry.verdict.job_fields import written_alike as written_alike_by_fields
from stateferry.verdict.journey import Journey, Part, Place
from stateferry.verdict.kryo_classes import (
    FINAL,
    NULL,
    WITH_TEXT,
    broken_anyway,
    difference,
    is_map_of_entries,
    outcomes_of,
    written_alike,
)
from stateferry.verdict.outcomes import Finding, Outcome, worst
from stateferry.verdict.sample import Found
from stateferry.verdict.sampled_serializer import Sampled
from stateferry.verdict.unknown import TRY_IT
from stateferry.verdict.versions import Line

_BY_JDK = ("java.", "javax.", "[", "org.apache.flink.")
_REWRITE = "write the savepoint for Flink 2: stateferry run --to flink-2"
_SAY_IT = "if it was not, give check --all-by-kryo-5: then they restore"
_COMPARE = f"{_SAY_IT}. If it was, give the savepoint from before the upgrade: --before OLD"
_UUID = "java.util.UUID"
_OPTIONAL = "java.util.Optional"
_READ_ALL = "give --all, which reads every value"
_LONG_STRINGS = "those with a String of 33 to 63 characters"
_MOVE = "have the job move this state to types that Flink has serializers of its own for"
CANNOT_REWRITE = "a run with --to refuses "


def finding_of(part: Part, journey: Journey, sampled: Found | None) -> Finding | None:
    """Says what becomes of the values by Kryo in the part; None if it has none. `sampled` is what was found of each."""
    kryos = [one for one in with_parts(part.type) if isinstance(one, KryoType)]
    if not kryos:
        return None
    if sampled is not None:
        return worst(_of_sample(part, kryo, journey, one) for kryo, one in sampled)
    if journey.stays:
        return _unsampled(part.place, kryos, journey)
    return worst(_by_declaration(part.place, kryo) for kryo in kryos)


def _unsampled(place: Place, kryos: list[KryoType], journey: Journey) -> Finding:
    """Says what is known in the same line of values that are never read, such as namespaces."""
    if not journey.by_one_kryo and not all(_is_alike_anyway(place, kryo.class_name) for kryo in kryos):
        reason = (
            f"its {place.value}s by Kryo aren't read: if the job was upgraded from Flink 1, Kryo 2 may have written "
            "some of them"
        )
        return Finding(Outcome.UNKNOWN, reason, _SAY_IT)
    return Finding(Outcome.RESTORES, f"its {place.value} is by Kryo {journey.target.kryo} as before")


def _by_declaration(place: Place, kryo: KryoType) -> Finding:
    """Says what is known without the values, from the class that is declared."""
    name = kryo.class_name
    if _is_alike_anyway(place, name):
        return Finding(Outcome.RESTORES, f"both Kryos write {_shown(name)} alike")
    if name in WITH_TEXT:
        reason = f"Kryo 5 writes some {place.value}s of {_shown(name)} with other bytes, such as {_LONG_STRINGS}"
        return Finding(Outcome.UNKNOWN, f"{reason}, and these aren't read", TRY_IT)
    if difference(name) is not None:
        return _differing(place, [name], "where they are not null")
    return Finding(
        Outcome.UNKNOWN,
        f"in its {place.value} there are values of {name} by Kryo, inside of another value: their classes aren't read",
        TRY_IT,
    )


def _of_sample(part: Part, kryo: KryoType, journey: Journey, sampled: Sampled) -> Finding:
    beyond = _read_beyond(part, kryo, sampled) if journey.target is Line.TWO else None
    if journey.stays:
        return _of_same_line(part.place, kryo, journey, sampled, beyond)
    finding = _of_other_line(part, kryo, sampled)
    if finding.advice == _REWRITE:
        finding = replace(finding, advice=_rewrite(kryo, sampled))
    if finding.outcome is Outcome.RESTORES and _classes(sampled) and not _is_stable_key(part.place, kryo, sampled):
        return _unstable_key(part.place, kryo)
    if beyond is None or not finding.outcome.breaks:
        return finding
    or_else = Outcome.FAILS if finding.outcome is Outcome.WRONG else Outcome.WRONG
    advice = finding.advice
    if not advice.startswith(CANNOT_REWRITE):
        advice = f"{advice}. If that refuses such an array, {_MOVE}, before the upgrade"
    return replace(finding, reason=f"{finding.reason}. And {beyond}", or_else=or_else, advice=advice)


def _rewrite(kryo: KryoType, sampled: Sampled, advice: str = _REWRITE) -> str:
    """Returns the advice to have a run write the values, or what else helps if that would refuse what is in them."""
    own = {one.class_name for one in kryo.registrations if one.serializer is not None} | dict(kryo.defaults).keys()
    never_read = [one for one in _classes(sampled) if broken_anyway([one], "5") is not None]
    never_read += filter(None, [_not_made_again(kryo, sampled.found)])
    for name in (*never_read, *sampled.found.foreign):
        if name in never_read or name in own or name.endswith(")") or is_of_others(name):
            return f"{CANNOT_REWRITE}{name}: {_MOVE}, before the upgrade"
        return f"{advice}, with the jar that has {name}: --classes old-job.jar"
    return advice


def _of_other_line(part: Part, kryo: KryoType, sampled: Sampled) -> Finding:
    found, name, place = sampled.found.as_of_the_jdk(), kryo.class_name, part.place
    read = _values_read(sampled)
    classes = _classes(sampled)
    are_alike, unknown = _are_alike(kryo, classes), _unknown_alone(kryo, classes)
    if sampled.other_bytes and (are_alike or unknown):
        reason = f"Kryo 5 writes some of its {place.value}s with other bytes, such as {_LONG_STRINGS} ({read})"
        or_else = Outcome.FAILS if unknown else None
        return Finding(Outcome.WRONG, f"{reason}. The job finds nothing under them", _REWRITE, None, or_else)
    if _is_alike_anyway(place, name):
        return _by_declaration(place, kryo)
    if sampled.two_meanings:
        return Finding(Outcome.UNKNOWN, f"{_both_read(place, kryo, sampled)}, as other ones", TRY_IT)
    if found.kryo.get("2") and unknown:
        reason = f"it isn't known whether Kryo 5 reads its {place.value}s of {unknown} as Kryo 2 wrote them ({read})"
        return Finding(Outcome.UNKNOWN, reason, TRY_IT)
    if found.kryo.get("2") and not are_alike:
        finding = _differing(place, _most_telling(kryo, found.classes.values()), read, sampled)
        alone = place is Place.VALUE and isinstance(part.type, KryoType)
        is_certain = alone and _loses_an_entry(found) and not _not_made_again(kryo, found)
        return replace(finding, or_else=None) if is_certain else finding
    if found.foreign:
        return _unread(place, found.foreign)
    if sampled.why_not is not None:
        return Finding(
            Outcome.UNKNOWN,
            f"its {place.value}s by Kryo can't be read: {sampled.why_not}",
            TRY_IT,
        )
    if _is_nothing(sampled):
        return _by_declaration(place, kryo) if difference(name) is not None else _none_read(place)
    if not sampled.whole and (differing := [one for one in classes if _may_differ(kryo, one)]):
        shown = _met(sampled, differing[0])
        reason = f"both Kryos write the {place.value}s of {shown} that were read alike, but not all others"
        return Finding(Outcome.UNKNOWN, f"{reason} ({read})", _READ_ALL)
    shown = ", ".join(_met(sampled, one) for one in classes) or "only nulls"
    return Finding(Outcome.RESTORES, f"both Kryos write it alike: {shown} {read}")


def _loses_an_entry(found: FoundClasses) -> bool:
    """Whether all values are maps of what both Kryos write alike: Kryo 5 then reads one entry less, and never fails.

    Of an object that can't be read nobody knows that.
    """
    return (
        not found.foreign
        and is_map_of_entries(found.classes.get(ROOT, {}))
        and all(written_alike(there) for place, there in found.classes.items() if place != ROOT)
    )


def _not_made_again(kryo: KryoType, found: FoundClasses) -> str | None:
    """Returns a map or list of the job that Kryo may not make again as it was."""
    job = kryo.classes
    return None if job is None else next((one for one in found.like if may_lack_fields(one, job)), None)


def _read_beyond(part: Part, kryo: KryoType, sampled: Sampled) -> str | None:
    """Says why Flink 2 may take what is behind a value for a part of it, also of one that it wrote itself.

    It reads beyond an array of 2 to 6 bytes that is the end of a value, where more is stored behind it.
    """
    if isinstance(part.type, KryoType) and part.place in (Place.VALUE, Place.USER_KEY):
        return None
    beyond = "if it is at the end of an object and has 2 to 6 bytes, and takes what follows for something else"
    for name in (*_classes(sampled), kryo.class_name):
        if may_end_in_small_array(kryo, name):
            what = f"in its {part.place.value}s by Kryo there is a short[], char[] or float[]"
            return f"{what}: Flink 2 reads beyond it, {beyond}"
    if (foreign := next(iter(sampled.found.foreign), None)) is not None and not foreign.startswith(_BY_JDK):
        what = f"its {part.place.value}s by Kryo have objects of {foreign}, which isn't known without --classes"
        return f"{what}: Flink 2 reads beyond a small array in one, {beyond}"
    return None


def _of_same_line(place: Place, kryo: KryoType, journey: Journey, sampled: Sampled, beyond: str | None) -> Finding:
    line = journey.target
    old = sampled.found.kryo.get("2", 0) if line is Line.TWO else 0
    if old:
        return _half_upgraded(kryo, sampled, old)
    classes = _classes(sampled)
    if (broken := broken_anyway(classes, line.kryo)) is not None:
        or_else = Outcome.WRONG if broken[0] is Outcome.FAILS else None
        return Finding(broken[0], f"{broken[1]}, in the same Flink either", _MOVE, None, or_else)
    if made := _not_made_again(kryo, sampled.found):
        reason = (
            f"its {place.value}s have objects of {made}, which has no constructor without arguments: Kryo makes them "
            "without any, and may not be able to put into them what they had"
        )
        return Finding(Outcome.UNKNOWN, reason, _MOVE)
    if not _is_stable_key(place, kryo, sampled):
        return _unstable_key(place, kryo)
    if beyond is not None:
        return Finding(Outcome.UNKNOWN, beyond, TRY_IT)
    if (unread := _of_unread(place, kryo, journey, sampled)) is not None:
        return unread
    if not journey.by_one_kryo and _is_nothing(sampled) and not _is_alike_anyway(place, kryo.class_name):
        return _none_read(place)
    reason = f"its {place.value}s are by Kryo {line.kryo}, which reads them as before ({_values_read(sampled)})"
    return Finding(Outcome.RESTORES, reason)


def _half_upgraded(kryo: KryoType, sampled: Sampled, old: int) -> Finding:
    """Says how many values of a state of Flink 2 are whole still, and how many may have lost something before."""
    since = sampled.found.kryo.get("5", 0)
    reason = (
        f"{old:,} of {_values(sampled)} {'is' if old == 1 else 'are'} by Kryo 2, from before an upgrade to Flink 2: "
        "each time a job of Flink 2 reads one, it loses an entry or is another value"
    )
    if since:
        reason += (
            f". {since:,} {'is' if since == 1 else 'are'} by Kryo 5, written since: of these no count can say what "
            "they had lost when they were read"
        )
    advice = _rewrite(kryo, sampled, "have each value read by the Kryo that wrote it: stateferry run --to flink-2")
    return Finding(Outcome.WRONG, reason, advice, None, Outcome.FAILS)


def _of_unread(place: Place, kryo: KryoType, journey: Journey, sampled: Sampled) -> Finding | None:
    """Says that nobody knows of values that couldn't be read; None if what is known decides.

    In a savepoint of Flink 2 these may be by Kryo 2, from before an upgrade. Where one Kryo wrote all, classes of
    the new job that don't fit the bytes may have changed.
    """
    foreign = sampled.found.foreign
    if journey.by_one_kryo:
        if kryo.classes is None:
            return None
        foreign = {name: count for name, count in foreign.items() if not is_of_others(name)}
    elif sampled.two_meanings and not _is_by_chance(sampled):
        reason = (
            f"{_both_read(place, kryo, sampled)}: if the job was upgraded from Flink 1, Kryo 2 may have written some"
        )
        return Finding(Outcome.UNKNOWN, reason, _COMPARE)
    if foreign:
        return _unread(place, foreign)
    if sampled.why_not is not None and not sampled.two_meanings:
        return Finding(Outcome.UNKNOWN, f"its {place.value}s by Kryo can't be read: {sampled.why_not}", TRY_IT)
    return None


def _both_read(place: Place, kryo: KryoType, sampled: Sampled) -> str:
    """Names the class of a value, and those in it that each Kryo writes in its own way."""
    name, *inside = sampled.two_meanings
    differing = [_shown(one) for one in inside if one != NULL and _may_differ(kryo, one)]
    more = f" (they hold {', '.join(differing)} too)" if differing else ""
    return f"both Kryos can read its {place.value}s of {_shown(name)}{more}"


def _is_by_chance(sampled: Sampled) -> bool:
    """Whether Kryo 5 wrote the UUIDs: one in ten thousand of these has bytes that Kryo 2 could read as another one."""
    return sampled.two_meanings == (_UUID,) and _UUID in sampled.found.classes.get(ROOT, {})


def _is_nothing(sampled: Sampled) -> bool:
    """Whether no value was read, though there may be some."""
    return not sampled.whole and not sampled.values and not sampled.two_meanings


def _none_read(place: Place) -> Finding:
    return Finding(Outcome.UNKNOWN, f"no {place.value} was in what was read", _READ_ALL)


def _is_alike_anyway(place: Place, name: str) -> bool:
    """Whether that is so whatever the values are. Of a key both Kryos must write the same bytes, too."""
    return name in FINAL and not (place.is_key and name in WITH_TEXT)


def _are_alike(kryo: KryoType, classes: Iterable[str]) -> bool:
    """Whether each Kryo reads what the other wrote of these classes, those of the job by their fields."""
    return all(written_alike([name]) or written_alike_by_fields(kryo, name) for name in classes)


def _may_differ(kryo: KryoType, name: str) -> bool:
    """Whether the Kryos write some objects of the class in two ways, or it is of the job and nobody knows that."""
    of_job = kryo.classes is not None and name in kryo.classes.classes
    return not written_alike_by_fields(kryo, name) if of_job else difference(name) is not None


def _unknown_alone(kryo: KryoType, classes: Iterable[str]) -> str | None:
    """Returns a class of the job of which isn't known whether both Kryos write it alike, if all others are alike.

    What only Kryo 2 can have written of one may be a long String, which Kryo 5 reads.
    """
    others = [one for one in classes if not _are_alike(kryo, [one])]
    of_job = () if kryo.classes is None else kryo.classes.classes
    known = any(one not in of_job or written_alike_by_fields(kryo, one) is False for one in others)
    return None if known or not others else others[0]


def _is_stable_key(place: Place, kryo: KryoType, sampled: Sampled) -> bool:
    """Whether equal keys always have the same bytes, for all that is known."""
    if place not in (Place.KEY, Place.USER_KEY):
        return True
    classes = _classes(sampled)
    # An Optional has one object, which is none of those around it.
    return all(has_no_references(kryo, one) for one in classes or [kryo.class_name] if one != _OPTIONAL or not classes)


def _unstable_key(place: Place, kryo: KryoType) -> Finding:
    # With the HashMap backend they are found all the same, but no canonical savepoint says which backend restores it.
    reason = (
        f"its {place.value}s by Kryo are {_shown(kryo.class_name)}: equal ones may have other bytes, where one object "
        "stands in a key twice, and then a job on RocksDB finds nothing under them"
    )
    return Finding(Outcome.UNKNOWN, reason, TRY_IT)


def _classes(sampled: Sampled) -> list[str]:
    places = sampled.found.as_of_the_jdk().classes.values()
    found = dict.fromkeys(one for there in places for one in there if one != NULL)
    return list(dict.fromkeys((*found, *sampled.two_meanings)))


def _most_telling(kryo: KryoType, places: Iterable[dict[str, int]]) -> list[str]:
    """Returns the classes that differ, those of whole values first."""
    names = dict.fromkeys(one for there in places for one in there)
    return [one for one in names if one != NULL and not _are_alike(kryo, [one])] or [kryo.class_name]


def _differing(place: Place, names: list[str], read: str, sampled: Sampled | None = None) -> Finding:
    name, shown = names[0], [_shown(one) if sampled is None else _met(sampled, one) for one in names]
    outcome, or_else = outcomes_of(name)
    if or_else is None and any(Outcome.FAILS in outcomes_of(one) for one in names[1:]):
        or_else = Outcome.FAILS
    what = difference(name) or "they come back as other values, or can't be read any more"
    more = "" if len(names) == 1 else f" (they hold {', '.join(shown[1:])} too)"
    reason = f"Kryo 5 reads the bytes that Kryo 2 wrote of {shown[0]} in another way{more}: {what}"
    reason += f" ({read})" if read else ""
    if place.is_key:
        reason += f". The job finds nothing under a {place.value} whose bytes are others"
        outcome, or_else = Outcome.WRONG, Outcome.FAILS
    return Finding(outcome, reason, _REWRITE, None, or_else)


def _unread(place: Place, foreign: dict[str, int]) -> Finding:
    name = next(iter(foreign))
    # In brackets it says why the class can't be read, though its jar was given.
    advice = TRY_IT if is_of_others(name) or name.endswith(")") else f"give the jar with {name}: --classes job.jar"
    return Finding(Outcome.UNKNOWN, f"its {place.value}s by Kryo have objects that aren't known: {name}", advice)


def _values_read(sampled: Sampled) -> str:
    return f"in {_values(sampled)}"


def _values(sampled: Sampled) -> str:
    count = sampled.values
    return f"all {count:,} {noun(count, 'value')}" if sampled.whole else f"{count:,} {noun(count, 'value')} read"


def _shown(name: str) -> str:
    known = name.startswith(("java.", "org.apache.flink."))
    return simple_name(name) if known else name


def _met(sampled: Sampled, name: str) -> str:
    """How a class is shown, with collections of the job in place of that of the JDK as which Kryo writes them."""
    found = sampled.found
    met = dict.fromkeys(one for there in found.classes.values() for one in there if found.like.get(one, one) == name)
    return ", ".join(map(_shown, met or [name]))
