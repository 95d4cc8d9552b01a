"""A report and its JSON, when it is green, and how it reads."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import DamagedError
from flinkstate.files.storage import Location
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.runs.report.report import FileDigest, Report, SavepointDigests
from stateferry.runs.report.report_text import key_group_text, show_report

SOURCE = SavepointDigests("/in", 7, {"_metadata": FileDigest(5, "00000000000000ff")})
STAGED = SavepointDigests("/out", 7, {"_metadata": FileDigest(6, "ffffffffffffffff")})
PASSED = Check("entries of newMainState", Outcome.PASSED, "12 rows", "12 rows")
FAILED = Check("keys in their groups", Outcome.FAILED, "none elsewhere", "2", (3, 7, 8, 9), ('key "a" is missing',))
UNSURE = Check("hashes", Outcome.COULD_NOT_TELL, "known hashes", "a POJO's own")


def report(*checks: Check) -> Report:
    facts = {
        "snapshot": {
            "seconds": 2.04,
            "states": {"main/mainState": {"entries": 1234567, "bytes": 9}, "main/empty": {"entries": 0}},
            "files": ["a", "b"],
        }
    }
    return Report("orders", "one", "ab" * 32, 1_700_000_000_000, SOURCE, STAGED, checks, facts)


checks = st.builds(
    Check,
    st.text(),
    st.sampled_from(Outcome),
    st.text(),
    st.text(),
    st.lists(st.integers(0, 32767), max_size=5).map(tuple),
    st.lists(st.text(), max_size=10).map(tuple),
)


@given(st.lists(checks, max_size=5))
def test_json_keeps_all_of_it(made: list[Check]) -> None:
    one = report(*made)
    assert Report.of_json(one.to_json()) == one


def test_the_file_is_written_and_read(tmp_path: Path) -> None:
    file = Location.of(str(tmp_path / "run" / "report.json"))
    report(PASSED).write(file)
    assert Report.read(file) == report(PASSED)
    assert [entry.name for entry in file.parent.entries()] == ["report.json"]
    report(FAILED).write(file)
    assert Report.read(file) == report(FAILED)


def test_half_a_surrogate_pair_is_written_as_an_escape() -> None:
    odd = replace(FAILED, samples=("key \ud800",))
    assert Report.of_json(report(odd).to_json()).checks[0].samples == ("key \\ud800",)


@pytest.mark.parametrize(
    ("made", "green"),
    [((), False), ((PASSED,), True), ((UNSURE,), False), ((PASSED, UNSURE), True), ((PASSED, FAILED), False)],
)
def test_green_is_what_was_checked_and_did_not_fail(made: tuple[Check, ...], green: bool) -> None:
    assert report(*made).is_green is green


def test_more_samples_than_a_person_reads_are_refused() -> None:
    with pytest.raises(ValueError, match="has 11 samples, at most 10 fit"):
        report(replace(FAILED, samples=("x",) * 11))


def test_it_holds_for_these_bytes_alone() -> None:
    made = report(PASSED)
    assert made.holds_for(replace(STAGED, path="/moved"), "ab" * 32)
    assert not made.holds_for(STAGED, "cd" * 32)
    for size, digest in ((7, "ffffffffffffffff"), (6, "fffffffffffffffe")):
        assert not made.holds_for(replace(STAGED, files={"_metadata": FileDigest(size, digest)}), "ab" * 32)
    assert not made.holds_for(replace(STAGED, files={}), "ab" * 32)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "report.json: expected a report in JSON"),
        ("{}", "expected a report, found job: Field required"),
        (report(PASSED).to_json().replace('"made_at"', '"made_on"'), "found made_at: Field required"),
        (report(PASSED).to_json().replace('"job": "orders"', '"job": "orders", "more": 1'), "found more: "),
        (report(PASSED).to_json().replace('"passed"', '"fine"'), r"found checks\.0\.outcome"),
    ],
)
def test_what_is_no_report_is_damage(text: str, said: str) -> None:
    with pytest.raises(DamagedError, match=said):
        Report.of_json(text)


def shown(made: Report) -> str:
    out = io.StringIO()
    show_report(made, out)
    return out.getvalue()


def test_a_green_report_reads_like_one() -> None:
    text = shown(report(PASSED, UNSURE))
    assert "/in (checkpoint 7) -> /out" in text
    assert "snapshot: 2.0 seconds\n  states\n    main/mainState: 1,234,567 entries, 9 bytes\n    main/empty\n" in text
    assert "could not tell" in text
    assert text.rstrip().endswith("green: 1 check passed, 0 failed, 1 could not tell")
    assert "\x1b" not in text


def test_notes_stand_above_the_verdict_and_a_report_without_them_still_opens() -> None:
    before = report(PASSED)
    assert before.notes == replace(before, facts={}).notes == ()
    assert "note:" not in shown(before)
    told = replace(before, facts={"snapshot": before.facts["snapshot"] | {"notes": ["one\x1b[31m", "two" * 100]}})
    assert Report.of_json(told.to_json()).notes == ("one\x1b[31m", "two" * 100)
    lines = shown(told).splitlines()
    assert lines[-3:-1] == ["note: one\\x1b[31m", f"note: {'two' * 100}"]


def test_a_red_report_says_where_and_what() -> None:
    text = shown(report(PASSED, FAILED))
    assert "keys in their groups: failed in key groups 3, 7-9\n" in text
    assert '  key "a" is missing\n' in text
    assert text.rstrip().endswith("red: 1 check passed, 1 failed, 0 could not tell; nothing may be published")


def test_names_from_a_savepoint_are_neither_markup_nor_control_sequences() -> None:
    text = shown(report(replace(FAILED, name="[red]x[/red]\x1b[31m", samples=("a\nb\x1b]0;",))))
    assert "[red]x[/red]\\x1b[31m" in text
    assert "a\\nb\\x1b]0;" in text
    assert "\x1b" not in text


def test_long_samples_stay_on_one_line() -> None:
    text = shown(report(replace(FAILED, samples=("x" * 1000,))))
    assert "x" * 1000 in text


@given(st.sets(st.integers(0, 40)))
def test_key_groups_as_ranges(groups: set[int]) -> None:
    text = key_group_text(groups)
    ranges, _, rest = text.partition(" and ")
    named = []
    for part in filter(None, ranges.split(", ")):
        first, _, last = part.partition("-")
        named += list(range(int(first), int(last or first) + 1))
    assert named == sorted(groups)[: len(named)]
    assert len(groups) - len(named) == (int(rest.split()[0]) if rest else 0)
