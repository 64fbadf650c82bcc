"""The benchmark of labelled events: a question is asked of recordings by its defaults and tuned, beside a PCA."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.bench.labelled import HALVES, PCA, measure
from lab.bench.tables import events, labelled
from tests.labelled_recordings import write, write_slow


@pytest.mark.timeout(900)
def test_a_step_is_found_and_calm_windows_are_calm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch)
    write_slow(tmp_path, monkeypatch)
    (tmp_path / "place").mkdir()
    lines: list[str] = []
    every = measure(tmp_path / "place", tmp_path, ["tep", "bibmon"], ["first_mover", PCA], True, HALVES, lines.append)
    assert [one.error for one in every if one.error] == []
    assert "bibmon: 866 values of 3 channels are missing" in lines
    slow = {one.question: one for one in every if one.project == "bibmon" and one.event}
    assert {name: (one.found, one.rank) for name, one in slow.items()} == {"first_mover": (True, 1), PCA: (True, 1)}
    findings = [one for one in every if one.project == "tep"]
    assert {(one.question, one.options) for one in findings} == {
        ("first_mover", "default"),
        ("first_mover", "tuned"),
        (PCA, "default"),
    }
    of_event = {(one.question, one.options): one for one in findings if one.event}
    assert set(of_event) == {("first_mover", "default"), ("first_mover", "tuned"), (PCA, "default")}
    for key in (("first_mover", "tuned"), (PCA, "default")):
        assert (of_event[key].found, of_event[key].onset, of_event[key].rank) == (True, 0.0, 1)
    calm = [one for one in findings if not one.event and one.options == "tuned"]
    assert [one.rows for one in calm] == [0] * len(calm)
    assert len(calm) >= 3
    assert all(one.cpu_seconds > 0 for one in findings)
    assert (labelled(findings).row_count, events(findings).row_count) == (3, 3)
