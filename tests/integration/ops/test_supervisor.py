"""The supervisor's configuration, read back the way supervisord reads it, and a supervisor that really runs."""

from __future__ import annotations

import asyncio
import configparser
import io
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from core.config import token_file
from core.config.load import load
from core.config.model import Plant
from core.errors import OperationError
from core.files import folder_lock
from core.paths import CHECKOUT, State
from ops.appliance import orphans
from ops.appliance.database import Database as ApplianceDatabase
from ops.appliance.down import down
from ops.appliance.refusals import check_plant
from ops.appliance.steps import Step
from ops.appliance.supervisor import Program, Supervisor, database_stopped, render, socket_path
from ops.appliance.up import _update_programs
from ops.deployment import Deployment
from ops.ports import is_free
from tests.command import in_a_process
from tests.config_in_force import activate
from tests.database import Database
from tests.ports import free_ports
from tests.states import claimed
from tests.supervised import end
from tests.waiting import until, until_sync


def parsed(text: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(inline_comment_prefixes=(";", "#"), strict=False)
    parser.read_string(text)
    return parser


@pytest.fixture
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    """A state folder with a short path, for the socket."""
    state = claimed(tmp_path_factory.mktemp("s"))
    return state


def test_supervisor_configuration_keeps_special_characters() -> None:
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
def test_path_that_supervisor_cannot_hold_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OperationError, match="cannot contain"):
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
        end(state)


def sleeper(name: str, mark: str = "") -> Program:
    return Program(name, [sys.executable, "-c", "import time; time.sleep(600)"], {"MARK": mark})


def pids(supervisor: Supervisor) -> dict[str, int | None]:
    return {process.name: process.pid for process in supervisor.processes()}


def until_running(supervisor: Supervisor, *names: str) -> None:
    def run() -> bool:
        return all(process.state == "RUNNING" for process in supervisor.processes() if process.name in names)

    until_sync(run, every=0.05, show=supervisor.processes)


