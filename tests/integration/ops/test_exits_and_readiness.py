"""Exits of processes in the supervisor's log, and `status` and `up` after them."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from rich.console import Console

from core.config import processes
from core.config.load import load
from core.config.model import HealthOptions, NotifyOptions
from core.config.processes import processes_of
from core.config.sources import ModbusSource
from core.errors import OperationError
from core.formatting import count
from core.paths import EXAMPLE, State
from core.servers.health import serve
from core.timestamps import now_us
from ingest.status import SourceStatus
from lab.recovery import observe
from ops import health
from ops.appliance.readiness import Progress, wait_until, wait_until_ready
from ops.appliance.status import StatusMonitor, _not_ready_reason
from ops.appliance.status_table import render
from ops.appliance.steps import Step
from ops.appliance.supervisor import ExitRecord, Program, Supervisor, parse_exits
from ops.deployment import Running
from tests.command import run
from tests.config_in_force import activate
from tests.ports import free_ports
from tests.states import claimed, store_dsns
from tests.supervised import end
from tests.waiting import until_sync

LOG = """\
2026-11-22 04:00:00.000 Z INFO supervisord started with pid 7
2026-11-22 04:00:01.000 Z INFO spawned: 'writer' with pid 8
2026-11-22 04:00:01.000 Z INFO spawned: 'collector-opcua' with pid 9
2026-11-22 04:00:02.100 Z INFO success: writer entered RUNNING state, process has stayed up for > than 1 seconds
2026-11-22 04:20:00.000 Z WARN exited: writer (terminated by SIGKILL; not expected)
2026-11-22 04:20:01.000 Z INFO spawned: 'writer' with pid 10
2026-11-22 04:20:03.000 Z WARN exited: writer (exit status 1; not expected)
2026-11-22 04:20:04.000 Z INFO spawned: 'writer' with pid 11
2026-11-22 04:20:06.000 Z WARN exited: writer (exit status 1; not expected)
2026-11-22 04:20:07.000 Z INFO stopped: collector-opcua (exit status 0)
a line that was cut
"""


def test_consecutive_exits_are_counted() -> None:
    found = parse_exits(LOG.splitlines())
    assert set(found) == {"writer"}
    assert str(found["writer"]) == "exit 1, 3 times"
    assert found["writer"].at == datetime(2026, 11, 22, 4, 20, 6, tzinfo=UTC).timestamp()


def test_requested_stop_and_new_supervisor_reset_the_exit_count() -> None:
    assert parse_exits([*LOG.splitlines(), "2026-11-22 04:21:00.000 Z INFO stopped: writer (exit status 0)"]) == {}
    assert parse_exits([*LOG.splitlines(), "2026-11-22 04:21:00.000 Z INFO supervisord started with pid 12"]) == {}


def test_long_run_resets_the_exit_count() -> None:
    lines = [
        *LOG.splitlines(),
        "2026-11-22 04:20:08.000 Z INFO spawned: 'writer' with pid 13",
        "2026-11-22 04:40:08.000 Z WARN exited: writer (terminated by SIGSEGV (core dumped); not expected)",
    ]
    assert str(parse_exits(lines)["writer"]) == "SIGSEGV (core dumped)"


@pytest.fixture
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[State]:
    """A state folder with a short path, for the socket, of an appliance whose writer was started."""
    state = claimed(tmp_path_factory.mktemp("s"))
    Running("demo", HealthOptions(port=free_ports(8)), ("writer",)).save(state)
    yield state
    end(state)


def python(text: str) -> Program:
    return Program("writer", [sys.executable, "-c", text])


def started(state: State, program: Program) -> Supervisor:
    supervisor = Supervisor(state)
    supervisor.start([program])
    supervisor.start_program(program.name)
    return supervisor


def failing() -> Program:
    """Ends after it has begun to run in the eyes of the supervisor, which takes 1 s."""
    return python("import time; time.sleep(1.2); raise SystemExit('plant.toml:7: no such thing')")


def test_status_names_a_restarting_process_and_the_reason(state: State) -> None:
    started(state, failing())
    monitor = StatusMonitor(state)

    def twice_ended() -> dict[str, Any]:
        (writer,) = monitor.snapshot()["processes"]
        return writer if writer["exits"] is not None and writer["exits"]["count"] > 1 else {}

    writer = until_sync(twice_ended, every=0.1)
    assert writer["state"] == "RESTARTING"
    assert writer["reason"] == f"exit 1, {writer['exits']['count']} times; last log line: plant.toml:7: no such thing"


def test_up_does_not_wait_for_an_exited_process(state: State) -> None:
    supervisor = started(state, failing())
    with pytest.raises(OperationError, match=r"writer exited \(exit 1\): see .*\nplant.toml:7: no such thing"):
        wait_until(lambda: False, Progress(supervisor, state, ["writer"]), lambda: "never")


def test_up_waits_for_a_working_process_and_not_for_a_stalled_one(
    state: State, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ops.appliance.readiness._STALL_SECONDS", 1.0)
    monkeypatch.setattr("ops.appliance.readiness._CPU_SECONDS", 0.01)  # also a busy machine gives it that much
    flag = tmp_path / "enough"
    script = tmp_path / "busy.py"
    script.write_text(f"import pathlib, time\nwhile not pathlib.Path({str(flag)!r}).exists(): pass\ntime.sleep(600)\n")
    supervisor = started(state, Program("writer", [sys.executable, str(script)]))
    begin = time.monotonic()
    progress = Progress(supervisor, state, ["writer"])
    wait_until(lambda: time.monotonic() - begin > 2.5, progress, lambda: "it works")
    flag.touch()
    with pytest.raises(OperationError, match="no answer: no progress for 1 s"):
        wait_until(lambda: False, progress, lambda: "no answer")


SOURCE = ModbusSource(name="plc", kind="modbus", address="tcp://127.0.0.1:9", tags=())
SOURCE_AWAY = {"sources": [SourceStatus(1, "plc", "modbus", SOURCE.address, 1, "disconnected", "refused").report()]}
WEBHOOK_AWAY = {"database": "connected", "failing": {"webhook": "no answer"}, "waiting": {"webhook": 1}, "delivered": 0}


@pytest.mark.parametrize(
    ("process", "away", "told", "reason"),
    [
        ("collector-modbus", SOURCE_AWAY, "source plc at tcp://127.0.0.1:9: disconnected: refused", "plc"),
        ("notifier", WEBHOOK_AWAY, "notifier: webhook: no answer", "not reached: webhook"),
    ],
)
def test_up_names_what_is_not_plantlogs_and_does_not_wait_for_it(
    process: str, away: dict[str, Any], told: str, reason: str, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ops.appliance.readiness._SOURCES_SECONDS", 2.0)
    monkeypatch.setattr("ops.appliance.readiness._NOTIFY_SECONDS", 0.5)
    options = {"sources": (SOURCE,), "health": HealthOptions(port=free_ports(9)), "notify": NotifyOptions()}
    plant = load(EXAMPLE).model_copy(update=options)

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            number = self.connection.getsockname()[1]
            (name,) = (one for one in processes_of(plant) if processes.port(one, plant.health) == number)
            health_report = {"ready": False, **away} if name == process else {"ready": True}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"process": name, **health_report}).encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    shown = Console(width=200, file=io.StringIO())
    progress = Progress(started(state, python("import time; time.sleep(600)")), state, ["writer"])
    with ExitStack() as pages:
        for name in processes_of(plant):
            page = pages.enter_context(HTTPServer(("127.0.0.1", processes.port(name, plant.health)), Page))
            threading.Thread(target=page.serve_forever, daemon=True).start()
            pages.callback(page.shutdown)
        wait_until_ready(processes_of(plant), plant, progress, Step(shown, "wait"), simulated=False)
        assert reason in _not_ready_reason(health.fetch(process, plant.health, state.root), None)
    lines = shown.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.strip(" ·") for line in lines] == [told]


def test_exit_is_reported_while_recent_or_repeated(state: State) -> None:
    started(state, python("import time; time.sleep(600)"))
    running = {"name": "writer", "state": "RUNNING", "reason": "", "since": time.time() - 300}
    for count_, ago, told in ((1, 20, True), (1, 246, False), (3, 246, True), (3, 700, False)):
        how = ExitRecord("SIGKILL", count_, time.time() - ago)
        health_report = StatusMonitor(state)._exit_figures(running, {"writer": {}}, how)
        assert bool(health_report["reason"]) == told, (count_, ago)


def test_status_shows_why_a_process_is_not_ready_and_its_sources(state: State, tmp_path: Path) -> None:
    (tmp_path / "tags.csv").write_text("name,address\na,holding:0\n")
    (tmp_path / "plant.toml").write_text(
        '[plant]\nname = "demo"\n[[source]]\nname = "plc"\nkind = "modbus"\naddress = "tcp://127.0.0.1:502"\n'
        'tags = "tags.csv"\n'
    )
    activate(state.root, tmp_path / "plant.toml")
    first = free_ports(8)
    Running("demo", HealthOptions(port=first), ("writer", "collector-modbus")).save(state)
    started(state, python("import time; time.sleep(600)"))
    monitor = StatusMonitor(state)
    status = monitor.snapshot()
    (writer, collector), (source,) = status["processes"], status["sources"]
    assert status["overload"] is status["journal"] is None, "neither maintenance nor the writer answers"
    assert (collector["name"], collector["state"]) == ("collector-modbus", "STOPPED")
    assert writer["name"] == "writer"
    assert (source["name"], source["channels"], source["state"]) == ("plc", 1, "unknown")
    assert source["reason"] == "collector-modbus does not respond"
    table = Console(width=200, file=io.StringIO())
    table.print(render(status))
    assert "collector-modbus does not respond" in table.file.getvalue()  # type: ignore[attr-defined]

    class Away(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            health_report = {"process": "writer", "ready": False, "database": "unreachable: no route", "written": 0}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({**health_report, "lag_seconds": None, "backlog_rows": 0}).encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", first + 2), Away) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def runs() -> dict[str, Any]:
            one: dict[str, Any] = monitor.snapshot()["processes"][0]
            return one if one["state"] == "RUNNING" else {}

        one = until_sync(runs, every=0.02)
        server.shutdown()
    assert (one["ready"], one["reason"]) == (False, "database unreachable: no route")


def test_status_says_that_and_since_when_plantlog_is_stopped(state: State) -> None:
    supervisor = started(state, python("import time; time.sleep(600)"))
    assert StatusMonitor(state).snapshot()["stopped"] is None
    before = time.time()
    assert run(state.root, "down").code == 0
    status = StatusMonitor(state).snapshot()
    assert before < status["stopped"]["since"] < time.time()
    assert status["database"] == {"reachable": False, "reason": "it stopped with plantlog"}
    shown = run(state.root, "status", "--once").out
    assert re.search(r"plantlog does not run: it was stopped at \d{4}-\d\d-\d\dT[\d:]{8}Z\. `plantlog up`", shown)
    store_dsns(state, **{role: f"postgresql://plantlog_{role}:x@127.0.0.1:1/plantlog" for role in ("reader", "owner")})
    sentence = re.search(r"plantlog does not run: .* starts it", shown)
    assert sentence is not None
    questions = ("psql", "-c", "SELECT 1"), ("ask", "stuck_sensors", "--from", "1h"), ("sql", "SELECT * FROM channel")
    for words in (*questions, ("config", "rename", "a", "b")):
        refused = run(state.root, *words)
        assert (refused.code, refused.err) == (1, f"plantlog: {sentence[0]}\n"), words
    supervisor.start([])
    assert StatusMonitor(state).snapshot()["stopped"] is None
    Running("demo", HealthOptions(port=free_ports(8)), ("writer",)).save(state)  # as `up` does
    os.kill(supervisor.pid(), signal.SIGKILL)
    until_sync(lambda: not supervisor.answers())
    assert "it was not stopped by `plantlog down`. `plantlog up`" in run(state.root, "status", "--once").out


async def test_status_leaves_out_another_appliance_on_its_ports(state: State, tmp_path: Path) -> None:
    first = free_ports(8)
    Running("demo", HealthOptions(port=first), ("writer",)).save(state)

    async def report() -> dict[str, Any]:
        return {
            "process": "writer",
            "ready": True,
            "written": 0,
            "lag_seconds": None,
            "backlog_rows": 0,
            "database": "",
        }

    for folder, shown in ((tmp_path / "other", "STOPPED"), (state.root, "UNSUPERVISED")):
        folder.mkdir(exist_ok=True)
        (folder / "installation").write_text(str(uuid4()))
        async with serve("127.0.0.1", first + 2, report, folder):
            (writer,) = (await asyncio.to_thread(StatusMonitor(state).snapshot))["processes"]
            seen = await asyncio.to_thread(lambda: observe(state).reports["writer"])
        assert writer["state"] == shown
        assert (seen is None) == (shown == "STOPPED"), "nobody takes its answer for that of this one"


async def test_status_in_a_container_shows_the_processes_that_answer_there(tmp_path: Path) -> None:
    """Those of a pod share a network, those of Compose do not."""
    first = free_ports(8)
    (tmp_path / "plc.csv").write_text("name,address\na,holding:0\n")
    (tmp_path / "press.csv").write_text("name,address\nb,ns=2;s=b\n")
    devices = "".join(
        f'[[source]]\nname = "{name}"\nkind = "{kind}"\naddress = "{scheme}://127.0.0.1:1"\ntags = "{name}.csv"\n'
        for name, kind, scheme in (("plc", "modbus", "tcp"), ("press", "opcua", "opc.tcp"))
    )
    (tmp_path / "plant.toml").write_text(f'[plant]\nname = "demo"\n[health]\nport = {first}\n{devices}')
    state = claimed(tmp_path / "state")
    activate(state.root, tmp_path / "plant.toml")

    async def report() -> dict[str, Any]:
        plc = SourceStatus(1, "plc", "modbus", "tcp://127.0.0.1:1", 1).report() | {"state": "connected"}
        spool = {"name": "modbus", "rows": 0, "bytes": 0, "max_bytes": 1}
        return {"process": "collector-modbus", "ready": True, "sources": [plc], "spool": spool}

    async with serve("127.0.0.1", first + 1, report, state.root):
        status = await asyncio.to_thread(StatusMonitor(state).snapshot)
    processes = {process["name"]: process for process in status["processes"]}
    assert (status["plant"], status["stopped"]) == ("demo", None)
    assert (processes["collector-modbus"]["state"], processes["collector-modbus"]["ready"]) == ("RUNNING", True)
    assert processes["collector-opcua"]["reason"] == "does not respond here: see its container"
    sources = {source["name"]: (source["state"], source["reason"]) for source in status["sources"]}
    assert sources == {
        "plc": ("connected", ""),
        "press": ("unknown", "collector-opcua does not respond here: see its container"),
    }
    table = Console(width=200, file=io.StringIO())
    table.print(render(status))
    assert "unknown" in table.file.getvalue()  # type: ignore[attr-defined]


def test_status_shows_rejected_tokens_for_a_day() -> None:
    def reason(ago: float, count_: int = 3) -> str:
        wrong = {"count": count_, "last_at": now_us() - round(ago * 1e6), "last_from": "10.0.0.7"}
        return _not_ready_reason({"ready": True, "sources": [], "wrong_tokens": wrong}, None)

    assert re.fullmatch(r"3 requests with a wrong token, last \d{4}-\d\d-\d\dT[\d:]{8}Z from 10\.0\.0\.7", reason(60))
    assert reason(60, 1).startswith("1 request with")
    assert reason(60, 0) == reason(2 * 86_400) == ""


@pytest.mark.parametrize(
    ("n", "noun", "message"),
    [
        (1, "source", "1 source"),
        (0, "row", "0 rows"),
        (20_000, "channel", "20,000 channels"),
        (2, "batch", "2 batches"),
    ],
)
def test_counts_are_formatted(n: int, noun: str, message: str) -> None:
    assert count(n, noun) == message
