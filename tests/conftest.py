"""Fixtures for all tests, and what a run says of itself before it ends."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.database import database, empty_database, ingest, maintenance, owner, reader, server, template

__all__ = ["database", "empty_database", "ingest", "maintenance", "owner", "reader", "server", "template"]

pytest.register_assert_rewrite("tests.managed", "tests.pair", "tests.truth")  # assertions show their values

# What a loaded machine takes for an example says nothing of the code. Each run has the same examples, so that a change
# is judged by what it changed; --hypothesis-profile=search has new ones, =thorough ten times as many.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("search"), derandomize=True)
settings.register_profile("usual", settings.get_profile("thorough"), max_examples=10)
settings.load_profile("usual")

_WHOLE_APPLIANCE = 900.0  # s; on a new machine, several tests wait until the first one has installed the database
_HANGS = 420.0  # s; more than the time-out in pyproject.toml
_LONGER = 1.2  # times the time-out of a test that has its own


class Watchdog:
    """Ends a worker that hangs: it prints where each thread is, and the run names the test and ends.

    pytest-timeout raises an exception, once: the event loop may drop it, and what a test closes may hang as well.
    """

    def __init__(self) -> None:
        self._stderr = os.dup(sys.stderr.fileno())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        own = item.get_closest_marker("timeout")
        seconds = _HANGS if own is None else max(_HANGS, _LONGER * own.args[0])
        faulthandler.dump_traceback_later(seconds, file=self._stderr, exit=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:  # pytest itself calls it off where a test failed
        faulthandler.dump_traceback_later(_HANGS, file=self._stderr, exit=True)

    def pytest_runtest_logfinish(self) -> None:
        faulthandler.cancel_dump_traceback_later()


class FailureReporter:
    """Says at once what failed, and where a run was when it is ended: a run that hangs has to say where."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal
        self._running: dict[str, None] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when not in ("setup", "call", "teardown"):  # its worker ended
            self._running.pop(report.nodeid, None)
        if report.failed:
            self._terminal.ensure_newline()
            self._terminal.write_sep("_", f"{report.nodeid}, {report.when}")
            self._terminal.write_line(report.longreprtext)

    def ended(self, *_: object) -> None:
        """SIGTERM: the failures are summed up, as at the end of a whole run."""
        pytest.exit(f"ended while these ran: {', '.join(self._running) or 'none'}", 143)


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pytest's own, with a short name: sockets lie below it, and the path of a socket has at most 107 bytes."""
    return tmp_path_factory.mktemp("t")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """None for single files. More than cores for folders, since tests wait; unit tests hardly do.

    Whole appliances are busy while their tests wait: seven at a time leave two cores little to start others with, and
    the chaos tests took 754 s instead of 583.
    """
    if config.option.collectonly or any(".py" in argument for argument in config.args):
        return 0
    cores = os.cpu_count() or 1
    match sorted({Path(argument).name for argument in config.args}):
        case ["unit"]:
            return cores
        case ["machines"] | ["chaos"] | ["chaos", "machines"]:
            return 2 * cores
        case _:
            return 3 * cores + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give whole appliances time, and spread them among integration tests: at the end all others wait for them."""
    for item in items:
        if {"e2e", "machines", "chaos"} & set(item.path.parts) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_WHOLE_APPLIANCE))
    files = {
        kind: dict.fromkeys(item.path for item in items if kind in item.path.parts) for kind in ("integration", "e2e")
    }
    step = len(files["integration"]) // (len(files["e2e"]) + 1)
    rank = {path: number for number, path in enumerate(files["integration"])}
    rank |= {path: number * step for number, path in enumerate(files["e2e"])}
    items.sort(key=lambda item: rank.get(item.path, -1))


def pytest_collection_finish() -> None:
    """Make the standard address space once, and collect garbage less often."""
    if "asyncua" in sys.modules:
        from tests import address_space

        address_space.share()
    gc.freeze()  # what is imported stays
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(trylast=True)  # the terminal is there then
def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Watchdog(), "watchdog")
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        reporter = FailureReporter(terminal)
        config.pluginmanager.register(reporter, "reporter")
        signal.signal(signal.SIGTERM, reporter.ended)