def test_a_failed_command_leaves_the_database_running(state: State) -> None:
    with supervised(state, [sleeper("a"), sleeper("postgres")]) as supervisor:
        for name in ("a", "postgres"):
            supervisor.start_program(name)
        until_running(supervisor, "a", "postgres")
        with database_stopped(state):
            assert pids(supervisor)["postgres"] is None
        with pytest.raises(ZeroDivisionError), database_stopped(state):  # it was not running
            raise ZeroDivisionError
        assert pids(supervisor)["postgres"] is None
        supervisor.start_program("postgres")
        with pytest.raises(ZeroDivisionError), database_stopped(state):
            raise ZeroDivisionError
        until_running(supervisor, "a", "postgres")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_wiping_is_refused_before_anything_is_stopped(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTLOG_STATE", str(state.root))
    state.claim()
    disk = state.root / "disk"
    disk.mkdir()
    with supervised(state, [sleeper("a")]) as supervisor:
        supervisor.start_program("a")
        before = pids(supervisor)
        subprocess.run(["mount", "-t", "tmpfs", "plantlog-test", disk], check=True)
        try:
            with pytest.raises(OperationError, match=f"{disk} is a mount point: unmount it first"):
                down(wipe=True, yes=True, console=Console())
        finally:
            subprocess.run(["umount", "--lazy", disk], check=True)
        assert pids(supervisor) == before


def test_update_stops_only_changed_programs(state: State) -> None:
    with supervised(state, [sleeper("a"), sleeper("b"), sleeper("c")]) as supervisor:
        assert [supervisor.start_program(name) for name in ("a", "b", "c")] == [True, True, True]
        assert supervisor.start_program("a") is False
        until_running(supervisor, "a", "b", "c")
        before = pids(supervisor)
        assert supervisor.update([sleeper("a", "changed")], keep_others=True) == (["a"], [])
        assert supervisor.restarts([sleeper("a", "changed"), sleeper("b"), sleeper("c")]) == ([], [], [])
        assert supervisor.update([sleeper("a")], keep_others=True) == (["a"], [])
        assert supervisor.start_program("a") is True
        until_running(supervisor, "a")
        assert [pids(supervisor)[name] for name in ("b", "c")] == [before[name] for name in ("b", "c")]
        before = pids(supervisor)
        assert supervisor.update([sleeper("a"), sleeper("b", "changed"), sleeper("d")]) == (["b"], ["c"])
        after = pids(supervisor)
        assert (after["a"], after["b"], after["d"]) == (before["a"], None, None)
        assert supervisor.start_program("b") is True
        supervisor.stop_programs("a")
        supervisor.stop_programs("a")  # stopped already
        assert pids(supervisor)["a"] is None


def test_up_says_why_it_stops_the_simulator(state: State, tmp_path: Path) -> None:
    """Another configuration over a demo that runs."""
    (tmp_path / "tags.csv").write_text("name,address\na,holding:0\n")
    source = '[[source]]\nname = "plc"\nkind = "modbus"\naddress = "tcp://127.0.0.1:1"\ntags = "tags.csv"\n'
    (tmp_path / "plant.toml").write_text(f'[plant]\nname = "p"\n{source}')
    plant, printed = load(tmp_path / "plant.toml"), io.StringIO()
    step = Step(Console(file=printed, width=200), "register")
    with supervised(state, [sleeper("simulator"), sleeper("writer")]) as supervisor:
        supervisor.start_program("simulator")
        _update_programs(supervisor, [sleeper("writer")], ApplianceDatabase(state, None), plant, state, step)
        assert list(pids(supervisor)) == ["writer"]
    assert printed.getvalue() == (
        "  · stopped (this configuration does not use it): simulator; to keep the simulator, add --simulator\n"
    )


def test_up_refuses_a_taken_address_before_it_stops_who_listens_elsewhere(state: State, tmp_path: Path) -> None:
    deployment = Deployment(tmp_path / "plant.toml", simulator=False)
    token_file.write(tmp_path / "token", "token-of-a-gateway")
    first = free_ports(10)

    def write(port: int, host: str = "127.0.0.1") -> Plant:
        deployment.config.write_text(
            f'[plant]\nname = "p"\n[health]\nport = {first}\n[push]\nport = {port}\nhost = "{host}"\n'
            f"[viewer]\nport = {first + 9}\n"
            '[[source]]\nname = "g"\nkind = "push"\ntoken_file = "token"\nunknown = "create"\n'
        )
        return load(deployment.config)

    plant = write(first + 8)
    activate(state.root, deployment.config)
    deployment.save(state)
    script = f"import socket, time; s = socket.create_server(('127.0.0.1', {first + 8})); time.sleep(600)"
    push = Program("collector-push", [sys.executable, "-c", script])
    with supervised(state, [push]) as supervisor, socket.create_server(("127.0.0.1", 0)) as other:
        supervisor.start_program("collector-push")
        until_sync(lambda: not is_free("127.0.0.1", first + 8))
        until_running(supervisor, "collector-push")
        before, taken = pids(supervisor), other.getsockname()[1]
        for unchanged in (plant, write(first + 8, "0.0.0.0")):
            check_plant(state, deployment, unchanged, replace=False)
        with pytest.raises(OperationError, match=rf"collector-push: port {taken} on 127.0.0.1 is in use by .*\[push\]"):
            check_plant(state, deployment, write(taken), replace=False)
        assert pids(supervisor) == before


def test_orphans_of_a_killed_supervisor_are_found_and_ended(state: State) -> None:
    with supervised(state, [sleeper("a")]) as supervisor:
        supervisor.start_program("a")
        until_running(supervisor, "a")
        left = psutil.Process(pids(supervisor)["a"])
        boss = psutil.Process(int((state.run / "supervisord.pid").read_text()))
        boss.kill()
        until_sync(lambda: not supervisor.answers(), every=0.02)
        assert list(orphans.find(state)) == ["a"]
        lines: list[str] = []
        orphans.end(state, lines.append)
        assert lines == [f"stopping orphaned a (process {left.pid})"]
        assert orphans.find(state) == {}
        assert not orphans.runs(left)
        supervisor.start([sleeper("a")])  # over the socket and the pid file of the dead one
        assert supervisor.start_program("a") is True
        until_running(supervisor, "a")


def test_shell_that_names_the_state_folder_is_no_orphan(tmp_path: Path) -> None:
    state = State(tmp_path)
    environment = {"PLANTLOG_STATE": str(tmp_path)}
    with psutil.Popen([sys.executable, "-c", "input()"], env=environment, stdin=-1) as shell:
        assert orphans.find(state) == {}
        shell.communicate(b"\n")


def test_missing_supervisor_is_a_clear_error(tmp_path: Path) -> None:
    supervisor = Supervisor(State(tmp_path))
    assert supervisor.answers() is False
    with pytest.raises(OperationError, match="the supervisor does not respond"):
        supervisor.processes()


def test_hanging_supervisor_is_a_clear_error(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.appliance.supervisor._RPC_SECONDS", 0.2)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(socket_path(state)))
        silent.listen()
        with pytest.raises(OperationError, match=r"the supervisor does not respond \(timed out\)"):
            Supervisor(state).processes()


def test_ingest_process_leads_its_own_session_and_stops_on_request(state: State) -> None:
    code = "from core.process.scheduling import start_own_session; import time; start_own_session(); time.sleep(600)"
    program = Program("writer", [sys.executable, "-c", code], {"PYTHONPATH": str(CHECKOUT)})
    with supervised(state, [program]) as supervisor:
        supervisor.start_program("writer")
        until_running(supervisor, "writer")
        pid = pids(supervisor)["writer"]
        assert pid
        until_sync(lambda: os.getsid(pid) == pid, every=0.02)
        supervisor.stop_programs("writer")
        assert pids(supervisor)["writer"] is None


@pytest.mark.slow
async def test_two_ups_at_once_start_one_appliance(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTLOG_DSN", database.owner_dsn)
    new, config, first = State(tmp_path / "state"), tmp_path / "plant.toml", free_ports(21)
    (tmp_path / "tags.csv").write_text("name,address\na,holding:0\n")
    config.write_text(
        f'[plant]\nname = "p"\n[viewer]\nport = {first}\n[health]\nport = {first + 1}\n'
        '[[source]]\nname = "plc"\nkind = "modbus"\naddress = "tcp://127.0.0.1:1"\ntags = "tags.csv"\n'
    )

    def waiting() -> int:
        """Processes that wait for the lock of the state folder (proc_locks(5))."""
        lines = Path("/proc/locks").read_text().splitlines()
        return sum("->" in line and f":{new.root.stat().st_ino} " in line for line in lines)

    try:
        with folder_lock(new.root):  # both come to it
            ups = [asyncio.create_task(in_a_process(new.root, "up", "--config", config)) for _ in range(2)]
            await until(lambda: waiting() == len(ups))
        results = await asyncio.gather(*ups)
        supervisors = orphans.find(new)["supervisord"]
    finally:
        end(new)
    assert [result.code for result in results] == [0, 0], results
    assert len(supervisors) == 1
