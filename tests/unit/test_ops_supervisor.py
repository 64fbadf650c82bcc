"""The supervisor's configuration, read back the way supervisord reads it, and a supervisor that really runs."""

from __future__ import annotations

import configparser
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from ingest.errors import OperationError
from ops import strays
from ops.paths import State
from ops.supervisor import Program, Supervisor, render
from tests.patience import PATIENCE


def parsed(text: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(inline_comment_prefixes=(";", "#"), strict=False)
    parser.read_string(text)
    return parser


@pytest.fixture
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    """A state folder with a short path, for the socket."""
    state = State(tmp_path_factory.mktemp("s"))
    state.claim()
    return state


def test_what_is_rendered_is_what_is_meant() -> None:
    state = State(Path("/srv/50% of a plant"))
    command = ["/opt/a plant/python", "-m", "x", "--text", "100%;#"]
    program = Program("writer", command, {"B": "x,y", "A": "50%"}, stop_signal="INT", stop_seconds=7)
    section = parsed(render(state, [program]))["program:writer"]
    assert shlex.split(section["command"].replace("%%", "%")) == command
    environment = section["environment"].replace("%%", "%")
    assert environment == f'A="50%",B="x,y",PLANTLOG_PROCESS="writer",PLANTLOG_STATE="{state.root}"'
    assert (section["stopsignal"], section["stopwaitsecs"]) == ("INT", "7")
    assert section["stdout_logfile"].replace("%%", "%") == str(state.log / "writer.log")
    assert (section["autostart"], section["autorestart"]) == ("false", "true")


@pytest.mark.parametrize("name", ["a ;b", "a #b", 'a"b', "a\nb"])
def test_a_path_that_its_format_cannot_hold_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OperationError, match="can't hold"):
        render(State(tmp_path), [Program("writer", [str(tmp_path / name)])])


def test_a_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="set PLANTLOG_STATE to one of at most 80 bytes"):
        Supervisor(State(tmp_path / ("x" * 100)))


@contextmanager
def supervised(state: State, programs: list[Program]) -> Iterator[Supervisor]:
    supervisor = Supervisor(state)
    try:
        supervisor.start(programs)
        yield supervisor
    finally:
        strays.end(state, lambda line: None)


def sleeper(name: str, mark: str = "") -> Program:
    return Program(name, [sys.executable, "-c", "import time; time.sleep(600)"], {"MARK": mark})


def pids(supervisor: Supervisor) -> dict[str, int | None]:
    return {process.name: process.pid for process in supervisor.processes()}


def until_running(supervisor: Supervisor, *names: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while any(process.state != "RUNNING" for process in supervisor.processes() if process.name in names):
        assert time.monotonic() < deadline, supervisor.processes()
        time.sleep(0.05)


def test_only_what_changed_is_stopped_by_an_update(state: State) -> None:
    with supervised(state, [sleeper("a"), sleeper("b"), sleeper("c")]) as supervisor:
        assert [supervisor.start_program(name) for name in ("a", "b", "c")] == [True, True, True]
        assert supervisor.start_program("a") is False
        until_running(supervisor, "a", "b", "c")
        before = pids(supervisor)
        assert supervisor.update([sleeper("a"), sleeper("b", "changed"), sleeper("d")]) == (["b"], ["c"])
        after = pids(supervisor)
        assert (after["a"], after["b"], after["d"]) == (before["a"], None, None)
        assert supervisor.start_program("b") is True
        supervisor.stop_program("a")
        supervisor.stop_program("a")  # stopped already
        assert pids(supervisor)["a"] is None


def test_what_a_killed_supervisor_leaves_is_found_and_ended(state: State) -> None:
    with supervised(state, [sleeper("a")]) as supervisor:
        supervisor.start_program("a")
        until_running(supervisor, "a")
        left = psutil.Process(pids(supervisor)["a"])
        boss = psutil.Process(int((state.run / "supervisord.pid").read_text()))
        boss.kill()
        deadline = time.monotonic() + PATIENCE
        while supervisor.answers():
            assert time.monotonic() < deadline
        assert list(strays.find(state)) == ["a"]
        said: list[str] = []
        strays.end(state, said.append)
        assert said == [f"ending a (process {left.pid}), which nobody looks after"]
        assert strays.find(state) == {}
        assert not left.is_running() or left.status() == psutil.STATUS_ZOMBIE
        supervisor.start([sleeper("a")])  # over the socket and the pid file of the dead one
        assert supervisor.start_program("a") is True
        until_running(supervisor, "a")


def test_a_shell_that_only_names_the_state_folder_is_not_ours(tmp_path: Path) -> None:
    state = State(tmp_path)
    environment = {"PLANTLOG_STATE": str(tmp_path)}
    with psutil.Popen([sys.executable, "-c", "input()"], env=environment, stdin=-1) as shell:
        assert strays.find(state) == {}
        shell.communicate(b"\n")


def test_a_supervisor_that_is_away_is_an_error_in_words(tmp_path: Path) -> None:
    supervisor = Supervisor(State(tmp_path))
    assert supervisor.answers() is False
    with pytest.raises(OperationError, match="the supervisor does not answer"):
        supervisor.processes()
