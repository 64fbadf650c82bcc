"""The gate's choice and limits, and the fields of a quarantine: pytest on a few tests, with our plugin."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from core.paths import CHECKOUT
from tests.gate import is_chosen

_HEADER = "import pytest, subprocess, sys\nmark = pytest.mark\n"
_SLOW = """\
def test_quick(): pass
@mark.slow
@mark.parametrize("n", range(80))
def test_slow(n): pass
"""
_WHOLE = """\
@mark.gate
def test_always(): pass
@mark.parametrize("n", range(80))
def test_whole(n): pass
"""
_BUSY = """\
def spend():
    subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.2: pass"], check=True)
@pytest.fixture
def server(): spend()
def test_with_a_fixture(server): pass
def test_without_a_mark(): spend()
@mark.slow
def test_slow(): spend()
@mark.gate
def test_always(): spend()
"""
_LIMIT = "from tests import gate\ngate.CPU_LIMIT = 0.15\n"


def run(folder: Path, files: dict[str, str], *options: str) -> str:
    """Output of pytest: a line for each test."""
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -p tests.gate -p no:cacheprovider\n")
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(_HEADER + text)
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-rA", *options]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr


def named(output: str, outcome: str) -> list[str]:
    """The tests of that outcome, without parameters."""
    return re.findall(rf"^{outcome} \S+::(\w+)", output, re.MULTILINE)


def test_gate_runs_a_tenth_of_the_slow_tests_and_all_others(tmp_path: Path) -> None:
    files = {"integration/test_a.py": _SLOW, "machines/test_b.py": _WHOLE}
    passed = named(run(tmp_path, files, "--gate", "c0ffee"), "PASSED")
    assert (passed.count("test_quick"), passed.count("test_always")) == (1, 1)
    assert 2 < passed.count("test_slow") < 20
    assert 2 < passed.count("test_whole") < 20
    assert len(named(run(tmp_path, files), "PASSED")) == 162, "without the option, all"


def test_another_commit_runs_another_tenth() -> None:
    tests = {f"tests/machines/test_pair.py::test_{number}" for number in range(1000)}
    tenths = [{test for test in tests if is_chosen(f"{commit:040x}", test)} for commit in range(100)]
    assert all(60 < len(tenth) < 140 for tenth in tenths)
    assert set[str]().union(*tenths) == tests


def test_peers_that_take_minutes_to_build_are_in_few_gates() -> None:
    tests = {f"tests/integration/test_opcua.py::test_{number}[milo]" for number in range(1000)}
    sizes = [sum(is_chosen(f"{commit:040x}", test) for test in tests) for commit in range(200)]
    assert 30 < sum(size > 0 for size in sizes) < 70
    assert all(size == 0 or 350 < size < 450 for size in sizes)


def test_gate_fails_what_takes_more_cpu_time_and_is_not_marked(tmp_path: Path) -> None:
    """CPU time of a process that ended counts, that of a fixture does not."""
    slow = "integration/test_a.py::test_slow"
    commit = next(str(number) for number in range(200) if is_chosen(str(number), slow))
    output = run(tmp_path, {"conftest.py": _LIMIT, "integration/test_a.py": _BUSY}, "--gate", commit)
    assert named(output, "FAILED") == ["test_without_a_mark"]
    assert re.search(r"took 0\.\d s of CPU time, and may take 0\.0375: make it cheaper, or mark it slow", output)
    assert named(output, "PASSED") == ["test_with_a_fixture", "test_slow", "test_always"]


def test_failures_in_quarantine_do_not_count(tmp_path: Path) -> None:
    flaky = '@mark.quarantine(reason="the peer hangs", since="2026-11-28")\ndef test_flaky(): assert False\n'
    output = run(tmp_path, {"unit/test_a.py": flaky})
    assert named(output, "XFAIL") == ["test_flaky"]
    assert "quarantined since 2026-11-28: the peer hangs" in output
    assert "1 xfailed" in output


@pytest.mark.parametrize(
    "arguments", ['since="2026-11-28"', 'reason="hangs"', 'reason="hangs", since="soon"', '"hangs", since="2026-11-28"']
)
def test_quarantine_without_a_reason_or_a_day_is_refused(arguments: str, tmp_path: Path) -> None:
    output = run(tmp_path, {"unit/test_a.py": f"@mark.quarantine({arguments})\ndef test_flaky(): pass\n"})
    assert 'unit/test_a.py::test_flaky: quarantine has no reason or no day; legal is quarantine(reason="…"' in output
    assert "passed" not in output


def test_what_downloads_half_a_gigabyte_is_in_no_gate() -> None:
    assert not any(is_chosen(str(number), "tests/machines/test_spark.py::test_rows") for number in range(200))
