"""The fuzzer itself: it runs, counts, and tells a target that fails from one that holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.paths import CHECKOUT
from tests.fuzz.run import run
from tests.fuzz.targets import target

pytest.importorskip("atheris", reason="there are wheels of it for some platforms only")


def test_passing_fuzz_target(tmp_path: Path) -> None:
    figures = run("spool", 2, 1, tmp_path / "corpus", tmp_path / "found")
    assert figures.clean, figures.last_words
    assert figures.executions > len(target("spool").seeds())
    assert figures.edges > 0
    assert figures.features >= figures.edges
    assert figures.corpus_inputs > 0
    assert figures.rss_at_end > 0
    assert any((tmp_path / "corpus").iterdir())
    assert not any((tmp_path / "found").iterdir())


def test_failing_fuzz_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the child, what the decoder raises is no error that the contract knows."""
    broken = tmp_path / "sitecustomize.py"
    broken.write_text(
        "import core.errors\n"
        "class Other(Exception):\n"
        "    pass\n"
        "core.errors.SpoolCorrupt = Other\n"
        "import ingest.spool.format\n"
        "from core.errors import SpoolError\n"
        "class Unknown(SpoolError):\n"
        "    pass\n"
        "core.errors.SpoolCorrupt = Unknown\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{CHECKOUT}")
    figures = run("spool", 20, 1, None, tmp_path / "found")
    assert not figures.clean
    assert figures.crashes == 1
    assert len(figures.artifacts) == 1
    assert "Other" in figures.last_words
