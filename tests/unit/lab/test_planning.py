"""Archives that the benchmark of planning writes, and its plans."""

from __future__ import annotations

from pathlib import Path

from lab.bench.planning import Span, plan, write_plant

DAY = 86_400


def test_small_plant_is_planned(tmp_path: Path) -> None:
    """One listing, and each manifest and each table of channels once."""
    plant = write_plant(tmp_path, "plant", 60, 3)
    whole = plan(tmp_path, plant, 60, Span("all", 3, None))
    assert (whole.samples, whole.listings, whole.reads) == (60 * 3 * DAY, 1, 3)
    assert whole.portions == 20, "of three channels each, which have 777,600 samples"
    one = plan(tmp_path, plant, 60, Span("one", 3, 1))
    assert (one.samples, one.portions, one.reads) == (3 * DAY, 1, 3)
    first = plan(tmp_path, plant, 60, Span("first", 1, None))
    assert (first.listings, first.reads, first.opened) == (1, 1, 1)
    assert 0 < first.task_bytes < whole.task_bytes
