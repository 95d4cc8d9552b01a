"""Progress in words."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace

import pytest

from stateferry.cli.progress import ProgressLines, progress_line
from stateferry.runs.record.live_progress import LiveProgress


def test_progress_says_a_share_only_when_something_is_done() -> None:
    assert (
        progress_line(LiveProgress("rescale", 0, 2, 12.3, 0, "B", at_work=2)) == "rescale: 0/2, 2 at work; 12s; running"
    )
    half = LiveProgress("rescale", 1, 2, 10.0, 2_000_000, "B", at_work=1)
    assert progress_line(half) == "rescale: 1/2 50%, 1 at work; 2.0 MB, 200.0 kB/s; 10s; ETA 10s; running"
    done = LiveProgress("rescale", 2, 2, 20.0, 4_000_000, "B", ended=True)
    assert progress_line(done) == "rescale: 2/2 100%; 4.0 MB, 200.0 kB/s; 20s; done"
    assert progress_line(LiveProgress("migrate", 0, 0, 0.5, ended=True)) == "migrate: 0/0 0%; 0s; done"


def test_a_line_that_says_nothing_new_comes_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("stateferry.cli.progress.time", SimpleNamespace(monotonic=lambda: clock[0]))
    out = StringIO()
    lines = ProgressLines(out)
    for second in range(24):
        clock[0] = 100.0 + second
        lines(LiveProgress("rescale", 0 if second < 21 else 1, 2, float(second)))
    lines(LiveProgress("rescale", 2, 2, 24.0, ended=True))
    assert [line.split("; ")[-2] for line in out.getvalue().splitlines() if "ETA" not in line] == [
        *("0s", "10s", "20s", "24s"),
    ]
    assert out.getvalue().count("1/2 50%") == 1
