"""The gate: which tests a change has to pass, how much CPU time each may take, what is quarantined. A pytest plugin."""

from __future__ import annotations

import re
from collections.abc import Generator
from datetime import date
from hashlib import sha256

import psutil
import pytest

# s, of a test that is not slow: four times what it may take, as a test of 3 s took 6.2 s on a machine with other work
CPU_LIMIT = 12.0
_SHARE = 0.1  # of the slow tests, in the gate of one commit
_SHARE_OF_COMMITS = 0.25  # with tests of a peer that takes minutes to build; tests' names say which
_LONG_TO_BUILD = re.compile(
    r"milo|open62541|test_debian_package|machines/test_release|test_matrix|test_telegraf|in_a_bucket|\[s3\]"
)
_FULL_ONLY = re.compile("test_spark")  # it downloads half a gigabyte
_SLOW_FOLDERS = {"bench", "chaos", "machines"}  # benchmarks, and whole appliances, several at a time
_MARKERS = (
    "slow: takes more than 3 s of CPU time, as all tests in bench, chaos and machines: a tenth of them is in the gate",
    "gate: always in the gate, whatever it takes",
    "quarantine(reason, since): fails at times, and cannot be mended now: its failures are shown, and do not count",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--gate`` chooses by the hash of the commit: another commit has another tenth."""
    text = "the gate's tests: all but the slow ones, and a tenth of these; a test fails that takes more CPU time"
    parser.addoption("--gate", metavar="COMMIT", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Markers, and the limit where this is the gate."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    if config.option.gate is not None:
        config.pluginmanager.register(CpuLimit(), "cpu-limit")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the gate's tests, and let failures in quarantine not count."""
    for item in items:
        for mark in item.iter_markers("quarantine"):
            item.add_marker(_expected_failure(item, mark))
    commit = config.option.gate
    if commit is not None:
        left_out = {item for item in items if _is_slow(item) and not is_chosen(commit, item.nodeid)}
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def is_chosen(commit: str, nodeid: str) -> bool:
    """Return whether the gate of a commit runs a slow test.

    Most commits have none of a peer that takes minutes to build; the others have more than a tenth.
    """
    if _FULL_ONLY.search(nodeid):
        return False
    peer = _LONG_TO_BUILD.search(nodeid)
    if peer is None:
        return _chance(commit, nodeid) < _SHARE
    return _chance(commit, peer[0]) < _SHARE_OF_COMMITS and _chance(commit, nodeid) < _SHARE / _SHARE_OF_COMMITS


def _chance(commit: str, name: str) -> float:
    return int.from_bytes(sha256(f"{commit} {name}".encode()).digest()[:4]) / 2**32


def _is_slow(item: pytest.Item) -> bool:
    slow = item.get_closest_marker("slow") is not None or not _SLOW_FOLDERS.isdisjoint(item.path.parts)
    return slow and item.get_closest_marker("gate") is None


def _expected_failure(item: pytest.Item, mark: pytest.Mark) -> pytest.MarkDecorator:
    try:
        if mark.args or not mark.kwargs["reason"]:
            raise ValueError
        since = date.fromisoformat(mark.kwargs["since"])
    except (KeyError, TypeError, ValueError):
        legal = 'quarantine(reason="…", since="2026-01-31")'
        raise pytest.UsageError(f"{item.nodeid}: quarantine has no reason or no day; legal is {legal}") from None
    return pytest.mark.xfail(reason=f"quarantined since {since}: {mark.kwargs['reason']}", strict=False)


class CpuLimit:
    """Fails a test that takes more CPU time than it may.

    Only the test itself is measured, not its fixtures: the first test that uses a database would pay for its server.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        before = _cpu_seconds()
        yield
        seconds = _cpu_seconds() - before
        if seconds > CPU_LIMIT and item.get_closest_marker("gate") is None and not _is_slow(item):
            pytest.fail(
                f"took {seconds:.1f} s of CPU time, and may take {CPU_LIMIT / 4:g}: make it cheaper, or mark it slow"
            )


def _cpu_seconds() -> float:
    """CPU time of this process and all below it, those that ended included."""
    this = psutil.Process()
    total = 0.0
    for process in (this, *this.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])  # user, system, and both of children that ended
        except psutil.NoSuchProcess:
            continue
    return total
